package postroom

import (
	"errors"
	"fmt"
	"time"

	"github.com/postroom/postroom/internal/guard"
	"github.com/postroom/postroom/internal/vendorcall"
)

var (
	// ErrInvalidEvent matches every [*FieldError].
	ErrInvalidEvent = errors.New("invalid event")

	// ErrEventConflict means that another event has the same source and ID, and different content.
	// Choose another ID, or find out why two different events have the same ID.
	ErrEventConflict = errors.New("another event with this source and id exists")

	// ErrUnknownType means that there is no handler for the type of an event, or that a [Type] has
	// another name.
	ErrUnknownType = errors.New("no handler for event type")

	// ErrPermanent matches any error made by [Permanent].
	ErrPermanent = errors.New("permanent failure")

	// ErrUnrecoverable matches any error made by [Unrecoverable].
	ErrUnrecoverable = errors.New("unrecoverable")

	// ErrNotApplied matches any error made by [NotApplied], and any error of package outbound that
	// says that the vendor certainly did nothing.
	ErrNotApplied = vendorcall.ErrNotApplied
)

// FieldError is one fault of an event. It matches [ErrInvalidEvent] with errors.Is.
type FieldError struct {
	Field   string // the Go name of the field, for instance "Headers[x-tenant]"
	Problem string // what is wrong with the field, without its value

	err error // the cause, if there is one
}

func (e *FieldError) Error() string { return e.Field + " " + e.Problem }

// Is reports whether target is [ErrInvalidEvent].
func (e *FieldError) Is(target error) bool { return target == ErrInvalidEvent }

// Unwrap returns the cause, or nil.
func (e *FieldError) Unwrap() error { return e.err }

// EventError says which operation failed, and for which event. It does not contain the
// event's data.
type EventError struct {
	Op   string // the operation: "write", "handle" or "accept"
	ID   string // the event's id; empty if the event had none
	Type string // the event's type
	Err  error  // the cause
}

func (e *EventError) Error() string {
	return fmt.Sprintf("%s %s %s: %v", e.Op, clip(e.Type), clip(e.ID), e.Err)
}

// Unwrap returns the cause.
func (e *EventError) Unwrap() error { return e.Err }

// Permanent marks err as permanent: another attempt would end the same way. The event becomes dead
// at once, and stays dead until an operator decides. Permanent overrides [Discard], [Snooze] and
// [RetryAfter]. It returns nil for nil. The result matches err and [ErrPermanent] with errors.Is.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrPermanent, err)
}

// RetryAfter returns an error that says: make the next attempt after d at the earliest, for
// instance because a vendor asked for this wait. The failed attempt counts, but an attempt that
// ends with [Snooze] usually does not. RetryAfter returns nil for a nil err. A negative d counts as
// zero. [RetryDelay] returns d.
func RetryAfter(d time.Duration, err error) error {
	if err == nil {
		return nil
	}
	return &retryError{after: max(d, 0), err: err}
}

// RetryDelay returns the delay that [RetryAfter] put into err, and whether there is one.
func RetryDelay(err error) (time.Duration, bool) {
	r, ok := guard.As[*retryError](guard.Tree(err)) // a tree of a user's errors may be infinite
	if !ok {
		return 0, false
	}
	return r.after, true
}

type retryError struct {
	after time.Duration
	err   error
}

func (e *retryError) Error() string {
	return fmt.Sprintf("retry after %s: %v", e.after, e.err)
}

func (e *retryError) Unwrap() error { return e.err }

// Snooze returns an error that says: the event cannot be handled now, for a reason outside the
// event, such as a vendor that does not answer or a budget that is spent. The event is due again
// after d, and the attempt does not count. If an event has been snoozed for 24 hours without an
// attempt that counts, each further snooze counts as an attempt, so the event becomes dead in the
// end. The wait after such a snooze is at least as long as the handler's schedule says. Snooze
// overrides [RetryAfter]. It returns nil for a nil err. A negative d counts as zero. [SnoozeDelay]
// returns d.
func Snooze(d time.Duration, err error) error {
	if err == nil {
		return nil
	}
	return &snoozeError{after: max(d, 0), err: err}
}

// SnoozeDelay returns the delay that [Snooze] put into err, and whether there is one.
func SnoozeDelay(err error) (time.Duration, bool) {
	s, ok := guard.As[*snoozeError](guard.Tree(err))
	if !ok {
		return 0, false
	}
	return s.after, true
}

// SnoozeKey is [Snooze] for an event whose key cannot be served now: an account is at its limit, or
// an endpoint does not answer. If the event was held before this attempt, the inbox also postpones
// the other held events of its key that are due. The postponed events lose no attempt. The first of
// them is due after d at the earliest, and the time from each event to the next is the given pace.
// Thus a key with many events does not delay the events of other keys. The parameter pace is the
// time that the key needs for one event. A pace of less than a millisecond counts as a millisecond.
//
// SnoozeKey is for handlers that are not ordered. An ordered handler runs one event of a key at a
// time anyway. For an event without a key, SnoozeKey is Snooze. [SnoozeDelay] returns d, and
// [SnoozePace] returns pace.
func SnoozeKey(d, pace time.Duration, err error) error {
	if err == nil {
		return nil
	}
	return &snoozeError{after: max(d, 0), pace: max(pace, time.Millisecond), err: err}
}

// SnoozePace returns the pace that [SnoozeKey] put into err, and whether there is one.
func SnoozePace(err error) (time.Duration, bool) {
	s, ok := guard.As[*snoozeError](guard.Tree(err))
	if !ok || s.pace == 0 {
		return 0, false
	}
	return s.pace, true
}

type snoozeError struct {
	after time.Duration
	pace  time.Duration // the pace that SnoozeKey got; 0 for Snooze
	err   error
}

func (e *snoozeError) Error() string {
	return fmt.Sprintf("not now, again after %s: %v", e.after, e.err)
}

func (e *snoozeError) Unwrap() error { return e.err }

// Discard returns an error that says: the event need not be handled, because it is out of date or
// of no use. The inbox rolls back what the handler wrote, and moves the event to the table archive.
// The event does not run again and is not dead. An operator can bring it back from the archive. The
// reason is in the table audit. Later events of the same key do not wait for this event. The reason
// must not contain the event's data. [DiscardReason] returns the reason.
func Discard(reason string) error { return &discardError{reason: reason} }

// DiscardReason returns the reason that [Discard] put into err, and whether there is one.
func DiscardReason(err error) (reason string, ok bool) {
	d, ok := guard.As[*discardError](guard.Tree(err))
	if !ok {
		return "", false
	}
	return d.reason, true
}

type discardError struct{ reason string }

func (e *discardError) Error() string { return "discard the event: " + e.reason }

// Unrecoverable marks err as a fault that only a person can correct, such as a missing table or a
// wrong setting. If a Run method gets such an error, it returns the error. A Run method treats any
// other error as an outage, and waits until the outage is over. Unrecoverable returns nil for nil.
// The result matches err and [ErrUnrecoverable] with errors.Is.
func Unrecoverable(err error) error {
	if err == nil {
		return nil
	}
	return &unrecoverableError{err: err}
}

type unrecoverableError struct{ err error }

func (e *unrecoverableError) Error() string { return e.err.Error() }

func (e *unrecoverableError) Is(target error) bool { return target == ErrUnrecoverable }

func (e *unrecoverableError) Unwrap() error { return e.err }
