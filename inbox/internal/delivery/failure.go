package delivery

import (
	"cmp"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/cause"
	"github.com/postroom/postroom/internal/guard"
)

// Classes of failures. The class of a database error is its SQLSTATE.
const (
	classError       = "error"           // the handler returned an error that has no other class
	classPermanent   = "permanent"       // the handler said that another attempt would fail too
	classPanic       = "panic"           // the handler panicked, or ended its goroutine
	ClassTimeout     = "timeout"         // the handler took longer than its subscription allows
	classContention  = "contention"      // ten rounds in a row conflicted with other transactions
	ClassCrash       = "crash"           // the process that ran the event ended or stalled
	ClassConflict    = "conflict"        // another event with the same identity was decided
	ClassUndecodable = "undecodable"     // the message is not an event
	ClassTooOld      = "too_old"         // the event is so old that the inbox cannot tell whether it was decided
	classDedupeKey   = "dedupe_key"      // the DedupeKey function returned no key
	ClassLate        = "late"            // the event came after later events of its key
	classUnknown     = "outcome_unknown" // a call began, its outcome is not known, and it must not be made again
	classTransaction = "transaction"     // the handler ended its transaction with a statement
	classSnoozed     = "snoozed"         // the handler said: not now
	ClassDiscarded   = "discarded"       // the handler said that the event is of no use
)

// snoozeBound is how long a handler can snooze an event without an attempt that counts. After that
// time each further snooze counts as an attempt. So the event becomes dead in the end.
const snoozeBound = 24 * time.Hour

// Failure is what went wrong with an event.
type Failure struct {
	Class string
	Text  string // for the operator
	frame string // the function that panicked, if the failure is a panic
	stack string
	place string // the frame of a panic, or the table and constraint of a database error; with Class and Text it makes up the cause

	Permanent  bool          // there is no further attempt
	Again      bool          // it is the last failure that the event's row has: only the Class and the Text are known
	unknown    bool          // no handler has the type of the event
	unanswered bool          // the failure is permanent only because the outcome of this attempt's call is unknown
	Waits      bool          // nothing failed: the event waits for its turn
	Snoozed    bool          // the attempt does not count, unless the event has had only snoozes for snoozeBound
	after      time.Duration // the least time until the next attempt
	pace       time.Duration // if the other events of the key wait too: the time from each of them to the next; otherwise 0
}

// IsAboutEvent reports whether the failure is about the event itself. If so, it says nothing about
// the systems that the handler needs.
func (f Failure) IsAboutEvent() bool {
	//guard:unknown-types-pause-no-handler false
	if f.unknown {
		return true
	}
	//guard:unknown-outcomes-pause-a-handler 2 true
	return f.Permanent && !f.unanswered
}

// FailureOf classifies an error of a handler or of the database.
func FailureOf(err error) Failure {
	f := Failure{Class: classError, Text: guard.Clean(err.Error(), guard.MaxText)}
	var panicked *guard.PanicError
	var pg *pgconn.PgError
	var ended *EndedError
	switch {
	case errors.As(err, &panicked):
		f.Class, f.frame, f.stack = classPanic, panicked.Frame, panicked.Stack
		f.place = f.frame
	case errors.As(err, &ended): // another attempt would repeat changes that are committed
		f.Class, f.Permanent = classTransaction, ended.Committed
	case errors.Is(err, ErrGoexit):
		f.Class = classPanic
	case errors.Is(err, ErrOutcomeUnknown):
		_, discarded := postroom.DiscardReason(err)
		f.Class, f.Permanent = classUnknown, true
		//guard:calls-of-a-crash-pause-no-handler 1 true
		f.unanswered = errors.Is(err, ErrUnanswered) && !errors.Is(err, postroom.ErrPermanent) && !discarded
	case errors.Is(err, postroom.ErrPermanent):
		f.Class, f.Permanent = classPermanent, true
		if own, ok := errors.AsType[*cause.ClassError](err); ok {
			f.Class = own.Class
		}
	case f.discards(err), f.snoozes(err), f.lacks(err):
	case errors.Is(err, ErrTimeout):
		f.Class = ClassTimeout
	case IsContention(err):
		f.Class = classContention
	case errors.As(err, &pg) && pg.Code != "":
		f.Class, f.place = pg.Code, pg.TableName+" "+pg.ConstraintName
	}
	if !f.Snoozed {
		f.after, _ = postroom.RetryDelay(err)
	}
	f.unknown = errors.Is(err, postroom.ErrUnknownType)
	return f
}

// discards checks whether err says that the handler discarded the event. If so, it notes that and
// returns true.
func (f *Failure) discards(err error) bool {
	reason, ok := postroom.DiscardReason(err)
	if ok {
		f.Class, f.Text, f.Permanent = ClassDiscarded, cmp.Or(guard.Clean(reason, guard.MaxText), "its handler gave no reason"), true
	}
	return ok
}

// snoozes checks whether err says that the handler snoozed the event. If so, it notes
// that and returns true.
func (f *Failure) snoozes(err error) bool {
	after, ok := postroom.SnoozeDelay(err)
	if ok {
		f.Class, f.Snoozed, f.after = classSnoozed, true, after
		f.pace, _ = postroom.SnoozePace(err)
		_, f.Waits = errors.AsType[*cause.WaitError](err)
	}
	return ok
}

// lacks checks whether err says that the server lacked resources. If so, it notes that and returns
// true.
func (f *Failure) lacks(err error) bool {
	var pg *pgconn.PgError
	if !IsShort(err) || !errors.As(err, &pg) {
		return false
	}
	asked, _ := postroom.RetryDelay(err)
	//guard:a-lack-of-resources-is-no-attempt 2 false
	f.Class, f.Snoozed, f.after = pg.Code, true, max(asked, shortWait)
	return true
}

// shortWait is the shortest wait of an event for which the server lacked resources.
const shortWait = 30 * time.Second

// KeyWaits reports whether the other events of the key wait because of this failure. If so, first
// is the time until the first of them may run, and pace is the time from each to the next.
func (f *Failure) KeyWaits() (first, pace time.Duration, waits bool) {
	if f == nil || f.pace == 0 {
		return 0, 0, false
	}
	return max(f.after, shortestWait), f.pace, true
}

// Hold returns how to hold an event that had this failure. attempts is the number of attempts so
// far, including this one. most is the number of attempts that the event may have. snoozed is the
// time for which all attempts at the event have been snoozes. back is the number of attempts that
// the event gets back because its handler is paused.
func (f Failure) Hold(schedule postroom.Backoff, attempts, most int, snoozed time.Duration, back int) Holding {
	h := Holding{Failure: &f}
	//guard:snoozes-end-after-a-day 2 true
	if f.Snoozed && snoozed < snoozeBound {
		wait := max(f.after, shortestWait)
		//guard:a-snooze-is-no-attempt 1 = @1.1
		h.Attempts, h.After = max(attempts-max(back, 1), 0), &wait
		return h
	}
	h.Attempts = max(attempts-back, 0)
	h.After = f.next(schedule, h.Attempts, most)
	return h
}

// next returns how long to wait before the next attempt, or nil if there is none.
func (f Failure) next(schedule postroom.Backoff, attempts, most int) *time.Duration {
	if f.Permanent || attempts >= most {
		return nil
	}
	wait := max(f.after, shortestWait)
	if f.after == 0 || f.Snoozed { // a snooze counts as an attempt here, and its wait may be short: without the schedule, the attempts would soon be used up
		wait = max(wait, schedule.Delay(max(attempts, 1)))
	}
	return &wait
}

// shortestWait is the shortest wait before another attempt, so that RetryAfter(0, err) and
// Snooze(0, err) do not run a handler again and again without a break.
const shortestWait = 10 * time.Millisecond

// Fingerprint returns bytes that are the same for all failures of a handler with the same
// cause.
func (f Failure) Fingerprint(handler string, ev postroom.Event) []byte {
	return cause.Fingerprint(handler, f.Class, f.place, f.Text, ev.ID, ev.Key, ev.Source, ev.Type)
}

// Document returns the failure as JSON, to store it. The database adds the time.
func (f Failure) Document() (string, error) {
	text, err := json.Marshal(struct {
		Class string `json:"class"`
		Text  string `json:"text"`
		Frame string `json:"frame,omitempty"`
		Stack string `json:"stack,omitempty"`
	}{f.Class, f.Text, f.frame, f.stack})
	return string(text), err
}
