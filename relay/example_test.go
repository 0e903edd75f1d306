package relay_test

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/outbox"
	"github.com/postroom/postroom/relay"
)

// A relay publishes committed events until ctx ends. Several may run: one leads, and the
// others wait to take its place.
func ExampleNew() {
	servers := devtest.ForExample(natsjs.ConnectOptions()...) // a migrated database, a NATS server with JetStream
	defer servers.Close()
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	pool, nc := servers.Pool, servers.NATS

	err := natsjs.EnsureStream(ctx, nc, jetstream.StreamConfig{Name: "SHOP", Subjects: []string{"order.>"}})
	fmt.Println("stream:", err)
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		ev := postroom.NewEvent("order.placed", map[string]string{"id": "o-1"})
		return outbox.New(outbox.Config{Source: "/shop"}).Write(ctx, tx, ev)
	})
	fmt.Println("write:", err)

	r := relay.New(pool, natsjs.NewPublisher(nc), relay.Config{})
	fmt.Println("check:", r.Check(ctx)) // reports what is missing before events have to wait for it
	sub, err := nc.SubscribeSync("order.placed")
	fmt.Println("subscribe:", err)
	done := make(chan error)
	go func() { done <- r.Run(ctx) }()
	if msg, err := sub.NextMsgWithContext(ctx); err == nil {
		fmt.Println("published:", string(msg.Data))
	}
	stop()
	fmt.Println("run:", <-done) // Run has recorded which events the broker stored
	// Output:
	// stream: <nil>
	// write: <nil>
	// check: <nil>
	// subscribe: <nil>
	// published: {"id":"o-1"}
	// run: <nil>
}
