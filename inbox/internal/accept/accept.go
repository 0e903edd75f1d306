// Package accept checks events that come without a broker, derives their identities, and stores
// them in the database.
package accept

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/inbox/internal/ledger"
	"github.com/postroom/postroom/internal/telemetry"
)

// Errors for a handler that cannot accept events.
var (
	ErrUnknownHandler = errors.New("inbox: no such handler")
	ErrOrdered        = errors.New("inbox: an ordered handler takes its events from its stream only")
)

// Handler says which events a handler accepts, and how it recognises them.
type Handler struct {
	Types     func() []string // returns nil if the handler accepts all types
	Ordered   bool
	DedupeKey func(postroom.Event) string // nil if an event's source and id are its key
	Timeout   time.Duration               // the time limit of DedupeKey
}

// Event is an event to accept for a handler.
type Event struct {
	Handler       string
	Event         postroom.Event
	IgnoreChanged bool // if true, an event with the same identity and other content is not a conflict
	IgnoreType    bool // if true, the type does not belong to the content
}

// Acceptor accepts events. Its Handlers do not change while it accepts.
type Acceptor struct {
	Store    *ledger.Accepts
	Wake     func() // tells the workers that events may be due
	Handlers map[string]Handler
}

// commitsAfter says how long after AcceptTx the workers look for the accepted events: the
// transaction may have committed by then.
var commitsAfter = []time.Duration{5 * time.Millisecond, 25 * time.Millisecond, 100 * time.Millisecond}

// Accept stores events, all of them or none. If tx is nil, it stores them in a transaction of its
// own, and holds conflicts in a second one: see [delivery.ErrConflictNotHeld].
func (a *Acceptor) Accept(ctx context.Context, tx pgx.Tx, all []Event) ([]delivery.AcceptResult, error) {
	entries, err := a.check(all, telemetry.TraceOf(ctx))
	if err != nil {
		return nil, err
	}
	if tx != nil {
		err = a.Store.StoreIn(ctx, tx, entries)
	} else {
		err = a.Store.Store(ctx, entries)
	}
	//guard:a-conflict-that-is-not-held-delays-no-other false
	if errors.Is(err, delivery.ErrConflictNotHeld) {
		a.Wake() // because the other events are stored
	}
	switch {
	case err != nil && len(entries) == 1:
		ev := entries[0].D.Event
		return nil, &postroom.EventError{Op: "accept", ID: ev.ID, Type: ev.Type, Err: err}
	case err != nil:
		return nil, fmt.Errorf("inbox: accept %d events: %w", len(entries), err)
	case tx == nil:
		//guard:accept-wakes-the-runner remove
		a.Wake()
	default:
		for _, after := range commitsAfter { // pgx does not tell when a transaction commits
			time.AfterFunc(after, a.Wake)
		}
	}
	results := make([]delivery.AcceptResult, len(entries))
	for i, e := range entries {
		results[i] = e.Result
	}
	return results, nil
}

// check checks events and derives their identities. It returns all faults.
func (a *Acceptor) check(all []Event, trace telemetry.Trace) ([]*delivery.Acceptance, error) {
	entries := make([]*delivery.Acceptance, len(all))
	var faults []error
	for i, e := range all {
		d, err := a.identify(e, trace)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		entries[i] = &delivery.Acceptance{Handler: e.Handler, D: d, IgnoreChanged: e.IgnoreChanged}
	}
	if len(faults) == 1 {
		return nil, faults[0]
	}
	return entries, errors.Join(faults...)
}

// identify checks one event and derives its identity.
func (a *Acceptor) identify(e Event, trace telemetry.Trace) (*delivery.Delivery, error) {
	h, known := a.Handlers[e.Handler]
	switch {
	case !known:
		return nil, fmt.Errorf("%w: %q", ErrUnknownHandler, e.Handler)
	case h.Ordered:
		return nil, fmt.Errorf("%w: %q", ErrOrdered, e.Handler)
	}
	ev := e.Event
	if ev.ID == "" {
		id, err := uuid.NewV7()
		if err != nil {
			return nil, fmt.Errorf("inbox: make an id: %w", err)
		}
		ev.ID = id.String()
	}
	ev.Subject, ev.ContentType = cmp.Or(ev.Subject, ev.Type), cmp.Or(ev.ContentType, "application/json")
	if ev.TraceParent == "" {
		ev.TraceParent, ev.TraceState = trace.Parent, trace.State
	}
	ev.LoggedAt = time.Time{} // the database sets this time
	fault := func(err error) error {
		return &postroom.EventError{Op: "accept", ID: ev.ID, Type: ev.Type, Err: err}
	}
	if err := ev.ValidateAccepted(); err != nil {
		return nil, fault(err)
	}
	d := &delivery.Delivery{Task: delivery.Task{Event: ev, Attempt: 1}}
	d.Identify(h.DedupeKey, h.Timeout)
	//guard:a-type-that-is-not-signed-is-not-compared 2 false
	if e.IgnoreType && d.Digest != nil {
		d.Digest = delivery.Digest(postroom.Event{Data: ev.Data})
	}
	if d.Fault != nil {
		return nil, fault(errors.New(d.Fault.Text))
	}
	if types := h.Types(); len(types) > 0 && !(delivery.Selection{Types: types}).Takes(ev) {
		return nil, fault(postroom.ErrUnknownType)
	}
	return d, nil
}
