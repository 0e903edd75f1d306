// Quickstart is the shortest whole program. It writes an order and its event in one transaction,
// the relay publishes the event, and a handler charges the order once. The program starts servers
// of its own:
//
//	go run ./examples/quickstart
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devstack"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/outbox"
	"github.com/postroom/postroom/relay"
	"github.com/postroom/postroom/schema"
)

type order struct {
	ID     string
	Amount int
}

var orderPlaced = postroom.NewType("order.placed", func(o order) string { return o.ID })

const tables = `CREATE TABLE shop_order (id text PRIMARY KEY, amount int); CREATE TABLE charge (order_id text, amount int)`

func main() {
	servers, err := devstack.Start(context.Background(), devstack.Config{})
	if err == nil {
		err = errors.Join(run(context.Background(), servers.Postgres.URL(), servers.NATS.URL(), os.Stdout), servers.Close())
	}
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, database, broker string, out io.Writer) error {
	pool, err := pgxpool.New(ctx, database)
	if err != nil {
		return err
	}
	defer pool.Close()
	nc, err := nats.Connect(broker, natsjs.ConnectOptions()...)
	if err != nil {
		return err
	}
	defer nc.Close()
	_, migrating := schema.Migrate(ctx, pool, "")
	_, creating := pool.Exec(ctx, tables)
	streaming := natsjs.EnsureStream(ctx, nc, jetstream.StreamConfig{Name: "SHOP", Subjects: []string{"order.>"}})
	if err := errors.Join(migrating, creating, streaming); err != nil {
		return err
	}

	// The producer: the order and the event commit together, or neither commits.
	shop := outbox.New(outbox.Config{Source: "/shop"})
	o := order{ID: "order-1", Amount: 4200}
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "INSERT INTO shop_order VALUES ($1, $2)", o.ID, o.Amount); err != nil {
			return err
		}
		return shop.Write(ctx, tx, orderPlaced.New(o))
	})
	if err != nil {
		return err
	}

	// The relay publishes committed events. The inbox calls handlers. Here both run in one process.
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	in := inbox.New(pool, nc, inbox.Config{})
	charge := func(ctx context.Context, tx pgx.Tx, _ postroom.Event, o order) error {
		stop() // the program ends after one event; Run finishes that event first
		_, err := tx.Exec(ctx, "INSERT INTO charge VALUES ($1, $2)", o.ID, o.Amount)
		return err // nil commits the charge together with the record that the event was handled
	}
	in.Handle(inbox.Subscription{Name: "billing.charge", Stream: "SHOP"}, orderPlaced.Handler(charge))
	if err := postroom.Run(ctx, relay.New(pool, natsjs.NewPublisher(nc), relay.Config{}), in); err != nil {
		return err
	}
	var charges int
	if err := pool.QueryRow(context.WithoutCancel(ctx), "SELECT count(*) FROM charge WHERE order_id = $1", o.ID).Scan(&charges); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s was charged %d time\n", o.ID, charges)
	return err
}
