package main

import (
	"context"
	"encoding/json"
	"net/http"
	"sync/atomic"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/webhook"
)

// source names the endpoint, and with it the provider and our account there: a webhook's id is
// unique within it, and not among providers.
const source = "/webhooks/acme-pay"

// types are what the provider tells of a payment. Others are answered 200 and not stored.
var types = []string{"standard." + authorized, "standard." + captured, "standard." + refunded}

// config is the endpoint's. Its secrets are two while the provider exchanges them.
func config(secrets ...string) webhook.Config {
	return webhook.Config{
		Source: source, Handler: handlerName, Scheme: webhook.Standard(secrets...), Types: types,
		Key: func(ev postroom.Event) string {
			var told notice
			_ = json.Unmarshal(ev.Data, &told) // the handler reports what is no JSON
			return told.Data.Payment
		},
	}
}

// counts are the answers of the endpoint.
type counts struct{ stored, duplicates, conflicts, refused, unavailable atomic.Int64 }

// countingInbox counts what the inbox did.
type countingInbox struct {
	*inbox.Inbox
	*counts
}

func (c countingInbox) AcceptAll(ctx context.Context, all ...inbox.Acceptance) ([]inbox.AcceptResult, error) {
	results, err := c.Inbox.AcceptAll(ctx, all...)
	for _, r := range results {
		map[inbox.AcceptResult]*atomic.Int64{inbox.Stored: &c.stored, inbox.Duplicate: &c.duplicates, inbox.Conflict: &c.conflicts}[r].Add(1)
	}
	return results, err
}

// countingWriter counts the answers 401 and 503.
type countingWriter struct {
	http.ResponseWriter
	*counts
}

func (w countingWriter) WriteHeader(status int) {
	switch status {
	case http.StatusUnauthorized:
		w.refused.Add(1)
	case http.StatusServiceUnavailable:
		w.unavailable.Add(1)
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w countingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
