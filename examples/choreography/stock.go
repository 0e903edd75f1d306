package choreography

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/outbox"
)

// stockService reserves goods and releases them. Some goods come from a supplier who, in this
// example, never answers. So the time of orders for these goods runs out.
type stockService struct{ outbox *outbox.Outbox }

func (s *stockService) subscribe(in *inbox.Inbox) {
	in.Handle(on("stock.reserve", "PAYMENT", paymentCharged), postroom.JSON(s.reserve))
	in.Handle(on("stock.release", "ORDER", orderExpired), postroom.JSON(s.release))
}

const (
	askSupplier = `INSERT INTO supplier_request (order_id, sku, quantity)
		SELECT $1, sku, $3 FROM item WHERE sku = $2 AND supplied`
	takeGoods = `UPDATE item SET available = available - $2, lowest = least(lowest, available - $2) WHERE sku = $1 AND available >= $2`
	giveGoods = `UPDATE item SET available = available + $2 WHERE sku = $1`
	noteGoods = `INSERT INTO movement (order_id, sku, quantity) VALUES ($1, $2, $3)`
	sumGoods  = `SELECT coalesce(sum(quantity), 0)::bigint FROM movement WHERE order_id = $1`
)

// reserve reserves the goods of an order that is paid.
func (s *stockService) reserve(ctx context.Context, tx pgx.Tx, ev postroom.Event, o Order) error {
	if closed, err := enter(ctx, tx, o.ID); closed || err != nil {
		return err
	}
	tag, err := tx.Exec(ctx, askSupplier, o.ID, o.SKU, o.Quantity)
	if err != nil {
		return fmt.Errorf("ask supplier: %w", err)
	}
	if tag.RowsAffected() > 0 {
		return nil // a supplier's answer would be another event
	}
	if tag, err = tx.Exec(ctx, takeGoods, o.SKU, o.Quantity); err != nil {
		return fmt.Errorf("take goods: %w", err)
	}
	if tag.RowsAffected() == 0 {
		o.Reason = reasonStock
		if err := s.close(ctx, tx, o); err != nil {
			return err
		}
		return s.outbox.Write(ctx, tx, ev.Follow(stockShort, o))
	}
	if _, err := tx.Exec(ctx, noteGoods, o.ID, o.SKU, o.Quantity); err != nil {
		return fmt.Errorf("note goods: %w", err)
	}
	return s.outbox.Write(ctx, tx, ev.Follow(stockReserved, o))
}

// release gives back the goods of an order that the order service gave up. It also prevents a later
// reservation for the order.
func (s *stockService) release(ctx context.Context, tx pgx.Tx, ev postroom.Event, o Order) error {
	if closed, err := enter(ctx, tx, o.ID); closed || err != nil {
		return err
	}
	if err := s.close(ctx, tx, o); err != nil {
		return err
	}
	var reserved int64
	if err := tx.QueryRow(ctx, sumGoods, o.ID).Scan(&reserved); err != nil {
		return fmt.Errorf("look up goods: %w", err)
	}
	if reserved == 0 {
		return nil
	}
	if _, err := tx.Exec(ctx, giveGoods, o.SKU, reserved); err != nil {
		return fmt.Errorf("give goods back: %w", err)
	}
	if _, err := tx.Exec(ctx, noteGoods, o.ID, o.SKU, -reserved); err != nil {
		return fmt.Errorf("note goods: %w", err)
	}
	return s.outbox.Write(ctx, tx, ev.Follow(stockReleased, o))
}

func (s *stockService) close(ctx context.Context, tx pgx.Tx, o Order) error {
	if _, err := tx.Exec(ctx, closeOrder, o.ID); err != nil {
		return fmt.Errorf("close order: %w", err)
	}
	return nil
}
