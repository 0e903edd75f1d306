package postmill_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/outbox"
	"github.com/postroom/postroom/postmill"
)

// The message is written in the transaction of its context.
func ExamplePublisher_Publish() {
	servers := devtest.ForExample() // a migrated database
	defer servers.Close()
	ctx, pool := context.Background(), servers.Pool

	pub := postmill.NewPublisher(outbox.New(outbox.Config{Source: "/shop"}), postmill.PublisherConfig{})
	msg := message.NewMessage("u-1", []byte(`{"id":"o-1"}`))
	fmt.Println(errors.Is(pub.Publish("order.placed", msg), postmill.ErrNoTx))

	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		msg.SetContext(postmill.WithTx(ctx, tx))
		return pub.Publish("order.placed", msg)
	})
	fmt.Println(err)
	// Output:
	// true
	// <nil>
}

// Code that gets a message.Publisher, and knows nothing of transactions, publishes in this
// transaction.
func ExamplePublisher_In() {
	servers := devtest.ForExample()
	defer servers.Close()
	ctx, pool := context.Background(), servers.Pool

	announce := func(pub message.Publisher, order string) error {
		return pub.Publish("order.placed", message.NewMessage("u-"+order, []byte(order)))
	}
	pub := postmill.NewPublisher(outbox.New(outbox.Config{Source: "/shop"}), postmill.PublisherConfig{})
	fmt.Println(pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return announce(pub.In(tx), "o-1") }))
	// Output: <nil>
}

// A service that uses database/sql publishes in its transactions.
func ExamplePublisher_InSQL() {
	servers := devtest.ForExample()
	defer servers.Close()
	ctx, db := context.Background(), stdlib.OpenDBFromPool(servers.Pool)
	defer func() { _ = db.Close() }()

	pub := postmill.NewPublisher(outbox.New(outbox.Config{Source: "/shop"}), postmill.PublisherConfig{})
	place := func(order string) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // does nothing after the commit
		if err := pub.InSQL(tx).Publish("order.placed", message.NewMessage("u-"+order, []byte(order))); err != nil {
			return err
		}
		return tx.Commit()
	}
	fmt.Println(place("o-1"))
	// Output: <nil>
}

// A Watermill handler runs in an inbox: its effect and its message commit together.
func ExampleHandler() {
	servers := devtest.ForExample()
	defer servers.Close()
	servers.Exec(context.Background(), "CREATE TABLE charge (id text)")

	charge := func(msg *message.Message) ([]*message.Message, error) {
		_, err := postmill.Tx(msg.Context()).Exec(msg.Context(), "INSERT INTO charge VALUES ($1)", string(msg.Payload))
		return []*message.Message{message.NewMessage("charge of "+msg.UUID, msg.Payload)}, err
	}
	pub := postmill.NewPublisher(outbox.New(outbox.Config{Source: "/billing"}), postmill.PublisherConfig{})
	in := inbox.New(servers.Pool, servers.NATS, inbox.Config{})
	in.Handle(inbox.Subscription{
		Name: "billing", Stream: "SHOP", Subjects: []string{"wm.order.placed"},
	}, postmill.Handler(pub, "charge.made", charge))
	fmt.Println("ready for in.Run")
	// Output: ready for in.Run
}
