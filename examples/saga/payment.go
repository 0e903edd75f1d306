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

// subscribePayment adds the handler that charges and refunds. One ordered handler gets both
// commands, so that no refund overtakes its charge.
func subscribePayment(in *inbox.Inbox, out *outbox.Outbox) {
	commands := &postroom.Mux{}
	commands.On("payment.charge", saga.Participant(out, charge))
	commands.On("payment.refund", saga.Participant(out, refund))
	sub := newSubscription(payment, payment, commands.Types())
	sub.Order = inbox.HoldKey
	in.Handle(sub, commands)
}

const (
	takeMoney = `WITH taken AS (
			UPDATE account SET credit = credit - $3 WHERE customer = $2 AND credit >= $3 RETURNING customer
		) INSERT INTO movement (order_id, customer, kind, amount) SELECT $1, customer, 'charge', $3 FROM taken`
	giveMoney = `WITH given AS (
			INSERT INTO movement (order_id, customer, kind, amount)
			SELECT order_id, customer, 'refund', amount FROM movement WHERE order_id = $1 AND kind = 'charge'
			RETURNING customer, amount
		) UPDATE account SET credit = credit + amount FROM given WHERE account.customer = given.customer`
)

// charge takes the money for an order. If the customer's credit is too small, charge declines.
func charge(ctx context.Context, tx pgx.Tx, cmd postroom.Event, o Order) (reply postroom.Event, err error) {
	tag, err := tx.Exec(ctx, takeMoney, o.ID, o.Customer, o.Amount)
	if err != nil {
		return reply, fmt.Errorf("take money: %w", err)
	}
	if tag.RowsAffected() == 0 {
		o.Reason = reasonDeclined
		return cmd.Follow("payment.declined", o), nil
	}
	return cmd.Follow("payment.charged", o), nil
}

// refund gives back the money that was charged for an order. If nothing was charged, refund gives
// back nothing: the saga also sends the command if it does not know whether the charge happened.
func refund(ctx context.Context, tx pgx.Tx, cmd postroom.Event, o Order) (reply postroom.Event, err error) {
	if _, err := tx.Exec(ctx, giveMoney, o.ID); err != nil {
		return reply, fmt.Errorf("give money back: %w", err)
	}
	return cmd.Follow("payment.refunded", o), nil
}
