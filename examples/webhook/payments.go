package main

import (
	"context"
	_ "embed" // the statement
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
)

// handlerName is for ever: webhooks are decided once under it.
const handlerName = "payments.apply"

// What the provider tells of a payment.
const (
	authorized = "payment.authorized"
	captured   = "payment.captured"
	refunded   = "payment.refunded"
)

// notice is the body, in the form that Standard Webhooks recommends.
type notice struct {
	Type      string    `json:"type"`
	Timestamp time.Time `json:"timestamp"`
	Data      struct {
		Payment string `json:"payment"`
		Amount  int64  `json:"amount"` // cents
	} `json:"data"`
}

//go:embed sql/apply.sql
var applySQL string

// apply is the handler: it adds the webhook's amount to its payment.
//
// Providers promise no order, so a capture may come before its authorization.
// The tables are made so that this does not matter: sums are the same whichever
// summand comes first, and the state follows from the sums (sql/tables.sql).
// That a sum has each summand once is what the inbox is for.
//
// The other way would be to return postroom.RetryAfter until the predecessor is
// there. It is the worse one here: a webhook would be tried again and again, and
// be dead after Subscription.Attempts, because another one is late, which with a
// provider's retries can be by days. Take it where a step cannot be done at all
// without the one before.
func apply(ctx context.Context, tx pgx.Tx, ev postroom.Event, told notice) error {
	if _, err := tx.Exec(ctx, applySQL, ev.ID, told.Data.Payment, told.Type, told.Data.Amount); err != nil {
		return fmt.Errorf("apply %s: %w", told.Type, err)
	}
	return nil
}
