package main

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/saga"
)

// orderService takes orders. For each order it runs a saga: the order is paid, its goods are
// reserved, and the order is confirmed. If a step fails or takes too long, the steps before it are
// undone, and the order is cancelled.
type orderService struct {
	pool     *pgxpool.Pool
	checkout *saga.Saga[Order]
}

// checkout returns the saga of an order. The parameter patience limits the time of the step payment
// and the time of the step stock.
func checkout(patience time.Duration) saga.Definition[Order] {
	return saga.Definition[Order]{
		Name: "order.checkout", Version: 1,
		Steps: []saga.Step[Order]{
			{Name: "open", Undo: saga.Local(end("cancelled", reasonTime))},
			{
				Name: "payment", Within: patience,
				Do: saga.Send("payment.charge", whole), Done: saga.On("payment.charged", nothing), Failed: saga.On("payment.declined", refused),
				Undo: saga.Send("payment.refund", whole), Undone: saga.On("payment.refunded", nothing),
			},
			{
				Name: "stock", Within: patience,
				Do: saga.Send("stock.reserve", whole), Done: saga.On("stock.reserved", nothing), Failed: saga.On("stock.short", refused),
				Undo: saga.Send("stock.release", whole), Undone: saga.On("stock.released", nothing),
			},
			{Name: "confirm", Do: saga.Local(end("confirmed", ""))},
		},
		Ended: saga.End[Order]{Done: saga.Send("order.confirmed", whole), Undone: saga.Send("order.cancelled", whole)},
	}
}

func whole(o *Order) Order         { return *o }
func nothing(*Order, struct{})     {}
func refused(o *Order, said Order) { o.Reason = said.Reason }

// subscribe adds a handler for each service's stream. The handler reads the events for which the
// saga waits.
func (s *orderService) subscribe(in *inbox.Inbox) {
	for _, service := range services {
		in.Handle(newSubscription("checkout."+service, service, s.checkout.Types()), s.checkout)
	}
}

const insertOrder = `INSERT INTO orders (id, customer, sku, quantity, amount) VALUES ($1, $2, $3, $4, $5) ON CONFLICT (id) DO NOTHING`

// place places an order and begins its saga. It reports whether the order is new. The customers may
// place an order again, because after a crash they do not know whether they placed it.
func (s *orderService) place(ctx context.Context, o Order) (isNew bool, err error) {
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, insertOrder, o.ID, o.Customer, o.SKU, o.Quantity, o.Amount)
		if err != nil {
			return fmt.Errorf("insert order: %w", err)
		}
		isNew = tag.RowsAffected() > 0
		return s.checkout.Begin(ctx, tx, o.ID, o)
	})
	return isNew, err
}

const endOrder = `UPDATE orders SET state = $2, reason = $3, ended_at = clock_timestamp() WHERE id = $1`

// end returns a function that ends an order. An order that has a reason keeps it.
func end(state, reason string) func(context.Context, pgx.Tx, *Order) error {
	return func(ctx context.Context, tx pgx.Tx, o *Order) error {
		o.Reason = cmp.Or(o.Reason, reason)
		_, err := tx.Exec(ctx, endOrder, o.ID, state, o.Reason)
		return err
	}
}
