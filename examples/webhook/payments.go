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
	// source names the endpoint, and so the provider and our account there. A webhook's id is
	// unique within a source. Two providers may use the same id.
	source      = "/webhooks/acme-pay"
	handlerName = "payments.apply" // must never change: the inbox decides a webhook once for each name
	workers     = 8                // how many webhooks the handler applies at the same time

	// The types of the provider's events about payments.
	authorized = "payment.authorized"
	captured   = "payment.captured"
	refunded   = "payment.refunded"
)

// notice is the body of a webhook, in the form that Standard Webhooks recommends.
type notice struct {
	Type      string    `json:"type"`
	Timestamp time.Time `json:"timestamp"`
	Data      struct {
		Payment string `json:"payment"`
		Amount  int64  `json:"amount"` // cents
	} `json:"data"`
}

// newService makes the service: an inbox with a handler that reads no stream, and an endpoint that
// stores the provider's webhooks for that handler. While the provider changes its secret, the old
// and the new secret are valid.
func newService(pool *pgxpool.Pool, log *slog.Logger, secrets ...string) (*inbox.Inbox, http.Handler) {
	in := inbox.New(pool, nil, inbox.Config{Logger: log}) // no broker: the endpoint accepts webhooks
	// If a connection breaks, the events that were claimed over it run again after twice Timeout.
	in.Handle(inbox.Subscription{Name: handlerName, Workers: workers, Timeout: 2 * time.Second}, postroom.JSON(apply))
	mux := http.NewServeMux()
	mux.Handle(source, webhook.NewReceiver(in, webhook.ReceiverConfig{
		Source: source, Handler: handlerName, Scheme: webhook.Standard(secrets...), Logger: log,
		Types: []string{"standard." + authorized, "standard." + captured, "standard." + refunded}, // the endpoint answers 200 to webhooks of other types, and does not store them
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

// apply is the handler. It adds the webhook's amount to the payment.
//
// Providers promise no order, so a capture may come before its authorization. That does not matter
// here: sums are the same in any order, and the database computes the state from the sums
// (sql/tables.sql). The inbox makes sure that each amount is added once. A handler that needs the
// earlier event could wait for it with postroom.RetryAfter, but the earlier event can be days late.
func apply(ctx context.Context, tx pgx.Tx, ev postroom.Event, told notice) error {
	if _, err := tx.Exec(ctx, applySQL, ev.ID, told.Data.Payment, told.Type, told.Data.Amount); err != nil {
		return fmt.Errorf("apply %s: %w", told.Type, err)
	}
	return nil
}
