package postroomtest_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/postroomtest"
	"github.com/postroom/postroom/postroomtest/servers"
	"github.com/postroom/postroom/relay"
)

// An order is the payload of these examples.
type order struct {
	ID     string
	Amount int
}

// A handler that charges what an order costs.
var chargeOrder = postroom.JSON(func(ctx context.Context, tx pgx.Tx, ev postroom.Event, o order) error {
	if _, err := tx.Exec(ctx, "INSERT INTO charge (order_id) VALUES ($1)", o.ID); err != nil {
		return err
	}
	return shop.Write(ctx, tx, ev.Follow("order.charged", o))
})

// A test of a producer.
func ExampleRequireWritten() {
	_ = func(t *testing.T) {
		pool := servers.Postgres(t)
		tx, err := pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
		ev := postroom.NewEvent("order.placed", order{ID: "o-1", Amount: 4200})
		ev.Key = "o-1"
		if err := shop.Write(t.Context(), tx, ev); err != nil { // the producer that is tested
			t.Fatal(err)
		}
		postroomtest.RequireWritten(t, tx, postroomtest.Want{Type: "order.placed", Key: "o-1", JSON: `{"ID": "o-1", "Amount": 4200}`})
	}
}

// A test of a handler.
func ExampleApply() {
	_ = func(t *testing.T) {
		pool := servers.Postgres(t)
		if _, err := pool.Exec(t.Context(), "CREATE TABLE charge (order_id text)"); err != nil {
			t.Fatal(err)
		}
		ev := postroom.NewEvent("order.placed", order{ID: "o-1", Amount: 4200})
		if got := postroomtest.Apply(t, pool, chargeOrder, ev); got.Outcome != postroomtest.Applied || len(got.Written) != 1 {
			t.Errorf("got %+v", got)
		}
		if got := postroomtest.Apply(t, pool, chargeOrder, postroom.Event{Type: "order.placed", Data: []byte("no JSON")}); got.Class != "permanent" {
			t.Errorf("got %+v", got)
		}
	}
}

// A test of an external handler, with a vendor whose first answer comes too late.
func ExampleApplyExternal() {
	_ = func(t *testing.T) {
		vendor := postroomtest.NewVendor(t, func(postroomtest.Request) postroomtest.Answer { return postroomtest.Answer{Body: []byte("ch_1")} })
		vendor.Next(postroomtest.AnswersLate)
		ev := postroom.NewEvent("order.placed", order{ID: "o-1", Amount: 4200})
		got := postroomtest.ApplyExternal(t, servers.Postgres(t), inbox.Subscription{}, charge(vendor), ev)
		if got.Class != "outcome_unknown" || len(vendor.Works()) != 1 {
			t.Errorf("got %+v", got)
		}
	}
}

// A test of the whole way, from the producer to the effect.
func ExampleDrain() {
	_ = func(t *testing.T) {
		pool, nc := servers.Postgres(t), servers.NATS(t)
		servers.Stream(t, nc, "SHOP", "order.>")
		in := inbox.New(pool, nc, inbox.Config{})
		in.Handle(inbox.Subscription{Name: "billing.charge", Stream: "SHOP", Types: []string{"order.placed"}}, chargeOrder)
		// Write events, and then:
		postroomtest.Drain(t, relay.New(pool, natsjs.NewPublisher(nc), relay.Config{}), in)
	}
}

// A handler that writes with the pool, outside its transaction, fails this test: if the connection
// is cut before the commit, its effect stays, and the event is delivered again.
func ExampleCrash() {
	_ = func(t *testing.T) {
		ev := postroom.NewEvent("order.placed", order{ID: "o-1", Amount: 4200})
		postroomtest.Crash(t, postroomtest.Scenario{
			Setup: func(ctx context.Context, pool *pgxpool.Pool) error {
				_, err := pool.Exec(ctx, "CREATE TABLE charge (order_id text)")
				return err
			},
			Run: func(ctx context.Context, pool *pgxpool.Pool) error {
				return postroomtest.Deliver(ctx, pool, chargeOrder, ev)
			},
		}, func(ctx context.Context, pool *pgxpool.Pool) error {
			var n int
			if err := pool.QueryRow(ctx, "SELECT count(*) FROM charge").Scan(&n); err != nil {
				return fmt.Errorf("count the charges: %w", err)
			}
			if n != 1 {
				return fmt.Errorf("%d charges, want 1", n)
			}
			return nil
		})
	}
}
