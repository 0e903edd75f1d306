package main

import (
	"context"
	_ "embed" // the statement
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/webhook"
)

const (
	// source names the endpoint, and with it the provider and our account there. A webhook's
	// id is unique within it, but not among providers.
	source      = "/webhooks/acme-pay"
	handlerName = "payments.apply" // it must never change: webhooks are decided once under it
	workers     = 8                // how many webhooks are applied at the same time

	// The provider's types of events of a payment.
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

// newService puts the service together: an inbox with a handler that reads no stream, and an
// endpoint that stores the provider's webhooks for it. The provider has two secrets while it
// changes them.
func newService(pool *pgxpool.Pool, log *slog.Logger, secrets ...string) (*inbox.Inbox, http.Handler) {
	in := inbox.New(pool, nil, inbox.Config{Logger: log}) // no broker: webhooks are accepted
	// If a connection breaks, its claimed events run again after two timeouts.
	in.Handle(inbox.Subscription{Name: handlerName, Workers: workers, Timeout: 2 * time.Second}, postroom.JSON(apply))
	mux := http.NewServeMux()
	mux.Handle(source, webhook.New(in, webhook.Config{
		Source: source, Handler: handlerName, Scheme: webhook.Standard(secrets...), Logger: log,
		Types: []string{"standard." + authorized, "standard." + captured, "standard." + refunded}, // others are answered 200 and not stored
		Key: func(ev postroom.Event) string {
			var told notice
			_ = json.Unmarshal(ev.Data, &told) // the handler reports a body that is not JSON
			return told.Data.Payment
		},
	}))
	return in, mux
}

//go:embed sql/apply.sql
var applySQL string

// apply is the handler: it adds the webhook's amount to its payment.
//
// Providers promise no order, so a capture may come before its authorization. That does not matter
// here: sums are the same in any order, and the state follows from them (sql/tables.sql). The inbox
// makes sure that each amount is added once. A handler that cannot work without the earlier event
// could wait for it with postroom.RetryAfter, but that event can be days late.
func apply(ctx context.Context, tx pgx.Tx, ev postroom.Event, told notice) error {
	if _, err := tx.Exec(ctx, applySQL, ev.ID, told.Data.Payment, told.Type, told.Data.Amount); err != nil {
		return fmt.Errorf("apply %s: %w", told.Type, err)
	}
	return nil
}
