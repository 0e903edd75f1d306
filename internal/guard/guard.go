// Package guard calls what users wrote, and keeps what goes wrong there from reaching
// the goroutines of this module: a panic, an end of the goroutine, and an error or a
// panic value whose own methods panic, never end or return far too much.
//
// The rule is that a value of a user's is touched inside a guard only. What leaves the
// guard is made of our own types.
package guard

import (
	"errors"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

// Limits of what is kept of a failure, in bytes.
const (
	MaxText  = 2048
	MaxStack = 8192
)

var (
	// ErrGoexit says that a function ended its goroutine, as t.FailNow does.
	ErrGoexit = errors.New("it ended its goroutine with runtime.Goexit")

	// ErrTimeout says that a function did not return in time. Its goroutine is left behind.
	ErrTimeout = errors.New("it did not return in time")
)

// PanicError is a panic that was recovered. It holds texts only, never the value of the
// panic.
type PanicError struct {
	Text  string // the value's text, at most MaxText bytes
	Frame string // the function that panicked
	Stack string // at most MaxStack bytes
}

func (e *PanicError) Error() string { return "panic: " + e.Text }

// Call calls f. A panic of f is returned as a [*PanicError]. Where f ends the goroutine,
// Call does not return; see [Apart].
func Call(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = recovered(v)
		}
	}()
	return f()
}

// Apart calls f in a goroutine of its own, and waits for it for the given time, or for as
// long as it takes where that is 0. Beside
// what [Call] returns there is [ErrGoexit], and [ErrTimeout] for a function that is left
// behind: whatever it does from then on counts for nothing.
func Apart[T any](within time.Duration, f func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1) // has room, so that one that was left behind ends
	go func() {
		r := result{err: ErrGoexit}
		defer func() { done <- r }()
		var value T
		err := Call(func() (err error) {
			value, err = f()
			return err
		})
		r = result{value, err}
	}()
	var late <-chan time.Time
	if within > 0 {
		timer := time.NewTimer(within)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case r := <-done:
		return r.value, r.err
	case <-late:
		var none T
		return none, ErrTimeout
	}
}

// recovered makes a PanicError of the value of a panic, for the deferred function that
// recovered it.
func recovered(v any) *PanicError {
	return &PanicError{Text: describe(v), Frame: frame(), Stack: Clean(string(debug.Stack()), MaxStack)}
}

// ours begins the names of the functions that a panic passes through and that do not
// explain it.
var ours = []string{
	"runtime.", "github.com/postroom/postroom/inbox.", "github.com/postroom/postroom/idempotency.",
	"github.com/postroom/postroom/relay.", "github.com/postroom/postroom/outbound.", "github.com/postroom/postroom/internal/guard.",
}

// frame returns the function that panicked: the first that is neither the runtime's nor
// one of ours.
func frame() string {
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs)])
	for {
		f, more := frames.Next()
		if f.Function != "" && !isOurs(f.Function) {
			return f.Function
		}
		if !more {
			return ""
		}
	}
}

func isOurs(function string) bool {
	for _, prefix := range ours {
		if strings.HasPrefix(function, prefix) {
			return true
		}
	}
	return false
}
