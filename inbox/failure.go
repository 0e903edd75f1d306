package inbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	classTimeout     = "timeout"         // the handler took longer than its subscription allows
	classContention  = "contention"      // ten rounds lost to other transactions
	classCrash       = "crash"           // the process that ran it ended, or stood still
	classConflict    = "conflict"        // another event was decided under its identity
	classUndecodable = "undecodable"     // it is no event
	classTooOld      = "too_old"         // the ledger cannot tell whether it was decided
	classDedupeKey   = "dedupe_key"      // the subscription found no key for it
	classLate        = "late"            // it came after later events of its key
	classUnknown     = "outcome_unknown" // a call was begun, and may not be made again
	classTransaction = "transaction"     // the handler ended its transaction with a statement
)

// failure is what went wrong with an event.
type failure struct {
	class string
	text  string // what to tell an operator
	frame string // where in the program, for a panic
	stack string
	place string // what tells its cause beside class and text: the frame, or a constraint

	permanent bool          // no other attempt follows
	after     time.Duration // the next attempt is made no sooner
}

// maxFailureText is how much is kept of a failure's text, in bytes.
const maxFailureText = guard.MaxText

// errGoexit says that a handler ended its goroutine, as t.FailNow does.
var errGoexit = errors.New("the handler ended its goroutine with runtime.Goexit")

// errTimeout says that a handler took longer than its subscription allows.
var errTimeout = errors.New("the handler was not done in time")

// failureOf classifies what a handler, or the database under it, returned.
func failureOf(err error) failure {
	f := failure{class: classError, text: clean(err.Error(), maxFailureText)}
	var panicked *guard.PanicError
	var pg *pgconn.PgError
	var ended *endedError
	switch {
	case errors.As(err, &panicked):
		f.class, f.frame, f.stack = classPanic, panicked.Frame, panicked.Stack
		f.place = f.frame
	case errors.As(err, &ended): // what is committed another attempt would do again
		f.class, f.permanent = classTransaction, ended.committed
	case errors.Is(err, errGoexit):
		f.class = classPanic
	case errors.Is(err, ErrOutcomeUnknown):
		f.class, f.permanent = classUnknown, true
	case errors.Is(err, postroom.ErrPermanent):
		f.class, f.permanent = classPermanent, true
	case errors.Is(err, errTimeout):
		f.class = classTimeout
	case isContention(err):
		f.class = classContention
	case errors.As(err, &pg) && pg.Code != "":
		f.class, f.place = pg.Code, pg.TableName+" "+pg.ConstraintName
	}
	f.after, _ = postroom.RetryDelay(err)
	return f
}

// next returns when the attempt after the given one is made, or nil where none
// follows: most are made.
func (f failure) next(sub *Subscription, attempts, most int) *time.Duration {
	if f.permanent || attempts >= most {
		return nil
	}
	wait := max(f.after, shortestWait)
	if f.after == 0 {
		wait = max(sub.Schedule.Delay(attempts), shortestWait)
	}
	return &wait
}

// shortestWait keeps RetryAfter(0, err) from running a handler without a pause.
const shortestWait = 10 * time.Millisecond

// fingerprint is the same for failures of one handler that have one cause.
func (f failure) fingerprint(handler string, ev postroom.Event) []byte {
	return cause.Fingerprint(handler, f.class, f.place, f.text, ev.ID, ev.Key, ev.Source, ev.Type)
}

// document is the failure as it is kept, in JSON; the database adds the time.
func (f failure) document() (string, error) {
	text, err := json.Marshal(struct {
		Class string `json:"class"`
		Text  string `json:"text"`
		Frame string `json:"frame,omitempty"`
		Stack string `json:"stack,omitempty"`
	}{f.class, f.text, f.frame, f.stack})
	return string(text), err
}

// clean makes a text one that a column takes, of n bytes at the most.
func clean(s string, n int) string { return guard.Clean(s, n) }

// timedOut tells a handler that ran into its own deadline from one whose process
// stops.
func timedOut(attempt context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(attempt), errTimeout) {
		return fmt.Errorf("%w: %w", errTimeout, err)
	}
	return err
}
