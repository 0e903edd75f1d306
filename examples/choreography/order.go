package choreography

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/outbox"
)

// orderService begins and ends each order. An order is pending at first. If its time runs out, it
// is expired until the payment is undone. In the end it is confirmed or cancelled.
//
// Events come in any order. For instance, the time of the order can run out while the stock service
// reserves the goods. So each handler changes the order's row only if the order is in a state in
// which the handler's event still matters. Only then does the handler write an event of its own.
// The lock of the row decides which handler comes first.
type orderService struct {
	pool   *pgxpool.Pool
	outbox *outbox.Outbox
}

func (s *orderService) subscribe(in *inbox.Inbox) {
	in.Handle(on("order.confirm", "STOCK", stockReserved), postroom.JSON(s.confirm))
	in.Handle(on("order.cancel", "PAYMENT", paymentDeclined, paymentRefunded, paymentVoided), postroom.JSON(s.cancel))
	in.Handle(on("order.expire", "ORDER", orderDeadline), postroom.JSON(s.expire))
}

const insertOrder = `INSERT INTO orders (id, customer, sku, quantity, amount, deadline)
	VALUES ($1, $2, $3, $4, $5, now() + $6::interval)
	ON CONFLICT (id) DO NOTHING RETURNING deadline`

// place places an order. It writes the event that begins the process, and a scheduled event for the
// end of the order's time. It reports whether the order is new. A caller that crashed may place the
// order again.
func (s *orderService) place(ctx context.Context, o Order, patience time.Duration) (isNew bool, err error) {
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		var deadline time.Time
		err := tx.QueryRow(ctx, insertOrder, o.ID, o.Customer, o.SKU, o.Quantity, o.Amount, patience).Scan(&deadline)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("insert order: %w", err)
		}
		isNew = true
		placed := postroom.NewEvent(orderPlaced, o)
		placed.Key = o.ID
		late := placed.Follow(orderDeadline, o)
		late.NotBefore = deadline // by the database's clock, which also decides when the event is due
		return s.outbox.Write(ctx, tx, placed, late)
	})
	return isNew, err
}

const endOrder = `UPDATE orders SET state = $2, reason = $3, ended_at = clock_timestamp() WHERE id = $1 AND state = ANY ($4)`

// confirm ends an order that is paid and whose goods are reserved.
func (s *orderService) confirm(ctx context.Context, tx pgx.Tx, ev postroom.Event, o Order) error {
	tag, err := tx.Exec(ctx, endOrder, o.ID, "confirmed", "", []string{"pending"})
	if err != nil {
		return fmt.Errorf("confirm order: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return nil // the order's time ran out first: the stock service gets order.expired, and releases the goods
	}
	return s.outbox.Write(ctx, tx, ev.Follow(orderConfirmed, o))
}

// cancel ends an order for which the customer pays nothing: the payment service declined the
// payment, refunded it or never charged it.
func (s *orderService) cancel(ctx context.Context, tx pgx.Tx, ev postroom.Event, o Order) error {
	tag, err := tx.Exec(ctx, endOrder, o.ID, "cancelled", o.Reason, []string{"pending", "expired"})
	if err != nil {
		return fmt.Errorf("cancel order: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return nil
	}
	return s.outbox.Write(ctx, tx, ev.Follow(orderCancelled, o))
}

const expireOrder = `UPDATE orders SET state = 'expired' WHERE id = $1 AND state = 'pending'`

// expire gives up an order whose time is over. The order ends when the payment service has undone
// its payment.
func (s *orderService) expire(ctx context.Context, tx pgx.Tx, ev postroom.Event, o Order) error {
	tag, err := tx.Exec(ctx, expireOrder, o.ID)
	if err != nil {
		return fmt.Errorf("expire order: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return nil // the order ended in time, as most orders do
	}
	o.Reason = reasonTime
	return s.outbox.Write(ctx, tx, ev.Follow(orderExpired, o))
}
