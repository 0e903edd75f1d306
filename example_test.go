package postroom_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
)

// Middleware runs in the order in which it is written: the first is outermost.
func ExampleChain() {
	trace := func(name string) postroom.Middleware {
		return func(next postroom.Handler) postroom.Handler {
			return postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
				fmt.Println("enter", name)
				defer fmt.Println("leave", name)
				return next.Handle(ctx, tx, ev)
			})
		}
	}
	ship := postroom.HandlerFunc(func(_ context.Context, _ pgx.Tx, ev postroom.Event) error {
		fmt.Println("ship", ev.Key)
		return nil
	})

	h := postroom.Chain(ship, trace("timeout"), trace("log"))
	if err := h.Handle(context.Background(), nil, postroom.Event{Type: "order.paid", Key: "o-1"}); err != nil {
		fmt.Println(err)
	}

	// Output:
	// enter timeout
	// enter log
	// ship o-1
	// leave log
	// leave timeout
}

// A Mux is one handler for several types. On adds types of other programs, for which there is no Type
// of this package. The method Types returns the types that a subscription reads.
func ExampleMux() {
	type placed struct{ Amount int }

	var m postroom.Mux
	m.On("order.placed", postroom.JSON(func(_ context.Context, _ pgx.Tx, ev postroom.Event, p placed) error {
		fmt.Println("charge", p.Amount, "for", ev.Key)
		return nil
	}))
	m.On("order.cancelled", postroom.HandlerFunc(func(_ context.Context, _ pgx.Tx, ev postroom.Event) error {
		fmt.Println("refund", ev.Key)
		return nil
	}))
	fmt.Println(m.Types())

	ctx := context.Background()
	for _, ev := range []postroom.Event{
		{Type: "order.placed", Key: "o-1", Data: []byte(`{"Amount":42}`)},
		{Type: "order.cancelled", Key: "o-1"},
		{Type: "order.returned", Key: "o-1"},
	} {
		if err := m.Handle(ctx, nil, ev); err != nil {
			fmt.Println(err)
		}
	}

	// Output:
	// [order.cancelled order.placed]
	// charge 42 for o-1
	// refund o-1
	// no handler for event type "order.returned"
}

// A Type joins the name of an event type, the Go type of its data, and its key. A handler for other
// data does not compile.
func ExampleNewType() {
	type order struct {
		ID     string
		Amount int
	}
	type payment struct{ OrderID string }
	orderPlaced := postroom.NewType("order.placed", func(o order) string { return o.ID })
	orderPaid := postroom.NewType("order.paid", func(p payment) string { return p.OrderID })

	// The producer writes events with Outbox.Write.
	placed := orderPlaced.New(order{ID: "o-1", Amount: 42})
	paid := orderPaid.Follow(placed, payment{OrderID: "o-1"}) // placed is its cause
	fmt.Println(placed.Type, placed.Key, string(placed.Data))

	// The consumer gives the Mux to Inbox.Handle. The subscription needs no Types.
	h := postroom.NewMux(
		orderPlaced.Handler(func(_ context.Context, _ pgx.Tx, _ postroom.Event, o order) error {
			fmt.Println("charge", o.Amount, "for", o.ID)
			return nil
		}),
		orderPaid.Handler(func(_ context.Context, _ pgx.Tx, ev postroom.Event, p payment) error {
			fmt.Println("ship", p.OrderID, "and the cause is its order:", ev.CausationID == placed.ID)
			return nil
		}),
	)
	fmt.Println(h.Types())
	other := postroom.Event{Type: "order.placed", Data: []byte(`{"total": 42}`)} // of another program
	for _, ev := range []postroom.Event{placed, paid, other} {
		if err := h.Handle(context.Background(), nil, ev); err != nil {
			fmt.Println(err)
		}
	}

	// Output:
	// order.placed o-1 {"ID":"o-1","Amount":42}
	// [order.paid order.placed]
	// charge 42 for o-1
	// ship o-1 and the cause is its order: true
	// permanent failure: data of order.placed does not decode: it has none of the fields of the type postroom_test.order
}

// If a vendor says when to call again, RetryAfter passes that on. RetryDelay finds the delay even
// if the error is wrapped.
func ExampleRetryAfter() {
	charge := func() error {
		return postroom.RetryAfter(90*time.Second, errors.New("too many requests"))
	}
	err := fmt.Errorf("charge order o-1: %w", charge())

	fmt.Println(err)
	if d, asked := postroom.RetryDelay(err); asked {
		fmt.Println("next attempt in", d)
	}
	_, asked := postroom.RetryDelay(errors.New("connection refused"))
	fmt.Println("otherwise by the schedule:", !asked)

	// Output:
	// charge order o-1: retry after 1m30s: too many requests
	// next attempt in 1m30s
	// otherwise by the schedule: true
}

// If another attempt would fail in the same way, the error is permanent.
func ExamplePermanent() {
	err := postroom.Permanent(errors.New("no such currency: EUX"))

	fmt.Println(err)
	fmt.Println(errors.Is(err, postroom.ErrPermanent))

	// Output:
	// permanent failure: no such currency: EUX
	// true
}

// An event that follows from another one keeps its key and its correlation id, so that the events
// show the business process.
func ExampleEvent_Follow() {
	placed := postroom.NewEvent("order.placed", map[string]int{"amount": 42})
	placed.ID, placed.Key = "e-1", "o-1"

	charged := placed.Follow("order.charged", nil)
	charged.ID = "e-2"
	shipped := charged.Follow("order.shipped", nil)
	shipped.ID = "e-3"

	for _, ev := range []postroom.Event{placed, charged, shipped} {
		fmt.Printf("%s %-13s key %s, cause %q, correlation %q\n", ev.ID, ev.Type, ev.Key, ev.CausationID, ev.CorrelationID)
	}

	// Output:
	// e-1 order.placed  key o-1, cause "", correlation ""
	// e-2 order.charged key o-1, cause "e-1", correlation "e-1"
	// e-3 order.shipped key o-1, cause "e-2", correlation "e-1"
}

// Validate reports every fault at once, each with the name of its field.
func ExampleEvent_Validate() {
	ev := postroom.Event{
		ID:      "order#1",
		Type:    "order.*",
		Headers: map[string]string{"Nats-Rollup": "all"},
	}
	err := ev.Validate()

	fmt.Println(errors.Is(err, postroom.ErrInvalidEvent))
	var fault *postroom.FieldError
	if errors.As(err, &fault) {
		fmt.Println(fault.Field)
	}
	fmt.Println(postroom.Event{Type: "order.placed"}.Validate())

	// Output:
	// true
	// ID
	// <nil>
}

// Run runs the parts of a service until its context ends, or until one of them
// stops by itself.
func ExampleRun() {
	ctx, cancel := context.WithCancel(context.Background())
	relay := postroom.RunnerFunc(func(ctx context.Context) error {
		<-ctx.Done()
		fmt.Println("relay drained")
		return nil
	})
	inbox := postroom.RunnerFunc(func(context.Context) error {
		cancel() // SIGTERM, in a program
		return nil
	})

	fmt.Println(postroom.Run(ctx, relay, inbox))

	// Output:
	// relay drained
	// <nil>
}
