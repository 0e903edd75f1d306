package postroomtest

import (
	"cmp"
	"context"
	_ "embed" // the statements
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
)

//go:embed sql/held.sql
var heldSQL string

// ApplyExternal accepts one event in an inbox, and runs the inbox with an external handler for it.
// It returns when the handler has returned nil, when the event is dead or discarded, or when the
// next attempt is more than two seconds away. It needs no broker.
//
// sub has the settings of the handler. If sub is empty, the number of attempts is the default of
// [inbox.Subscription], and the next attempt follows after ten milliseconds. The field Written of
// the result has all events that were committed to the log during the call.
//
// If an earlier call with the same event and the same name of the handler finished or discarded the
// event, the outcome is [Duplicate]. If the event is still held for the handler, the inbox
// continues with it. ApplyExternal uses the tables in the schema "postroom".
func ApplyExternal(t testing.TB, pool *pgxpool.Pool, sub inbox.Subscription, h inbox.ExternalHandler, ev postroom.Event) Result {
	t.Helper()
	ev, err := delivered(ev)
	if err != nil {
		t.Fatalf("postroomtest: ApplyExternal: %v", err)
	}
	r, err := applyExternal(t.Context(), pool, sub, h, ev)
	if err != nil {
		t.Fatalf("postroomtest: ApplyExternal: %v", err)
	}
	return r
}

func applyExternal(ctx context.Context, pool *pgxpool.Pool, sub inbox.Subscription, h inbox.ExternalHandler, ev postroom.Event) (Result, error) {
	sub.Name, sub.Workers = cmp.Or(sub.Name, handlerName+".external"), cmp.Or(sub.Workers, 1)
	if sub.Schedule == nil {
		sub.Schedule, sub.Attempts = postroom.Backoff{10 * time.Millisecond}, cmp.Or(sub.Attempts, len(postroom.ExternalBackoff())+1)
	}
	before, err := written(ctx, pool)
	if err != nil {
		return Result{}, fmt.Errorf("read the events of the log: %w", err)
	}
	var last atomic.Pointer[error] // the last error of the handler
	attempts := 0
	in := inbox.New(pool, nil, inbox.Config{IdlePoll: 10 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	in.HandleExternal(sub, func(ctx context.Context, call *inbox.Attempt) error {
		err := errors.New("the handler did not return")
		defer func() {
			attempts++ // the inbox runs one attempt at a time
			last.Store(&err)
		}()
		err = h(ctx, call)
		return err
	})
	accepted, err := in.Accept(ctx, sub.Name, ev)
	if err != nil {
		return Result{}, err
	}
	r := Result{Outcome: Applied}
	if accepted == inbox.Duplicate {
		r.Outcome = Duplicate
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- in.Run(ctx) }()
	found, err := awaitExternal(ctx, pool, sub.Name, ev, ended)
	stop()
	if stopping := <-ended; err == nil {
		err = stopping
	}
	if err != nil {
		return r, err
	}
	r.Attempts = attempts
	if found != nil && (attempts > 0 || found.class != "discarded") { // if the event is discarded without an attempt, an earlier call discarded it
		r.Outcome, r.Class, r.Err, r.RetryAfter = found.outcome(), found.class, errors.New(found.text), found.next
		if err := last.Load(); err != nil {
			r.Err = cmp.Or(*err, r.Err)
		}
	}
	if attempts > 0 && r.Outcome == Duplicate { // the event was held, by an earlier call or another process
		r.Outcome = Applied
	}
	after, err := written(context.WithoutCancel(ctx), pool)
	if err != nil {
		return r, fmt.Errorf("read the events of the log: %w", err)
	}
	r.Written = after[min(len(before), len(after)):]
	return r, nil
}

// heldEvent is the state of an event that is held or discarded.
type heldEvent struct {
	attempts    int
	dead, later bool
	class, text string
	next        time.Duration
	nextSeconds float64
}

// outcome returns the outcome of the last attempt.
func (h heldEvent) outcome() Outcome {
	switch {
	case h.class == "discarded":
		return Discarded
	case h.dead:
		return Dead
	case h.class == "snoozed":
		return Snoozed
	}
	return Retried
}

// awaitExternal waits until an event is finished, dead or discarded, or its next attempt is more
// than two seconds away. It returns nil if the event is finished.
func awaitExternal(ctx context.Context, pool *pgxpool.Pool, handler string, ev postroom.Event, ended chan error) (*heldEvent, error) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		var h heldEvent
		err := pool.QueryRow(ctx, heldSQL, handler, ev.ID, ev.Source).Scan(&h.attempts, &h.dead, &h.class, &h.text, &h.later, &h.nextSeconds)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return nil, nil //nolint:nilnil // no row: the event is finished
		case err != nil:
			return nil, fmt.Errorf("look for the event: %w", err)
		case h.dead:
			return &h, nil
		case h.later:
			h.next = time.Duration(h.nextSeconds * float64(time.Second))
			return &h, nil
		}
		select {
		case err := <-ended:
			ended <- nil
			return nil, fmt.Errorf("the inbox ended before the event was finished: %w", cmp.Or(err, ctx.Err()))
		case <-tick.C:
		}
	}
}
