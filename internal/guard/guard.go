// Package guard calls functions of users, and protects the goroutines of this module from the
// faults of these functions. A function may panic or end its goroutine. Its error or the value of
// its panic may have methods that panic, never return, or return far too much.
//
// The rule is: code of this module uses a user's value only inside a guard, that is, in a function
// that this package calls. The results of a guard have types of this module.
package guard

import (
	"errors"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

// The largest numbers of bytes that this package keeps of a failure.
const (
	MaxText  = 2048
	MaxStack = 8192
)

var (
	// ErrGoexit says that a function ended its goroutine, as t.FailNow does.
	ErrGoexit = errors.New("it ended its goroutine with runtime.Goexit")

	// ErrTimeout says that a function did not return in time. Its goroutine may still be
	// running.
	ErrTimeout = errors.New("it did not return in time")
)

// PanicError is a recovered panic. It contains only texts, and never the value of the
// panic.
type PanicError struct {
	Text  string // the value's text, at most MaxText bytes
	Frame string // the function that panicked
	Stack string // at most MaxStack bytes
}

func (e *PanicError) Error() string { return "panic: " + e.Text }

// Call calls f. If f panics, Call returns a [*PanicError]. If f ends the goroutine, Call does
// not return; see [Apart].
func Call(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = recovered(v)
		}
	}()
	return f()
}

// Apart calls f in another goroutine and waits until f returns. The parameter within limits this
// time; 0 means no limit. Apart returns what f returns, or a [*PanicError] if f panicked,
// [ErrGoexit] if f ended the goroutine, or [ErrTimeout] if f did not return in time. After
// ErrTimeout, Apart drops the result of f.
func Apart[T any](within time.Duration, f func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1) // a buffer, so that the goroutine can end even after a timeout
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

// recovered returns the PanicError for the value of a panic. Call it in the deferred
// function that recovered the panic.
func recovered(v any) *PanicError {
	return &PanicError{Text: describe(v), Frame: frame(), Stack: Clean(string(debug.Stack()), MaxStack)}
}

// ours has the name prefixes of functions that are on the stack of a panic but are not its
// cause.
var ours = []string{
	"runtime.", "github.com/postroom/postroom/inbox.", "github.com/postroom/postroom/idempotency.",
	"github.com/postroom/postroom/relay.", "github.com/postroom/postroom/outbound.", "github.com/postroom/postroom/internal/guard.",
}

// frame returns the function that panicked: the first function on the stack that is not part of the
// runtime or of this module.
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
