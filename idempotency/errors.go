package idempotency

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postroom/postroom/internal/guard"
)

var (
	// ErrInProgress says that another attempt with the key runs. Come again: its answer
	// will be there, or the key free.
	ErrInProgress = errors.New("another attempt with this key is in progress")

	// ErrMismatch says that the key was used for something else. Never repeat it.
	ErrMismatch = errors.New("the key was used for another request")

	// ErrUnavailable says that the database could not be asked, so that nothing was run.
	ErrUnavailable = errors.New("the store of keys is not available")

	// ErrOutcomeUnknown says that it is not known whether something was done. Of a guard
	// that is its commit, which was not answered: the same key, tried again, finds out.
	// Of [Call] it is a call that was begun before and that the vendor might not recognise
	// as a repetition: it is not made again, and somebody, or a [Lookup], has to ask.
	ErrOutcomeUnknown = errors.New("it is not known whether it was done")

	// ErrContention says that the transaction lost against another and was rolled back.
	ErrContention = errors.New("the transaction lost against another one")

	// ErrInterrupted says that a context, or a time limit of the database, ended before the
	// work was done. Nothing was done; the same call may succeed later.
	ErrInterrupted = errors.New("the time was over before it was done")

	// ErrNotCommitted says that the function succeeded, and its transaction could not: a
	// statement in it had failed, or a constraint refused the commit. Nothing was done.
	ErrNotCommitted = errors.New("the transaction could not be committed")

	// ErrTooLarge says that an answer is too large to be kept. It was rolled back.
	ErrTooLarge = errors.New("the answer is too large to be kept")

	// ErrDropped says that the operation was done and its answer was too large to be
	// kept: it cannot be repeated.
	ErrDropped = errors.New("the answer was too large and was not kept")

	// ErrLeaseLost says that the claim ran out and is another attempt's, or nobody's.
	ErrLeaseLost = errors.New("the claim was lost")

	// ErrNotFound is returned by [Guard.Get] and [Guard.Delete] for a key that is not
	// there, and by the latter for one that an attempt holds.
	ErrNotFound = errors.New("no such key")

	// ErrTxOwned is returned by Commit and Rollback of the transaction that a handler is
	// given: the guard ends it, after the handler returned.
	ErrTxOwned = errors.New("idempotency: the transaction is ended by the guard; answer with an error to roll back")

	// ErrRunning is returned by [Guard.Run] where it runs already.
	ErrRunning = errors.New("idempotency: the guard runs already")
)

// errNoTx says that a handler did without the transaction.
var errNoTx = errors.New("the handler answered with success and did not ask for the transaction: use idempotency.Tx")

// errTwin says that a row appeared where there was none: another attempt has answered.
var errTwin = errors.New("another attempt has answered")

// isContention reports whether the database rolled back because of other transactions:
// serialization failure and deadlock.
func isContention(err error) bool { return hasCode(err, "40001", "40P01") }

// whyFailed returns the error of a transaction in which a statement has failed, by what
// that statement failed for, and not by when that came to light: what has nothing to do with
// the statement may not happen the next time.
func whyFailed(what string, cause error) error {
	switch {
	case isContention(cause), hasCode(cause, "55P03"): // it waited for a lock for too long
		return fmt.Errorf("%w: %s: %w", ErrContention, what, cause)
	case isInterruption(cause):
		return fmt.Errorf("%w: %s: %w", ErrInterrupted, what, cause)
	case isShort(cause):
		return fmt.Errorf("%w: %s: %w", ErrUnavailable, what, cause)
	case cause != nil && !isRefusal(cause):
		return fmt.Errorf("%w: %s: %w", ErrUnavailable, what, cause)
	case cause != nil:
		return fmt.Errorf("%w: %s: %w", ErrNotCommitted, what, cause)
	}
	return fmt.Errorf("%w: %s", ErrNotCommitted, what)
}

// isInterruption reports whether err says that time was over: a context ended, a
// statement's or a network's time limit passed.
func isInterruption(err error) bool {
	err = guard.Seal(err) // it may be a user's
	var slow interface{ Timeout() bool }
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || hasCode(err, "57014") ||
		errors.As(err, &slow) && slow.Timeout()
}

// isTwin reports whether the answer's row was there already.
func isTwin(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "23505" && pg.ConstraintName == "idempotency_pkey"
}

// hasCode reports whether err is the server's, with one of these SQLSTATEs.
func hasCode(err error, codes ...string) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && slices.Contains(codes, pg.Code)
}

// isRefusal reports whether the server answered, with an error: then it is known that
// nothing was committed. A server that is going away, or a session that ends, says so as
// well, and it is not known then: it may have done so when the commit was done.
func isRefusal(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && cmp.Or(pg.SeverityUnlocalized, pg.Severity) == "ERROR" &&
		!strings.HasPrefix(pg.Code, "57") && !strings.HasPrefix(pg.Code, "08")
}

// isShort reports whether the server lacks room, or takes no writes: nothing was
// committed, and it may be later.
func isShort(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (strings.HasPrefix(pg.Code, "53") || pg.Code == "25006")
}
