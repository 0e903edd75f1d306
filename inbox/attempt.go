package inbox

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox/internal/steps"
)

// NotApplied wraps an error of a step's function (see [Attempt.Step]) to say that its call to the
// vendor certainly had no effect: for instance, the connection was refused, or the vendor rejected
// the request. Step then treats the call as not made. So the next attempt may make the call, even
// if the vendor does not recognise repeated calls. If the call may have had an effect, for instance
// after a timeout, do not wrap the error. NotApplied returns nil if err is nil.
func NotApplied(err error) error {
	return steps.NotApplied(err)
}

// ExternalHandler handles one event by calling other systems; see [Inbox.HandleExternal].
// If it returns nil, the event is done.
type ExternalHandler func(ctx context.Context, attempt *Attempt) error

// StepOption changes how [Attempt.Step] runs one step.
type StepOption func(*steps.Options)

// VendorWindow sets for how long the vendor of a step recognises a key that it got before. The time
// begins with the step's first call. For this step, d replaces [Subscription.VendorWindow].
func VendorWindow(d time.Duration) StepOption {
	return func(o *steps.Options) { o.Window = d }
}

// Lookup sets the function f, which asks the vendor whether a step happened. If earlier calls have
// an unknown outcome and the vendor may no longer recognise their key, Step calls f with that key.
// If f finds the call, f must return what the step's function would have returned. If f finds no
// call, Step calls the step's function again. If f returns an error, Step returns it.
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

// Step calls another system, the vendor, so that the call has one effect. The function f makes the
// call. f gets a key of 32 hexadecimal digits. Unless an operator edits the event, each attempt has
// the same key, so that the vendor recognises a repeated call. Step records in the database that
// the step begins, and calls f. If f returns no error, Step records the result of f. From then on,
// in every attempt and every process, Step returns that result and does not call f again. If two
// processes run the step at the same time, Step returns the first recorded result in both.
//
// If f returned an error, or the process ended before the result was recorded, the outcome of the
// call is not known. In later attempts, Step calls f again with the same key, as long as the vendor
// recognises it ([Subscription.VendorWindow], [VendorWindow]). After that, Step calls the [Lookup]
// function. Without one, it returns [ErrOutcomeUnknown]. So Step never makes a second call if the
// vendor could carry out both. If f wraps its error in [NotApplied], the call counts as not made.
//
// The parameter name identifies the step within the handler and must be the same in each attempt.
// The database keeps the result as long as it keeps the event's row in the inbox. So return a short
// result, such as the vendor's reference, and not a document.
func (c *Attempt) Step(ctx context.Context, name string, f func(ctx context.Context, key string) ([]byte, error), options ...StepOption) ([]byte, error) {
	o := c.steps.Options()
	for _, option := range options {
		option(&o)
	}
	return c.steps.Do(ctx, name, f, o)
}

// OnSuccess registers f. When the handler has returned nil, f runs in the transaction that records
// the event as done. So the changes that f makes with tx, including events that it writes to the
// outbox, are committed exactly once. If the inbox must repeat the transaction, it calls f again.
// If f returns an error, this counts as an error of the handler. Functions run in the order in
// which they were registered.
func (c *Attempt) OnSuccess(f func(ctx context.Context, tx pgx.Tx) error) {
	c.steps.OnSuccess(f)
}
