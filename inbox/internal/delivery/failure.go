package delivery

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/cause"
	"github.com/postroom/postroom/internal/guard"
)

// Classes of failures, besides the SQLSTATE of one that came from the database.
const (
	classError       = "error"           // the handler returned it
	classPermanent   = "permanent"       // the handler said that another attempt is hopeless
	classPanic       = "panic"           // the handler panicked, or ended its goroutine
	ClassTimeout     = "timeout"         // the handler took longer than its subscription allows
	classContention  = "contention"      // ten rounds lost to other transactions
	ClassCrash       = "crash"           // the process that ran it ended, or stood still
	ClassConflict    = "conflict"        // another event was decided under its identity
	ClassUndecodable = "undecodable"     // it is no event
	ClassTooOld      = "too_old"         // the ledger cannot tell whether it was decided
	classDedupeKey   = "dedupe_key"      // the subscription found no key for it
	ClassLate        = "late"            // it came after later events of its key
	classUnknown     = "outcome_unknown" // a call was begun, and may not be made again
	classTransaction = "transaction"     // the handler ended its transaction with a statement
)

// Failure is what went wrong with an event.
type Failure struct {
	Class string
	Text  string // what to tell an operator
	frame string // where in the program, for a panic
	stack string
	place string // what tells its cause beside class and text: the frame, or a constraint

	Permanent bool          // no other attempt follows
	after     time.Duration // the next attempt is made no sooner
}

// FailureOf classifies what a handler, or the database under it, returned.
func FailureOf(err error) Failure {
	f := Failure{Class: classError, Text: guard.Clean(err.Error(), guard.MaxText)}
	var panicked *guard.PanicError
	var pg *pgconn.PgError
	var ended *EndedError
	switch {
	case errors.As(err, &panicked):
		f.Class, f.frame, f.stack = classPanic, panicked.Frame, panicked.Stack
		f.place = f.frame
	case errors.As(err, &ended): // what is committed another attempt would do again
		f.Class, f.Permanent = classTransaction, ended.Committed
	case errors.Is(err, ErrGoexit):
		f.Class = classPanic
	case errors.Is(err, ErrOutcomeUnknown):
		f.Class, f.Permanent = classUnknown, true
	case errors.Is(err, postroom.ErrPermanent):
		f.Class, f.Permanent = classPermanent, true
	case errors.Is(err, ErrTimeout):
		f.Class = ClassTimeout
	case IsContention(err):
		f.Class = classContention
	case errors.As(err, &pg) && pg.Code != "":
		f.Class, f.place = pg.Code, pg.TableName+" "+pg.ConstraintName
	}
	f.after, _ = postroom.RetryDelay(err)
	return f
}

// Next returns when the attempt after the given one is made, or nil where none
// follows: most are made.
func (f Failure) Next(schedule postroom.Backoff, attempts, most int) *time.Duration {
	if f.Permanent || attempts >= most {
		return nil
	}
	wait := max(f.after, shortestWait)
	if f.after == 0 {
		wait = max(schedule.Delay(attempts), shortestWait)
	}
	return &wait
}

// shortestWait keeps RetryAfter(0, err) from running a handler without a pause.
const shortestWait = 10 * time.Millisecond

// Fingerprint is the same for failures of one handler that have one cause.
func (f Failure) Fingerprint(handler string, ev postroom.Event) []byte {
	return cause.Fingerprint(handler, f.Class, f.place, f.Text, ev.ID, ev.Key, ev.Source, ev.Type)
}

// Document is the failure as it is kept, in JSON; the database adds the time.
func (f Failure) Document() (string, error) {
	text, err := json.Marshal(struct {
		Class string `json:"class"`
		Text  string `json:"text"`
		Frame string `json:"frame,omitempty"`
		Stack string `json:"stack,omitempty"`
	}{f.Class, f.Text, f.frame, f.stack})
	return string(text), err
}
