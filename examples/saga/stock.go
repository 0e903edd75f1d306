package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/outbox"
	"github.com/postroom/postroom/saga"
)

// subscribeStock adds the handler that reserves goods and releases them. Some goods come from a
// supplier who, in this example, never answers. So orders for these goods run out of time.
func subscribeStock(in *inbox.Inbox, out *outbox.Outbox) {
	commands := &postroom.Mux{}
	commands.On("stock.reserve", saga.Participant(out, reserve))
	commands.On("stock.release", saga.Participant(out, release))
	sub := newSubscription(stock, stock, commands.Types())
	sub.Order = inbox.HoldKey
	in.Handle(sub, commands)
}

const (
	askSupplier = `INSERT INTO supplier_request (order_id, sku, quantity)
		SELECT $1, sku, $3 FROM item WHERE sku = $2 AND supplied`
	takeGoods = `WITH taken AS (
			UPDATE item SET available = available - $3, lowest = least(lowest, available - $3) WHERE sku = $2 AND available >= $3 RETURNING sku
		) INSERT INTO movement (order_id, sku, quantity) SELECT $1, sku, $3 FROM taken`
	giveGoods = `WITH given AS (
			INSERT INTO movement (order_id, sku, quantity)
			SELECT order_id, sku, -quantity FROM movement WHERE order_id = $1
			RETURNING sku, quantity
		) UPDATE item SET available = available - quantity FROM given WHERE item.sku = given.sku`
)

// reserve reserves the goods of an order that is paid.
func reserve(ctx context.Context, tx pgx.Tx, cmd postroom.Event, o Order) (reply postroom.Event, err error) {
	tag, err := tx.Exec(ctx, askSupplier, o.ID, o.SKU, o.Quantity)
	if err != nil {
		return reply, fmt.Errorf("ask supplier: %w", err)
	}
	if tag.RowsAffected() > 0 {
		return saga.NoReply, nil // the reply would come later, with saga.Answer
	}
	if tag, err = tx.Exec(ctx, takeGoods, o.ID, o.SKU, o.Quantity); err != nil {
		return reply, fmt.Errorf("take goods: %w", err)
	}
	if tag.RowsAffected() == 0 {
		o.Reason = reasonStock
		return cmd.Follow("stock.short", o), nil
	}
	return cmd.Follow("stock.reserved", o), nil
}

// release gives back the reserved goods of an order. The saga also sends this command if it does
// not know whether the goods were reserved. If no goods were reserved, release gives back nothing.
func release(ctx context.Context, tx pgx.Tx, cmd postroom.Event, o Order) (reply postroom.Event, err error) {
	if _, err := tx.Exec(ctx, giveGoods, o.ID); err != nil {
		return reply, fmt.Errorf("give goods back: %w", err)
	}
	return cmd.Follow("stock.released", o), nil
}
