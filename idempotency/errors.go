package idempotency

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postroom/postroom/idempotency/internal/answer"
	"github.com/postroom/postroom/idempotency/internal/claim"
	"github.com/postroom/postroom/idempotency/internal/failure"
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
	ErrTooLarge = answer.ErrTooLarge

	// ErrDropped says that the operation was done and its answer was too large to be
	// kept: it cannot be repeated.
	ErrDropped = errors.New("the answer was too large and was not kept")

	// ErrLeaseLost says that the claim ran out and is another attempt's, or nobody's.
	ErrLeaseLost = claim.ErrLost

	// ErrNotFound is returned by [Guard.Get] and [Guard.Delete] for a key that is not
	// there, and by the latter for one that an attempt holds.
	ErrNotFound = errors.New("no such key")

	// ErrTxOwned is returned by Commit and Rollback of the transaction that a handler is
	// given: the guard ends it, after the handler returned.
	ErrTxOwned = errors.New("idempotency: the transaction is ended by the guard; answer with an error to roll back")

	// ErrRunning is returned by [Guard.Run] if it runs already.
	ErrRunning = errors.New("idempotency: the guard runs already")
)

// errNoTx says that a handler did without the transaction.
var errNoTx = errors.New("the handler answered with success and did not ask for the transaction: use idempotency.Tx")

// errTwin says that a row appeared where there was none: another attempt has answered.
var errTwin = errors.New("another attempt has answered")

// whyFailed returns the error of a transaction in which a statement has failed, by what
// that statement failed for, and not by when that came to light: what has nothing to do with
// the statement may not happen the next time.
func whyFailed(what string, cause error) error {
	switch {
	case failure.IsContention(cause), failure.HasCode(cause, "55P03"): // it waited for a lock for too long
		return fmt.Errorf("%w: %s: %w", ErrContention, what, cause)
	case failure.IsInterruption(cause):
		return fmt.Errorf("%w: %s: %w", ErrInterrupted, what, cause)
	case failure.IsShort(cause):
		return fmt.Errorf("%w: %s: %w", ErrUnavailable, what, cause)
	case cause != nil && !failure.IsRefusal(cause):
		return fmt.Errorf("%w: %s: %w", ErrUnavailable, what, cause)
	case cause != nil:
		return fmt.Errorf("%w: %s: %w", ErrNotCommitted, what, cause)
	}
	return fmt.Errorf("%w: %s", ErrNotCommitted, what)
}

// isTwin reports whether the answer's row was there already.
func isTwin(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "23505" && pg.ConstraintName == "idempotency_pkey"
}
