package inspect_test

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/inspect"
	"github.com/postroom/postroom/outbox"
)

// Status says what is wrong, and what to do about it. Here an event waits, and no relay runs.
func ExampleInspector_Status() {
	servers := devtest.ForExample() // a migrated database, a NATS server with JetStream
	defer servers.Close()
	ctx := context.Background()
	err := pgx.BeginFunc(ctx, servers.Pool, func(tx pgx.Tx) error {
		return outbox.New(outbox.Config{Source: "/shop"}).Write(ctx, tx, postroom.NewEvent("order.placed", nil))
	})
	fmt.Println("write:", err)

	status, err := inspect.New(servers.Pool, servers.NATS, inspect.Config{}).Status(ctx)
	for _, f := range status.Findings {
		fmt.Println(f.Code+":", f.Text)
		fmt.Println("  do:", f.Remedy)
	}
	fmt.Println(err)
	// Output:
	// write: <nil>
	// no_relay: no relay leads, so nothing is published: no relay has led yet, and events wait
	//   do: start 'postroom relay', or relay.Relay.Run in a program; if a relay runs, its log says why it does not lead
	// stream_refuses: subjects order.placed: no stream takes the event's subject; create it with 'postroom stream ensure' or natsjs.EnsureStream
	//   do: until then, events of these subjects wait in the log
	// <nil>
}

// Event shows what happened to one event.
func ExampleInspector_Event() {
	servers := devtest.ForExample()
	defer servers.Close()
	ctx := context.Background()
	err := pgx.BeginFunc(ctx, servers.Pool, func(tx pgx.Tx) error {
		ev := postroom.NewEvent("order.placed", map[string]string{"id": "o-7"})
		ev.ID, ev.Key = "order-7", "o-7"
		return outbox.New(outbox.Config{Source: "/shop"}).Write(ctx, tx, ev)
	})
	fmt.Println("write:", err)

	trace, err := inspect.New(servers.Pool, servers.NATS, inspect.Config{}).Event(ctx, "/shop", "order-7")
	for _, m := range trace.Timeline() {
		fmt.Println(m.Where+":", m.Text) // and m.At
	}
	fmt.Println(err)
	// Output:
	// write: <nil>
	// log: written by /shop as order.placed, seq 1, key o-7
	// <nil>
}
