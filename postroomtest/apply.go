package postroomtest

import (
	"cmp"
	"context"
	"crypto/sha256"
	_ "embed" // the statements
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/guard"
	"github.com/postroom/postroom/internal/identity"
	"github.com/postroom/postroom/internal/lent"
)

//go:embed sql/decide.sql
var decideSQL string

//go:embed sql/ended.sql
var endedSQL string

// Outcome is the outcome of a delivery.
type Outcome string

// The outcomes of a delivery.
const (
	// Applied means that the handler returned nil, and its changes are committed.
	Applied Outcome = "applied"

	// Duplicate means that the event was applied before. The handler was not called.
	Duplicate Outcome = "duplicate"

	// Retried means that the handler failed, and all its changes are rolled back. An inbox would
	// call the handler again later.
	Retried Outcome = "retried"

	// Snoozed is like Retried, but the attempt does not count: see [postroom.Snooze].
	Snoozed Outcome = "snoozed"

	// Dead means that the handler failed. An inbox would call the handler again only if an operator
	// orders a replay. The changes are rolled back, unless the handler committed them itself.
	Dead Outcome = "dead"

	// Discarded means that the handler discarded the event: see [postroom.Discard].
	Discarded Outcome = "discarded"
)

// Result is the result of a delivery.
type Result struct {
	Outcome Outcome

	// Err is the error of the handler, or the reason why its transaction did not commit. It is nil
	// if the event was applied, now or before.
	Err error

	// Class is the class that an operator would see for the failure: permanent, panic, timeout,
	// error, the SQLSTATE of an error of the database, and others. If there was no failure, it is
	// empty.
	Class string

	// RetryAfter is the time that the handler requested with [postroom.RetryAfter] or
	// [postroom.Snooze], or zero. From [ApplyExternal] it is the time until the next attempt.
	RetryAfter time.Duration

	// Attempts is the number of calls of the handler.
	Attempts int

	// Written are the events that the handler wrote. [Apply] commits them if the outcome is
	// Applied. Otherwise Apply rolls them back, and Written still has them. But Written is empty if
	// a failed statement aborted the transaction, or if the handler ended it.
	Written []postroom.Event
}

// Apply delivers an event once to a handler, as an inbox does, in one transaction. The transaction
// first records that the handler has decided the event. If the handler returns nil, Apply commits
// the transaction. Otherwise Apply rolls the transaction back. If the event was applied before, the
// outcome is [Duplicate].
//
// If the event has no ID or no Source, Apply sets one. A panic of the handler is a failure, as in
// an inbox. A call of t.FailNow in the handler ends the test. Apply uses the tables in the schema
// "postroom".
func Apply(t testing.TB, pool *pgxpool.Pool, h postroom.Handler, ev postroom.Event) Result {
	t.Helper()
	ev, err := delivered(ev)
	if err != nil {
		t.Fatalf("postroomtest: Apply: %v", err)
	}
	r := deliver(t.Context(), pool, h, ev, written)
	var broken *brokenError
	if errors.As(r.Err, &broken) {
		t.Fatalf("postroomtest: Apply: %v", broken.err)
	}
	return r
}

// Deliver is [Apply] for the Run of a [Scenario]. It returns nil if the event was applied, now or
// before. Otherwise it returns the error, so that Run can deliver the event again.
func Deliver(ctx context.Context, pool *pgxpool.Pool, h postroom.Handler, ev postroom.Event) error {
	ev, err := delivered(ev)
	if err != nil {
		return err
	}
	return deliver(ctx, pool, h, ev, nil).Err
}

// delivered sets the empty fields that a handler expects, and validates the event.
func delivered(ev postroom.Event) (postroom.Event, error) {
	if ev.ID == "" {
		id, err := uuid.NewV7()
		if err != nil {
			return ev, fmt.Errorf("make an id: %w", err)
		}
		ev.ID = id.String()
	}
	ev.Source, ev.Subject, ev.ContentType = cmp.Or(ev.Source, "/test"), cmp.Or(ev.Subject, ev.Type), cmp.Or(ev.ContentType, "application/json")
	if ev.LoggedAt.IsZero() {
		ev.LoggedAt = time.Now()
	}
	if ev.Time.IsZero() {
		ev.Time = ev.LoggedAt
	}
	if err := ev.ValidateAccepted(); err != nil {
		return ev, fmt.Errorf("the event cannot be delivered: %w", err)
	}
	return ev, nil
}

// handlerName is the name of all handlers that this package calls.
const handlerName = "postroomtest"

// brokenError says that this package could not make a delivery. It says nothing about the handler.
type brokenError struct{ err error }

func (e *brokenError) Error() string { return e.err.Error() }
func (e *brokenError) Unwrap() error { return e.err }

// deliver makes one delivery. If the function look is not nil, deliver calls it to read the events
// that the handler wrote.
func deliver(ctx context.Context, pool *pgxpool.Pool, h postroom.Handler, ev postroom.Event,
	look func(context.Context, Querier) ([]postroom.Event, error),
) (r Result) {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return failed(&brokenError{fmt.Errorf("begin: %w", err)}, r)
	}
	tx, err := conn.Begin(ctx)
	if err != nil {
		conn.Release()
		return failed(&brokenError{fmt.Errorf("begin: %w", err)}, r)
	}
	loan := lent.New(tx, inbox.ErrTxOwned, nil)
	used := false  // a goroutine of the handler still uses the transaction
	defer func() { // even if the handler ended this goroutine
		if used || !loan.Back(lent.Grace(0)) {
			lent.Cut(conn)
			return
		}
		_ = tx.Rollback(context.WithoutCancel(ctx)) // this fails if the transaction is committed
		conn.Release()
	}()
	digest := sha256.Sum256(append([]byte(ev.Type+"\x00"), ev.Data...))
	key := identity.DedupeKey(ev.Source, ev.ID)
	var id string // the transaction's id
	switch err := tx.QueryRow(ctx, decideSQL, handlerName, key, digest[:16]).Scan(&id); {
	case errors.Is(err, pgx.ErrNoRows):
		return Result{Outcome: Duplicate}
	case err != nil:
		return failed(&brokenError{fmt.Errorf("record that the event is handled: %w", err)}, r)
	}
	r.Attempts = 1
	err = guard.Call(func() error { return h.Handle(ctx, loan, ev) })
	if used = !loan.Back(lent.Grace(0)); used {
		return failed(errors.Join(lent.ErrStillUsed, err), r)
	}
	if fault := ended(ctx, tx, id, look != nil); fault != nil {
		return failed(errors.Join(fault, err), r)
	}
	if err == nil {
		err = overlooked(tx)
	}
	if look != nil && tx.Conn().PgConn().TxStatus() == 'T' {
		var reading error
		if r.Written, reading = look(ctx, tx); reading != nil && err == nil {
			err = fmt.Errorf("read the events that the handler wrote: %w", reading)
		}
	}
	if err != nil {
		return failed(err, r)
	}
	if err := tx.Commit(ctx); err != nil {
		return failed(fmt.Errorf("commit: %w", err), r)
	}
	r.Outcome = Applied
	return r
}

var (
	errOverlooked = errors.New("a statement failed and the handler did not return its error")
	errRolledBack = errors.New("the handler rolled back its transaction with its own statement")
	errCommitted  = errors.New("the handler committed its transaction with its own statement, so another attempt would repeat its changes")
)

// ended returns an error if the handler ended the transaction with the id. If the handler then
// began another one, the connection's status is 'T' (in a transaction) too, and only a query shows
// the difference. If the status is 'T', the query is sent only if the parameter sure is true.
// [Deliver] sets it to false, because [Crash] would cut the connection at this query too.
func ended(ctx context.Context, tx pgx.Tx, id string, sure bool) error {
	conn := tx.Conn().PgConn()
	if conn.IsClosed() || conn.TxStatus() == 'E' || conn.TxStatus() == 'T' && !sure {
		return nil // the function overlooked reports a closed connection and the status 'E'
	}
	var runs, committed bool
	switch err := tx.Conn().QueryRow(ctx, endedSQL, id).Scan(&runs, &committed); {
	case err != nil:
		return fmt.Errorf("check the handler's transaction: %w", err)
	case runs:
		return nil
	case committed:
		return errCommitted
	}
	return errRolledBack
}

// overlooked returns an error if a transaction failed, or if its connection is closed, although the
// handler returned nil.
func overlooked(tx pgx.Tx) error {
	switch conn := tx.Conn().PgConn(); {
	case conn.IsClosed():
		return errors.New("the connection is closed")
	case conn.TxStatus() == 'E':
		return errOverlooked
	}
	return nil
}

// failed returns the result of a delivery that failed.
func failed(err error, r Result) Result {
	r.Outcome, r.Err, r.Class = Retried, err, classOf(err)
	r.RetryAfter, _ = postroom.RetryDelay(err)
	switch {
	case r.Class == "permanent", r.Class == "outcome_unknown", errors.Is(err, errCommitted):
		r.Outcome = Dead
	case r.Class == "discarded":
		r.Outcome = Discarded
	case r.Class == "snoozed":
		r.Outcome = Snoozed
		r.RetryAfter, _ = postroom.SnoozeDelay(err)
	case strings.HasPrefix(r.Class, lacksResources):
		r.Outcome = Snoozed
	}
	return r
}

// lacksResources is how an SQLSTATE begins if the server lacks memory, locks or disk. An inbox does
// not count an attempt that fails with such an error.
const lacksResources = "53"

// classOf returns the class of a failure. It uses the words of an inbox, but knows fewer classes.
func classOf(err error) string {
	var panicked *guard.PanicError
	var pg *pgconn.PgError
	switch {
	case errors.As(err, &panicked):
		return "panic"
	case errors.Is(err, errRolledBack), errors.Is(err, errCommitted):
		return "transaction"
	case errors.Is(err, inbox.ErrOutcomeUnknown):
		return "outcome_unknown"
	case errors.Is(err, postroom.ErrPermanent):
		return "permanent"
	case is(postroom.DiscardReason(err)):
		return "discarded"
	case is(postroom.SnoozeDelay(err)):
		return "snoozed"
	case errors.As(err, &pg) && pg.Code != "":
		return pg.Code
	}
	return "error"
}

// is returns the second of two results. The first result does not matter here.
func is[T any](_ T, ok bool) bool { return ok }
