package idempotency

import (
	"errors"
	"fmt"

	"github.com/postroom/postroom/idempotency/internal/answer"
	"github.com/postroom/postroom/idempotency/internal/claim"
	"github.com/postroom/postroom/idempotency/internal/failure"
)

var (
	// ErrInProgress says that another attempt with the key is running. Try again later: by then the
	// answer exists, or the key is free.
	ErrInProgress = errors.New("another attempt with this key is in progress")

	// ErrMismatch says that the key was used for another request. Do not try again with this key.
	ErrMismatch = errors.New("the key was used for another request")

	// ErrUnavailable says that the guard could not use the database. This attempt had no effect.
	ErrUnavailable = errors.New("the store of keys is not available")

	// ErrOutcomeUnknown says that it is not known whether something was done. If a guard returns
	// this error, usually the database did not answer a commit: try the same key again to find out.
	// If [Call] returns it, this attempt or an earlier one began the call, and the vendor might not
	// recognise a repetition. So Call does not repeat the call: ask the vendor, or use a
	// [postroom.Lookup].
	ErrOutcomeUnknown = errors.New("it is not known whether it was done")

	// ErrContention says that the transaction conflicted with another one and was rolled back.
	ErrContention = errors.New("the transaction conflicted with another one")

	// ErrInterrupted says that a context or a time limit of the database ended before the operation
	// was done. Nothing was done, and the same call may succeed later.
	ErrInterrupted = errors.New("the time was over before the operation was done")

	// ErrNotCommitted says that the function succeeded but a statement or a constraint of its
	// transaction failed. Nothing was done, unless the function ended the transaction.
	ErrNotCommitted = errors.New("the transaction could not be committed")

	// ErrTooLarge says that an answer is too large to be kept. The attempt was rolled back.
	ErrTooLarge = answer.ErrTooLarge

	// ErrDropped says that the operation was done, but its answer was too large to be
	// kept and cannot be repeated.
	ErrDropped = errors.New("the answer was too large and was not kept")

	// ErrUnreadable says that the operation was done earlier, but its kept answer cannot be read: the
	// Codec or Route.Render failed, or Route.AuthorizeReplay was late. The same call later may get the
	// answer.
	ErrUnreadable = errors.New("it was done earlier, and its answer cannot be read")

	// ErrLeaseLost says that the attempt's claim expired. Another attempt may have the key now.
	ErrLeaseLost = claim.ErrLost

	// ErrNotFound is returned by [Guard.Get] and [Guard.Delete] if the key does not exist. Delete
	// also returns this error if an attempt holds the key.
	ErrNotFound = errors.New("no such key")

	// ErrTxOwned is returned by Commit and Rollback of a handler's transaction, because the guard
	// ends the transaction when the handler has returned.
	ErrTxOwned = errors.New("idempotency: the guard ends the transaction; to roll back, answer with an error")

	// ErrRunning is returned by [Guard.Run] if the guard already runs.
	ErrRunning = errors.New("idempotency: the guard runs already")
)

// errNoTx says that a handler succeeded without calling Tx, although Route.TxRequired is set.
var errNoTx = errors.New("the handler answered with success and did not ask for the transaction: use idempotency.Tx")

// errTwin says that another attempt has written the row of the key since this attempt began.
var errTwin = errors.New("another attempt has answered")

// whyFailed returns the error of a transaction in which a statement failed. If the statement itself
// was at fault, this is ErrNotCommitted. After the other errors, the next attempt may succeed.
func whyFailed(what string, cause error) error {
	switch {
	case failure.IsContention(cause), failure.HasCode(cause, "55P03"): // the statement waited too long for a lock
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
