package inbox

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox/internal/steps"
)

// NotDone says of an error that a step's function returns that the call did not
// happen: the connection was refused, the vendor answered that it rejects the
// request. The step is then as if it was not begun, also at a vendor that knows no
// keys. An error that may have come after the call happened, such as a timeout, must
// not be wrapped so. It returns nil where err is.
func NotDone(err error) error {
	return steps.NotDone(err)
}

// ExternalHandler handles one event by calling other systems. See
// [Inbox.HandleExternal].
type ExternalHandler func(ctx context.Context, call *Call) error

// StepOption changes how one step is run.
type StepOption func(*steps.Options)

// KeyWindow says for how long after a step's first call its vendor recognises the
// same key, in place of Subscription.KeyWindow.
func KeyWindow(d time.Duration) StepOption {
	return func(o *steps.Options) { o.Window = d }
}

// Lookup asks the vendor whether a step happened, where that is not known and the
// key would not be recognised any more. It is given the key of the calls in
// question. Where it finds the step, result is what the step's function would have
// returned; where it does not, the step is called anew. Its error is that of the
// step.
func Lookup(f func(ctx context.Context, key string) (result []byte, found bool, err error)) StepOption {
	return func(o *steps.Options) { o.Lookup = f }
}

// Call is one attempt of an external handler at an event. It is valid until the
// handler returns, and safe for concurrent use.
type Call struct {
	// Event is what is to be handled.
	Event postroom.Event

	// Attempt counts from 1.
	Attempt int

	steps *steps.Attempt
}

// Step calls another system once. f is given a key that is the same whenever this
// step of this event is called: 32 hexadecimal digits, for the vendor to recognise a
// repetition. That the step begins is noted before f is called, and that it is done,
// with its result, after f returned no error; from then on Step returns that result
// and does not call f any more, in whichever attempt and process.
//
// Where f was called before and nobody knows what came of it, because it returned an
// error or its process ended, Step calls it again with the same key while the vendor
// recognises that ([Subscription.KeyWindow], [KeyWindow]). After that it asks
// [Lookup], or returns [ErrOutcomeUnknown]; it never calls blindly. An error that f
// wraps in [NotDone] leaves no doubt behind.
//
// name says which step of the handler it is, and is the same in each attempt. The
// result is kept in the database, as long as the event's ledger row: a reference of
// the vendor's rather than a document.
func (c *Call) Step(ctx context.Context, name string, f func(ctx context.Context, key string) ([]byte, error), options ...StepOption) ([]byte, error) {
	o := c.steps.Options()
	for _, option := range options {
		option(&o)
	}
	return c.steps.Do(ctx, name, f, o)
}

// OnSettle has f called in the transaction that settles the event, after the handler
// returned nil: effects in this database, and events to follow, are so committed
// once, with the event. f may be called again where that transaction has to be
// repeated. Its error is one of the handler. Functions are called in the order in
// which they were given.
func (c *Call) OnSettle(f func(ctx context.Context, tx pgx.Tx) error) {
	c.steps.OnSettle(f)
}
