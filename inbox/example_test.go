package inbox_test

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/outbox"
	"github.com/postroom/postroom/relay"
)

type order struct {
	ID     string
	Amount int
}

// payments is a client of a vendor who recognises keys for a day.
type payments struct{}

func (payments) Charge(_ context.Context, _ string, amount int) (string, error) {
	fmt.Println("the vendor charges", amount)
	return "ch_1", nil
}

// A charge for each order: the charge and the record that its event was handled commit
// together. Here the program publishes its own events, too.
func ExampleInbox_Handle() {
	servers := devtest.ForExample(natsjs.ConnectOptions()...) // a migrated database, a NATS server with JetStream
	defer servers.Close()
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	pool, nc := servers.Pool, servers.NATS
	servers.Exec(ctx, "CREATE TABLE charge (order_id text PRIMARY KEY, amount int)")
	err := natsjs.EnsureStream(ctx, nc, jetstream.StreamConfig{Name: "SHOP", Subjects: []string{"order.>"}})
	fmt.Println("stream:", err)

	in := inbox.New(pool, nc, inbox.Config{})
	in.Handle(inbox.Subscription{Name: "billing.charge", Stream: "SHOP", Types: []string{"order.placed"}},
		postroom.JSON(func(ctx context.Context, tx pgx.Tx, _ postroom.Event, o order) error {
			defer stop() // the example ends after one event; Run commits and acknowledges it first
			_, err := tx.Exec(ctx, "INSERT INTO charge VALUES ($1, $2)", o.ID, o.Amount)
			return err
		}))

	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		return outbox.New(outbox.Config{Source: "/shop"}).Write(ctx, tx, postroom.NewEvent("order.placed", order{"o-1", 4200}))
	})
	fmt.Println("write:", err)
	err = postroom.Run(ctx, in, relay.New(pool, natsjs.NewPublisher(nc), relay.Config{}))
	fmt.Println("run:", err)

	var charged int
	err = pool.QueryRow(context.Background(), "SELECT amount FROM charge WHERE order_id = 'o-1'").Scan(&charged)
	fmt.Println("charged:", charged, err)
	// Output:
	// stream: <nil>
	// write: <nil>
	// run: <nil>
	// charged: 4200 <nil>
}

// A payment. The handler calls the vendor with a key, and the result is recorded here once.
func ExampleInbox_HandleExternal() {
	servers := devtest.ForExample()
	defer servers.Close()
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	pool, vendor := servers.Pool, payments{}
	servers.Exec(ctx, "CREATE TABLE charge (order_id text PRIMARY KEY, vendor_id text)")

	in := inbox.New(pool, nil, inbox.Config{}) // its events come from Accept, so it needs no broker
	in.HandleExternal(inbox.Subscription{Name: "billing.charge", VendorWindow: 24 * time.Hour},
		inbox.External(func(ctx context.Context, attempt *inbox.Attempt, o order) error {
			charge, err := inbox.Step(ctx, attempt, "charge", func(ctx context.Context, key string) (string, error) {
				return vendor.Charge(ctx, key, o.Amount)
			})
			if err != nil {
				return err
			}
			attempt.OnSuccess(func(ctx context.Context, tx pgx.Tx) error {
				defer stop() // the example ends here
				_, err := tx.Exec(ctx, "INSERT INTO charge VALUES ($1, $2)", o.ID, charge)
				return err
			})
			return nil
		}))

	ev := postroom.NewEvent("order.placed", order{"o-1", 4200})
	ev.Source = "/shop"
	fmt.Println(in.Accept(ctx, "billing.charge", ev))
	fmt.Println("run:", in.Run(ctx))

	var id string
	err := pool.QueryRow(context.Background(), "SELECT vendor_id FROM charge WHERE order_id = 'o-1'").Scan(&id)
	fmt.Println("charge:", id, err)
	// Output:
	// stored <nil>
	// the vendor charges 4200
	// run: <nil>
	// charge: ch_1 <nil>
}

// The moves of an account take effect in their order. If a move is dead, its account waits for an
// operator.
func ExampleInbox_Handle_ordered() {
	servers := devtest.ForExample(natsjs.ConnectOptions()...)
	defer servers.Close()
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	pool, nc := servers.Pool, servers.NATS
	servers.Exec(ctx, "CREATE TABLE move (n serial, account text, amount int)")
	err := natsjs.EnsureStream(ctx, nc, jetstream.StreamConfig{Name: "BANK", Subjects: []string{"account.>"}})
	fmt.Println("stream:", err)

	in := inbox.New(pool, nc, inbox.Config{})
	in.Handle(inbox.Subscription{Name: "ledger.move", Stream: "BANK", Types: []string{"account.moved"}, Order: inbox.HoldKey},
		postroom.JSON(func(ctx context.Context, tx pgx.Tx, ev postroom.Event, o order) error {
			if o.Amount == 300 {
				defer stop() // the example ends after the third
			}
			_, err := tx.Exec(ctx, "INSERT INTO move (account, amount) VALUES ($1, $2)", ev.Key, o.Amount)
			return err
		}))

	bank := outbox.New(outbox.Config{Source: "/bank"})
	for _, amount := range []int{100, 200, 300} {
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			ev := postroom.NewEvent("account.moved", order{Amount: amount})
			ev.Key = "acc-7"
			return bank.Write(ctx, tx, ev)
		})
		fmt.Println("write:", err)
	}
	err = postroom.Run(ctx, in, relay.New(pool, natsjs.NewPublisher(nc), relay.Config{}))
	fmt.Println("run:", err)

	var moves []int
	err = pool.QueryRow(context.Background(), "SELECT array_agg(amount ORDER BY n) FROM move WHERE account = 'acc-7'").Scan(&moves)
	fmt.Println(moves, err)
	// Output:
	// stream: <nil>
	// write: <nil>
	// write: <nil>
	// write: <nil>
	// run: <nil>
	// [100 200 300] <nil>
}

// A webhook's event comes from no broker. It is accepted once, however often its sender
// repeats it. The answer tells the sender to stop.
func ExampleInbox_Accept() {
	servers := devtest.ForExample()
	defer servers.Close()
	ctx := context.Background()

	in := inbox.New(servers.Pool, nil, inbox.Config{})
	in.Handle(inbox.Subscription{Name: "payments.settle"},
		postroom.HandlerFunc(func(context.Context, pgx.Tx, postroom.Event) error { return nil }))

	accept := func(id, body string) {
		ev := postroom.NewEvent("payment.settled", nil)
		ev.ID, ev.Source, ev.Data = id, "/provider", []byte(body)
		fmt.Println(in.Accept(ctx, "payments.settle", ev)) // answer 200 only if the error is nil
	}
	accept("evt_1", `{"amount": 4200}`)
	accept("evt_1", `{"amount": 4200}`)
	accept("evt_1", `{"amount": 1}`)
	// Output:
	// stored <nil>
	// duplicate <nil>
	// conflict <nil>
}
