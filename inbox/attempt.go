package inbox

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox/internal/steps"
	"github.com/postroom/postroom/internal/vendorcall"
)

// ExternalHandler handles one event by calling other systems; see [Inbox.HandleExternal].
// If it returns nil, the event is done.
type ExternalHandler func(ctx context.Context, attempt *Attempt) error

// External turns a function with a typed payload into an [ExternalHandler], as [postroom.JSON] does
// for a handler with a transaction. It decodes the event's data into a T first. If the data does
// not decode, the error is [postroom.Permanent].
func External[T any](f func(ctx context.Context, attempt *Attempt, payload T) error) ExternalHandler {
	return func(ctx context.Context, attempt *Attempt) error {
		var payload T
		if err := attempt.Event.JSON(&payload); err != nil {
			return err
		}
		return f(ctx, attempt, payload)
	}
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

// OnSuccess registers f. When the handler has returned nil, f runs in the transaction that records
// the event as done. So the changes that f makes with tx, including events that it writes to the
// outbox, are committed exactly once. If the inbox must repeat the transaction, it calls f again.
// If f returns an error, this counts as an error of the handler. Functions run in the order in
// which they were registered.
func (c *Attempt) OnSuccess(f func(ctx context.Context, tx pgx.Tx) error) {
	c.steps.OnSuccess(f)
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
// recognises it ([Subscription.VendorWindow], [postroom.VendorWindow]). After that, Step calls the
// [postroom.Lookup] function. Without one, it returns [ErrOutcomeUnknown]. So Step never makes a
// second call if the vendor could carry out both. If the error of f says that the vendor certainly
// did nothing, the call counts as not made. Errors of package outbound say so themselves, for
// instance after a refused connection. Wrap other such errors in [postroom.NotApplied].
//
// The result is recorded as JSON, and Step returns what it decodes from this JSON, also in the
// attempt that made the call. So a field that JSON leaves out is always empty. A []byte is recorded
// as a text in base64. A [encoding/json.RawMessage] is recorded as the JSON that it has, without
// spaces and with <, > and & escaped. A nil one is recorded as null, and an empty one does not encode:
// so use it only for a vendor whose answers are JSON. A struct{} is recorded as {}. As in all JSON of
// Go, U+FFFD replaces bytes of a string that are not UTF-8, and a number in an interface becomes a
// float64, which is exact only up to 2^53. If the result does not encode, the call was made all the same: its outcome counts
// as unknown. If a recorded result does not decode into a T, for instance because a new version of
// the program has another T, Step returns an error and does not call f. The next attempt reads the
// same result, so correct the type.
//
// The parameter name identifies the step within the handler and must be the same in each attempt.
// The database keeps the result as long as it keeps the event's row in the inbox. So return a short
// result, such as the vendor's reference, and not a document. Step panics if f is nil, or if the
// result of a Lookup has another type than the result of f.
func Step[T any](ctx context.Context, attempt *Attempt, name string, f func(ctx context.Context, key string) (T, error), options ...postroom.CallOption) (T, error) {
	//guard:a-step-without-a-function-does-not-begin false
	if f == nil {
		panic(fmt.Sprintf("inbox: step %.40s has no function", name))
	}
	set := vendorcall.Options{Window: attempt.steps.Window()}
	vendorcall.Set(&set, options)
	o := steps.Options{Window: set.Window}
	if lookup := vendorcall.LookupOf[T](set, "step "+name); lookup != nil {
		o.Lookup = func(ctx context.Context, key string) (any, bool, error) { return lookup(ctx, key) }
	}
	var result, none T
	err := attempt.steps.Do(ctx, name, func(ctx context.Context, key string) (any, error) { return f(ctx, key) }, o, &result)
	if err != nil {
		return none, err
	}
	return result, nil
}
