package choreography

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/outbox"
)

// paymentService charges customers for orders, and refunds charges.
//
// An event order.expired can overtake an event order.placed that waits for its next attempt,
// although both are in the order service's stream. So the payment service records that an order is
// closed, and never charges a closed order.
type paymentService struct{ outbox *outbox.Outbox }

func (s *paymentService) subscribe(in *inbox.Inbox) {
	in.Handle(on("payment.charge", "ORDER", orderPlaced), postroom.JSON(s.charge))
	in.Handle(on("payment.refund-short", "STOCK", stockShort), postroom.JSON(s.refund))
	in.Handle(on("payment.refund-expired", "ORDER", orderExpired), postroom.JSON(s.refund))
}

const (
	takeMoney = `UPDATE account SET credit = credit - $2 WHERE customer = $1 AND credit >= $2`
	giveMoney = `UPDATE account SET credit = credit + $2 WHERE customer = $1`
	noteMoney = `INSERT INTO movement (order_id, customer, kind, amount) VALUES ($1, $2, $3, $4)`
	sumMoney  = `SELECT coalesce(sum(amount), 0)::bigint FROM movement WHERE order_id = $1 AND kind = 'charge'`
)

// charge takes the money for an order. If the customer's credit is short, it declines.
func (s *paymentService) charge(ctx context.Context, tx pgx.Tx, ev postroom.Event, o Order) error {
	if closed, err := enter(ctx, tx, o.ID); closed || err != nil {
		return err
	}
	tag, err := tx.Exec(ctx, takeMoney, o.Customer, o.Amount)
	if err != nil {
		return fmt.Errorf("take money: %w", err)
	}
	if tag.RowsAffected() == 0 {
		o.Reason = reasonDeclined
		return s.close(ctx, tx, ev.Follow(paymentDeclined, o))
	}
	if _, err := tx.Exec(ctx, noteMoney, o.ID, o.Customer, "charge", o.Amount); err != nil {
		return fmt.Errorf("note charge: %w", err)
	}
	return s.outbox.Write(ctx, tx, ev.Follow(paymentCharged, o))
}

// refund undoes an order's payment, once: for the first event that asks for a refund.
func (s *paymentService) refund(ctx context.Context, tx pgx.Tx, ev postroom.Event, o Order) error {
	if closed, err := enter(ctx, tx, o.ID); closed || err != nil {
		return err
	}
	var charged int64
	if err := tx.QueryRow(ctx, sumMoney, o.ID).Scan(&charged); err != nil {
		return fmt.Errorf("look up charge: %w", err)
	}
	if charged == 0 {
		return s.close(ctx, tx, ev.Follow(paymentVoided, o))
	}
	if _, err := tx.Exec(ctx, giveMoney, o.Customer, charged); err != nil {
		return fmt.Errorf("give money back: %w", err)
	}
	if _, err := tx.Exec(ctx, noteMoney, o.ID, o.Customer, "refund", charged); err != nil {
		return fmt.Errorf("note refund: %w", err)
	}
	return s.close(ctx, tx, ev.Follow(paymentRefunded, o))
}

// close marks an order as closed, and writes the event that says why.
func (s *paymentService) close(ctx context.Context, tx pgx.Tx, why postroom.Event) error {
	if _, err := tx.Exec(ctx, closeOrder, why.Key); err != nil {
		return fmt.Errorf("close order: %w", err)
	}
	return s.outbox.Write(ctx, tx, why)
}

// When the payment service or the stock service gets an event of an order, it inserts a row for the
// order, or locks the row that exists already. The lock keeps two handlers from working on one
// order at the same time.
const (
	enterOrder = `INSERT INTO seen AS s (order_id) VALUES ($1)
		ON CONFLICT (order_id) DO UPDATE SET order_id = s.order_id RETURNING closed`
	closeOrder = `UPDATE seen SET closed = true WHERE order_id = $1`
)

// enter locks an order's row until the transaction ends, and reports whether the order is closed.
func enter(ctx context.Context, tx pgx.Tx, order string) (closed bool, err error) {
	if err := tx.QueryRow(ctx, enterOrder, order).Scan(&closed); err != nil {
		return false, fmt.Errorf("look up order: %w", err)
	}
	return closed, nil
}
