package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
)

const (
	// source names the endpoint, and with it the provider and our account there:
	// a webhook's id is unique within it, and not among providers.
	source = "/webhooks/acme-pay"

	maxBody = 64 << 10

	// acceptPatience is how long a provider is kept waiting for the database. They
	// hang up after 5 to 30 seconds, and count that as a failure.
	acceptPatience = 3 * time.Second
)

// endpoint takes webhooks over HTTP: it verifies, stores and answers. What a
// webhook means is the handler's business, which runs later and elsewhere, so
// that the provider never waits for it and never sees it fail.
type endpoint struct {
	verifier *verifier
	inbox    *inbox.Inbox
	log      *slog.Logger

	stored, duplicates, conflicts, unverified, unavailable atomic.Int64
}

func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		http.Error(w, "body is too large", http.StatusRequestEntityTooLarge)
		return
	case err != nil:
		http.Error(w, "body could not be read", http.StatusBadRequest)
		return
	}
	id, err := e.verifier.verify(r.Header, body) // before anything looks into the body
	if err != nil {
		e.unverified.Add(1)
		e.log.InfoContext(r.Context(), "webhook refused", "reason", err)
		http.Error(w, "webhook_verification_failed", http.StatusUnauthorized)
		return
	}
	ev, err := eventOf(id, body)
	if err != nil {
		http.Error(w, "body is no webhook", http.StatusBadRequest)
		return
	}
	if !isKnown(ev.Type) { // providers add types; refused, they would send them for days
		w.WriteHeader(http.StatusOK)
		return
	}
	e.accept(w, r, ev)
}

// eventOf makes a webhook an event. Its data are the bytes that were signed: that
// is what tells a repetition from another webhook under the same id.
func eventOf(id string, body []byte) (postroom.Event, error) {
	var hook webhook
	if err := json.Unmarshal(body, &hook); err != nil {
		return postroom.Event{}, err
	}
	ev := postroom.Event{ID: id, Source: source, Type: hook.Type, Key: hook.Data.Payment, Time: hook.Timestamp, Data: body}
	return ev, ev.Validate()
}

// accept stores an event and answers for it.
//
// A conflict, which is another body under an id that was taken before, is
// answered with 200 like a duplicate: the provider cannot mend it, and would only
// repeat it for days and switch the endpoint off in the end. It is not applied
// and not lost: it is held as dead, of class conflict, where an operator sees it.
func (e *endpoint) accept(w http.ResponseWriter, r *http.Request, ev postroom.Event) {
	ctx, cancel := context.WithTimeout(r.Context(), acceptPatience)
	defer cancel()
	acceptance, err := e.inbox.Accept(ctx, handlerName, ev)
	if err != nil {
		// Never 2xx for what is not committed. 503 has the provider send it again.
		e.unavailable.Add(1)
		e.log.InfoContext(ctx, "webhook could not be stored; the provider will send it again", "id", ev.ID, "error", err)
		w.Header().Set("Retry-After", "1")
		http.Error(w, "webhook could not be stored", http.StatusServiceUnavailable)
		return
	}
	switch acceptance {
	case inbox.Stored:
		e.stored.Add(1)
	case inbox.Duplicate:
		e.duplicates.Add(1)
	case inbox.Conflict:
		e.conflicts.Add(1)
		e.log.InfoContext(ctx, "webhook has another body than the one before under its id; it is held as a conflict", "id", ev.ID)
	}
	w.WriteHeader(http.StatusOK)
}
