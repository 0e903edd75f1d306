package inbox

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox/internal/steps"
)

// NotApplied wraps an error of a step's function when the call certainly had no effect: the
// connection was refused, or the vendor rejected the request. The step then counts as
// never begun, even if its vendor recognises no keys. Do not wrap an error after which the
// call may have had an effect, such as a timeout. NotApplied returns nil if err is nil.
func NotApplied(err error) error {
	return steps.NotApplied(err)
}

// ExternalHandler handles one event by calling other systems; see [Inbox.HandleExternal].
// If it returns nil, the event is done.
type ExternalHandler func(ctx context.Context, attempt *Attempt) error

// StepOption changes how one step is run.
type StepOption func(*steps.Options)

// VendorWindow sets how long after a step's first call its vendor recognises the same key,
// instead of [Subscription.VendorWindow].
func VendorWindow(d time.Duration) StepOption {
	return func(o *steps.Options) { o.Window = d }
}

// Lookup sets a function that asks the vendor whether a step happened. It is called when
// the outcome of earlier calls is not known and the vendor may not recognise their key any
// more; it gets that key. If it finds the call, result must be what the step's function would
// have returned. If it does not, the step's function is called again. An error of f is the
// error of the step.
func Lookup(f func(ctx context.Context, key string) (result []byte, found bool, err error)) StepOption {
	return func(o *steps.Options) { o.Lookup = f }
}

// Attempt is one attempt of an external handler at an event. It is valid until the
// handler returns, and safe for concurrent use.
type Attempt struct {
	// Event is the event to handle.
	Event postroom.Event

	// Number counts from 1.
	Number int

	steps *steps.Attempt
}

// Step calls another system once. f gets a key of 32 hexadecimal digits, which is the
// same in every attempt at this step of this event, so that the vendor recognises a
// repeated call. Step records in the database that the step begins, calls f, and records
// its result if f returns nil. From then on Step returns that result, in every attempt
// and every process, and does not call f again. Of two calls the first result that is
// recorded counts: Step then returns that one.
//
// If f was called before and its outcome is not known, because it returned an error or its
// process ended, Step calls f again with the same key while the vendor recognises that key
// ([Subscription.VendorWindow], [VendorWindow]). After that it asks [Lookup] if one is set, and
// otherwise returns [ErrOutcomeUnknown]. It never makes a call that may be a second one. An
// error that f wraps in [NotApplied] says that nothing happened.
//
// name identifies the step within the handler and must be the same in each attempt. The result
// is kept as long as the event's inbox row: store a reference of the vendor's, not a document.
func (c *Attempt) Step(ctx context.Context, name string, f func(ctx context.Context, key string) ([]byte, error), options ...StepOption) ([]byte, error) {
	o := c.steps.Options()
	for _, option := range options {
		option(&o)
	}
	return c.steps.Do(ctx, name, f, o)
}

// OnSuccess registers f to run in the transaction that records the event as done, after the
// handler returned nil. So what f writes to this database is committed exactly once, events for
// the outbox included. If the transaction has to be repeated, f is called again. An error of f
// counts as an error of the handler. Functions run in the order in which they were registered.
func (c *Attempt) OnSuccess(f func(ctx context.Context, tx pgx.Tx) error) {
	c.steps.OnSuccess(f)
}
