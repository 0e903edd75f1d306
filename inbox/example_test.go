package inbox_test

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
)

type order struct {
	ID     string
	Amount int
}

// payments is a client of a vendor who recognises keys for a day.
type payments struct{}

func (payments) Charge(context.Context, string, int) ([]byte, error) { return []byte("ch_1"), nil }

// A payment: called at the vendor's with a key, written down here once.
func ExampleInbox_HandleExternal() {
	var (
		ctx    context.Context
		pool   *pgxpool.Pool
		nc     *nats.Conn
		vendor payments
	)
	in := inbox.New(pool, nc, inbox.Config{})
	in.HandleExternal(inbox.Subscription{
		Name: "billing.charge", Stream: "SHOP", Types: []string{"order.placed"}, KeyWindow: 24 * time.Hour,
	}, func(ctx context.Context, call *inbox.Call) error {
		var o order
		if err := call.Event.JSON(&o); err != nil {
			return err
		}
		charge, err := call.Step(ctx, "charge", func(ctx context.Context, key string) ([]byte, error) {
			return vendor.Charge(ctx, key, o.Amount)
		})
		if err != nil {
			return err
		}
		call.OnSettle(func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "INSERT INTO charge VALUES ($1, $2)", o.ID, string(charge))
			return err
		})
		return nil
	})
	_ = postroom.Run(ctx, in)
}

// The moves of an account take effect in their order; an account whose move is dead
// waits for an operator.
func ExampleInbox_Handle_ordered() {
	var (
		pool *pgxpool.Pool
		nc   *nats.Conn
	)
	in := inbox.New(pool, nc, inbox.Config{})
	in.Handle(inbox.Subscription{Name: "ledger.move", Stream: "BANK", Types: []string{"account.moved"}, Order: inbox.HoldKey},
		postroom.JSON(func(ctx context.Context, tx pgx.Tx, ev postroom.Event, o order) error {
			_, err := tx.Exec(ctx, "UPDATE account SET balance = balance + $2 WHERE id = $1", ev.Key, o.Amount)
			return err
		}))
}

// A webhook's event, which comes from no broker, is accepted once, however often its
// sender repeats it. The answer tells the sender that it need not.
func ExampleInbox_Accept() {
	accept := func(ctx context.Context, in *inbox.Inbox, id string, body []byte) error {
		ev := postroom.NewEvent("payment.settled", nil)
		ev.ID, ev.Source, ev.Data = id, "/provider", body
		_, err := in.Accept(ctx, "payments.settle", ev)
		return err
	}
	_ = accept
}
