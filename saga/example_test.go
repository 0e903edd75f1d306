package saga_test

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/outbox"
	"github.com/postroom/postroom/relay"
	"github.com/postroom/postroom/saga"
)

// order is the state of a checkout.
type order struct {
	ID     string
	Amount int
	Charge string
}

type receipt struct{ Charge string }

// vendor is a client of a vendor who recognises keys.
type vendor struct{}

func (vendor) Charge(_ context.Context, _ string, amount int) (string, error) {
	fmt.Println("the vendor charges", amount)
	return "ch_1", nil
}

// checkout pays an order and confirms it.
func checkout(confirm func(ctx context.Context, tx pgx.Tx, o *order) error) saga.Definition[order] {
	whole := func(o *order) order { return *o }
	return saga.Definition[order]{
		Name: "checkout", Version: 1,
		Steps: []saga.Step[order]{
			{
				Name: "payment", Within: 15 * time.Minute,
				Do:   saga.Send("payment.charge", whole),
				Done: saga.On("payment.charged", func(o *order, r receipt) { o.Charge = r.Charge }),
				Undo: saga.Send("payment.refund", whole), Undone: saga.On[order, any]("payment.refunded", nil),
			},
			{Name: "confirm", Do: saga.Local(confirm)},
		},
	}
}

// An order is paid at a vendor and confirmed. Here the saga and the paying service run in one
// program. They can also run in two programs that share a stream.
func Example() {
	servers := devtest.ForExample(natsjs.ConnectOptions()...) // a migrated database, a NATS server with JetStream
	defer servers.Close()
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	pool, nc := servers.Pool, servers.NATS
	err := natsjs.EnsureStream(ctx, nc, jetstream.StreamConfig{Name: "SHOP", Subjects: []string{"payment.>", "checkout.>"}})
	fmt.Println("stream:", err)

	out := outbox.New(outbox.Config{Source: "/shop"})
	process := saga.New(pool, out, checkout(func(_ context.Context, _ pgx.Tx, o *order) error {
		defer stop() // the example ends here; Run commits this step first
		fmt.Println("confirmed:", o.ID, o.Charge)
		return nil
	}))
	in := inbox.New(pool, nc, inbox.Config{})
	in.Handle(inbox.Subscription{Name: "checkout", Stream: "SHOP"}, process)

	// The service that pays calls a vendor. An operator may send its command again, with a new
	// id: the key of the step is the same, so the vendor charges once.
	sub := inbox.Subscription{Name: "payment", Stream: "SHOP", Types: []string{"payment.charge"}, Order: inbox.HoldKey, VendorWindow: 24 * time.Hour}
	in.HandleExternal(sub, inbox.External(func(ctx context.Context, attempt *inbox.Attempt, o order) error {
		charge, err := inbox.Step(ctx, attempt, "charge", func(ctx context.Context, _ string) (string, error) {
			return vendor{}.Charge(ctx, saga.StepKey(attempt.Event)+":charge", o.Amount)
		})
		if err != nil {
			return err
		}
		attempt.OnSuccess(func(ctx context.Context, tx pgx.Tx) error {
			return out.Write(ctx, tx, attempt.Event.Follow("payment.charged", receipt{charge}))
		})
		return nil
	}))

	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		return process.Begin(ctx, tx, "o-1", order{ID: "o-1", Amount: 4200})
	})
	fmt.Println("begin:", err)
	err = postroom.Run(ctx, in, relay.New(pool, natsjs.NewPublisher(nc), relay.Config{}))
	fmt.Println("run:", err)

	status, err := process.Status(context.Background(), "o-1")
	fmt.Println("the process is", status.State, err)
	// Output:
	// stream: <nil>
	// begin: <nil>
	// the vendor charges 4200
	// confirmed: o-1 ch_1
	// run: <nil>
	// the process is done <nil>
}

// A customer's cancellation comes as an event. The event's handler undoes the process, and names
// the event as the cause.
func ExampleSaga_Compensate() {
	process := saga.New(nil, outbox.New(outbox.Config{Source: "/shop"}), checkout(confirm))
	in := inbox.New(nil, nil, inbox.Config{})
	in.Handle(inbox.Subscription{Name: "orders.cancel", Stream: "SHOP", Types: []string{"order.cancelled"}},
		postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
			return process.Compensate(saga.WithCause(ctx, ev), tx, ev.Key, nil)
		}))
}

// The page of an order shows the progress of its process.
func ExampleSaga_StatusHandler() {
	process := saga.New(nil, outbox.New(outbox.Config{Source: "/shop"}), checkout(confirm))
	public := func(o order) any { return map[string]int{"amount": o.Amount} }
	http.Handle("GET /orders/{key}/checkout", process.StatusHandler(public))
}

// If a participant works only in its own database, it answers in the same transaction.
func ExampleParticipant() {
	out := outbox.New(outbox.Config{Source: "/payments"})
	var mux postroom.Mux
	mux.On("payment.charge", saga.Participant(out, func(ctx context.Context, tx pgx.Tx, cmd postroom.Event, o order) (postroom.Event, error) {
		_, err := tx.Exec(ctx, "INSERT INTO charge VALUES ($1, $2)", o.ID, o.Amount)
		return cmd.Follow("payment.charged", receipt{o.ID}), err
	}))
	mux.On("payment.refund", saga.Participant(out, func(ctx context.Context, tx pgx.Tx, cmd postroom.Event, o order) (postroom.Event, error) {
		_, err := tx.Exec(ctx, "DELETE FROM charge WHERE order_id = $1", o.ID)
		return cmd.Follow("payment.refunded", nil), err
	}))
	in := inbox.New(nil, nil, inbox.Config{})
	in.Handle(inbox.Subscription{Name: "payment", Stream: "SHOP", Order: inbox.HoldKey}, &mux)
}

// Later the vendor says in a webhook that the order was paid. The participant has stored the
// command together with the vendor's reference.
func ExampleAnswer() {
	out := outbox.New(outbox.Config{Source: "/payments"})
	_ = postroom.JSON(func(ctx context.Context, tx pgx.Tx, _ postroom.Event, r receipt) error {
		var command, key string
		err := tx.QueryRow(ctx, "DELETE FROM asked WHERE charge = $1 RETURNING command_id, key", r.Charge).Scan(&command, &key)
		if err != nil {
			return err
		}
		return out.Write(ctx, tx, saga.Answer(command, key, "payment.charged", r))
	})
}

// If a participant could not handle a command, it reports that as an answer, and the saga undoes
// the earlier steps.
func ExampleReportDeath() {
	out := outbox.New(outbox.Config{Source: "/payments"})
	types := map[string]string{"payment.charge": "payment.died"}
	_ = inbox.Config{OnDead: func(ctx context.Context, tx pgx.Tx, l inbox.Letter) error {
		return saga.ReportDeath(ctx, tx, out, types, l.Event, saga.Death{Class: l.Class, Error: l.Error})
	}}
}

func confirm(context.Context, pgx.Tx, *order) error { return nil }
