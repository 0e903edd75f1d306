package outbox_test

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/outbox"
)

// The order and its event commit together, or neither does.
func ExampleOutbox_Write() {
	shop := outbox.New(outbox.Config{Source: "/shop"})
	place := func(ctx context.Context, pool *pgxpool.Pool, id string, amount int) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "INSERT INTO shop_order VALUES ($1, $2)", id, amount); err != nil {
				return err
			}
			ev := postroom.NewEvent("order.placed", map[string]any{"id": id, "amount": amount})
			ev.Key = id // events of one order stay in order
			return shop.Write(ctx, tx, ev)
		})
	}
	_ = place
}

// The event goes to the database in one round trip with the order.
func ExampleOutbox_Queue() {
	shop := outbox.New(outbox.Config{Source: "/shop"})
	place := func(ctx context.Context, tx pgx.Tx, id string) error {
		batch := &pgx.Batch{}
		batch.Queue("INSERT INTO shop_order (id) VALUES ($1)", id)
		if err := shop.Queue(batch, postroom.NewEvent("order.placed", map[string]string{"id": id})); err != nil {
			return err
		}
		return shop.Explain(tx.SendBatch(ctx, batch).Close())
	}
	_ = place
}

// A program that uses database/sql writes events in its own transactions, too.
func ExampleOutbox_WriteSQL() {
	shop := outbox.New(outbox.Config{Source: "/shop"})
	cancel := func(ctx context.Context, db *sql.DB, id string) error {
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
	_ = cancel
}
