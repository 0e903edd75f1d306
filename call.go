package postroom

import (
	"context"
	"time"

	"github.com/postroom/postroom/internal/vendorcall"
)

// NotApplied wraps the error of a call to another system to say that the call certainly had no
// effect: for instance, the connection was refused, or the vendor rejected the request. Return it
// from the function of an inbox.Step or an idempotency.Call. Then the call counts as not made. So
// the next attempt may make it, even if the vendor does not recognise repeated calls. If the call
// may have had an effect, for instance after a timeout, do not wrap the error.
//
// Errors of package outbound need no NotApplied: they match [ErrNotApplied] if the vendor certainly
// did nothing. A step can return an error that joins or wraps several. Then the call counts as not
// made only if at least one of them matches ErrNotApplied, and none is an error of package outbound
// that does not match. If you wrap such an error in NotApplied, the call counts as not made, because
// you say so. But if you wrap a join of errors that contradict each other, the outcome stays
// unknown. If the context ended during the call, its cause says nothing about the call: the cause
// may be the error of another call.
//
// NotApplied returns nil if err is nil. The result has the text of err, and matches err and
// ErrNotApplied with errors.Is.
func NotApplied(err error) error { return vendorcall.NotApplied(err) }

// CallOption changes how an inbox.Step or an idempotency.Call calls another system, the vendor.
// [VendorWindow] and [Lookup] return one.
type CallOption interface{ callOption() }

// windowOption is a CallOption.
type windowOption time.Duration

func (windowOption) callOption() {}

// Set is called by the packages that make calls.
func (d windowOption) Set(o *vendorcall.Options) { o.HasWindow, o.Window = true, time.Duration(d) }

// VendorWindow sets for how long the vendor recognises a key that it got before. The time begins
// with the first call that has the key. A call that begins at the end of the window may take as long
// as the handler's time limit. So the call is repeated only if less than d minus this limit has
// passed. Use 0 for a vendor that recognises no keys. A negative d counts as 0.
//
// Without this option, an inbox.Step has the VendorWindow of its Subscription. For an
// idempotency.Call the window has no end by default; with a Lookup, the default is 0.
func VendorWindow(d time.Duration) CallOption { return windowOption(max(d, 0)) }

// lookupOption is a CallOption.
type lookupOption struct{ f any }

func (lookupOption) callOption() {}

// Set is called by the packages that make calls.
func (l lookupOption) Set(o *vendorcall.Options) { o.Lookup = l.f }

// Lookup sets a function that asks the vendor whether a call happened. It runs if the outcome of
// earlier calls is unknown and the vendor may no longer recognise their key. f gets that key. If f
// finds a call, its result must be what the call's function would have returned, and T must be the
// same type. If f finds no call, the call is made again. So f must find every call that reached the
// vendor. If f returns an error, nothing is called, and the step or call returns the error.
func Lookup[T any](f func(ctx context.Context, key string) (result T, found bool, err error)) CallOption {
	return lookupOption{f}
}
