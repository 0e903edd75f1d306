package outbox_test

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/outbox"
)

// The order and its event commit together, or neither does.
func ExampleOutbox_Write() {
	servers := devtest.ForExample() // a migrated database
	defer servers.Close()
	ctx, pool := context.Background(), servers.Pool
	servers.Exec(ctx, "CREATE TABLE shop_order (id text PRIMARY KEY, amount int CHECK (amount > 0))")

	shop := outbox.New(outbox.Config{Source: "/shop"})
	place := func(id string, amount int) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			ev := postroom.NewEvent("order.placed", map[string]any{"id": id, "amount": amount})
			ev.Key = id // events of one order stay in order
			if err := shop.Write(ctx, tx, ev); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, "INSERT INTO shop_order VALUES ($1, $2)", id, amount)
			return err
		})
	}
	fmt.Println("o-1:", place("o-1", 4200))
	fmt.Println("o-2 failed:", place("o-2", -1) != nil)

	var orders, events int
	err := pool.QueryRow(ctx, "SELECT (SELECT count(*) FROM shop_order), (SELECT count(*) FROM postroom.outbox)").Scan(&orders, &events)
	fmt.Println(orders, "order,", events, "event,", err)
	// Output:
	// o-1: <nil>
	// o-2 failed: true
	// 1 order, 1 event, <nil>
}

// The event goes to the database in one round trip with the order.
func ExampleOutbox_Queue() {
	servers := devtest.ForExample()
	defer servers.Close()
	ctx, pool := context.Background(), servers.Pool
	servers.Exec(ctx, "CREATE TABLE shop_order (id text PRIMARY KEY)")

	shop := outbox.New(outbox.Config{Source: "/shop"})
	place := func(tx pgx.Tx, id string) error {
		batch := &pgx.Batch{}
		batch.Queue("INSERT INTO shop_order (id) VALUES ($1)", id)
		if err := shop.Queue(batch, postroom.NewEvent("order.placed", map[string]string{"id": id})); err != nil {
			return err
		}
		return shop.Explain(tx.SendBatch(ctx, batch).Close())
	}
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return place(tx, "o-1") })
	fmt.Println(err)

	var order, event string
	err = pool.QueryRow(ctx, "SELECT id, type FROM shop_order, postroom.outbox").Scan(&order, &event)
	fmt.Println(order, event, err)
	// Output:
	// <nil>
	// o-1 order.placed <nil>
}

// A program that uses database/sql writes events in its own transactions, too.
func ExampleOutbox_WriteSQL() {
	servers := devtest.ForExample()
	defer servers.Close()
	ctx, db := context.Background(), stdlib.OpenDBFromPool(servers.Pool)
	defer func() { _ = db.Close() }()
	servers.Exec(ctx, "CREATE TABLE shop_order (id text PRIMARY KEY, cancelled bool); INSERT INTO shop_order VALUES ('o-1', false)")

	shop := outbox.New(outbox.Config{Source: "/shop"})
	cancel := func(id string) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // does nothing after the commit
		if _, err := tx.ExecContext(ctx, "UPDATE shop_order SET cancelled = true WHERE id = $1", id); err != nil {
			return err
		}
		if err := shop.WriteSQL(ctx, tx, postroom.NewEvent("order.cancelled", map[string]string{"id": id})); err != nil {
			return err
		}
		return tx.Commit()
	}
	fmt.Println(cancel("o-1"))

	var event string
	err := db.QueryRowContext(ctx, "SELECT type FROM shop_order, postroom.outbox WHERE cancelled").Scan(&event)
	fmt.Println(event, err)
	// Output:
	// <nil>
	// order.cancelled <nil>
}
