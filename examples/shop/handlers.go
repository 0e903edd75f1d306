package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/outbox"
)

// Event types. Their names are also the subjects of the stream. Events of one order stay in order.
var (
	orderPlaced  = postroom.NewType("order.placed", keyOf)
	orderCharged = postroom.NewType("order.charged", keyOf)
)

func keyOf(o Order) string { return o.ID }

// Handlers. A name must never change, because the inbox decides an event once for each name.
const (
	billingCharge  = "billing.charge"
	analyticsCount = "analytics.count"
)

// Order is the data of the events of an order.
type Order struct {
	ID       string `json:"id"`
	Customer int    `json:"customer"`
	Amount   int64  `json:"amount"` // cents
}

// biller charges orders, and writes an event about each charge.
type biller struct{ outbox *outbox.Outbox }

const insertCharge = "INSERT INTO charge (order_id, amount) VALUES ($1, $2)"

// charge is billing's handler. It makes a charge for each order, and writes an event about the
// charge. The inbox's row, the charge and the event are committed together, or none of the three
// is.
func (b *biller) charge(ctx context.Context, tx pgx.Tx, ev postroom.Event, o Order) error {
	if _, err := tx.Exec(ctx, insertCharge, o.ID, o.Amount); err != nil {
		return fmt.Errorf("insert charge: %w", err)
	}
	return b.outbox.Write(ctx, tx, orderCharged.Follow(ev, o))
}

const addToTotal = `INSERT INTO customer_total AS t (customer, orders, amount) VALUES ($1, 1, $2)
	ON CONFLICT (customer) DO UPDATE SET orders = t.orders + 1, amount = t.amount + excluded.amount`

// count is analytics' handler. An addition is not idempotent: if it took effect twice for an event,
// the total would be wrong for ever.
func count(ctx context.Context, tx pgx.Tx, _ postroom.Event, o Order) error {
	if _, err := tx.Exec(ctx, addToTotal, o.Customer, o.Amount); err != nil {
		return fmt.Errorf("add to total: %w", err)
	}
	return nil
}
