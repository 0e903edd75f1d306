package inbox

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox/internal/steps"
)

// NotApplied wraps an error of a step's function to say that the call certainly had no effect: for
// instance, the connection was refused, or the vendor rejected the request. The step then counts as
// never begun, even if its vendor does not recognise keys. If the call may have had an effect, for
// instance after a timeout, do not wrap the error. NotApplied returns nil if err is nil.
func NotApplied(err error) error {
	return steps.NotApplied(err)
}

// ExternalHandler handles one event by calling other systems; see [Inbox.HandleExternal].
// If it returns nil, the event is done.
type ExternalHandler func(ctx context.Context, attempt *Attempt) error

// StepOption changes how one step is run.
type StepOption func(*steps.Options)

// VendorWindow sets how long the vendor of a step recognises the same key, counted from
// the step's first call. For this step it replaces [Subscription.VendorWindow].
func VendorWindow(d time.Duration) StepOption {
	return func(o *steps.Options) { o.Window = d }
}

// Lookup sets a function that asks the vendor whether a step happened. f is called with the
// step's key if the outcome of earlier calls is not known and the vendor may no longer
// recognise that key. If f finds the call, result must be the result that the step's function
// would have returned. If f does not find the call, the step's function is called again. If f
// returns an error, Step returns it.
func Lookup(f func(ctx context.Context, key string) (result []byte, found bool, err error)) StepOption {
	return func(o *steps.Options) { o.Lookup = f }
}

// Attempt is one attempt of an external handler to handle an event. It is valid until the
// handler returns, and safe for concurrent use.
type Attempt struct {
	// Event is the event to handle.
	Event postroom.Event

	// Number is the number of this attempt, counted from 1.
	Number int

	steps *steps.Attempt
}

// Step calls another system once. f gets a key of 32 hexadecimal digits. The key is the
// same in every attempt at this step of this event, so that the vendor recognises a
// repeated call. Step records in the database that the step begins, and calls f. If f
// returns no error, Step records its result. From then on, in every attempt and every
// process, Step returns that result and does not call f again. If two calls run at the
// same time, the result that is recorded first counts: both return that result.
//
// If f was called before and its outcome is not known, because f returned an error or its process
// ended, Step calls f again with the same key while the vendor recognises that key
// ([Subscription.VendorWindow], [VendorWindow]). After that time Step calls the [Lookup] function.
// If there is none, it returns [ErrOutcomeUnknown]. So Step never makes a call that the vendor
// could take for a second one. If f wraps its error in [NotApplied], nothing happened.
//
// name identifies the step within the handler and must be the same in each attempt. The result
// is kept as long as the event's inbox row. So return a short result, such as the vendor's
// reference, and not a document.
func (c *Attempt) Step(ctx context.Context, name string, f func(ctx context.Context, key string) ([]byte, error), options ...StepOption) ([]byte, error) {
	o := c.steps.Options()
	for _, option := range options {
		option(&o)
	}
	return c.steps.Do(ctx, name, f, o)
}

// OnSuccess registers f. After the handler returned nil, f runs in the transaction that records
// the event as done. So what f writes to this database, including events for the outbox, is
// committed exactly once. If the transaction must be repeated, f is called again. An error of f
// counts as an error of the handler. Functions run in the order in which they were registered.
func (c *Attempt) OnSuccess(f func(ctx context.Context, tx pgx.Tx) error) {
	c.steps.OnSuccess(f)
}
