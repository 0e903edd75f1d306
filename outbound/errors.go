package outbound

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/guard"
	"github.com/postroom/postroom/internal/vendorcall"
)

var (
	// ErrNotSent matches an [Error] if no attempt sent anything: the breaker was open, there was no
	// connection, or the request could not be made. It is safe to call again, with or without a
	// key.
	ErrNotSent = errors.New("nothing was sent")

	// ErrRejected matches an [Error] if the vendor rejected the request, and also did nothing in
	// earlier attempts.
	ErrRejected = errors.New("the vendor rejected the request")

	// ErrAttempts matches an [Error] if all attempts of the operation are used up.
	ErrAttempts = errors.New("all attempts are used up")

	// ErrBudget matches an [Error] if the operation was not tried again because the retry
	// budget of its host is spent.
	ErrBudget = errors.New("the retry budget is spent")

	// ErrBreakerOpen matches an [Error] if the operation was not tried, or not tried
	// again, because the circuit breaker of its host is open.
	ErrBreakerOpen = errors.New("the circuit breaker is open")

	// ErrRedirect matches an [Error] if the vendor answered with a redirect that the request must
	// not follow. After 307 and 308 the vendor certainly did nothing. After any other redirect the
	// vendor may have acted.
	ErrRedirect = errors.New("the vendor redirected the request to a place that it must not follow")

	// ErrDeadline matches an [Error] if the operation was not tried again because Config.Total or
	// the deadline of the context left no time, or because Retry-After was too long.
	ErrDeadline = errors.New("no time is left")
)

// Reason says why an operation had no further attempt.
type Reason string

// The reasons.
const (
	ReasonFinal    Reason = "final"       // another attempt would end the same way
	ReasonUnsafe   Reason = "unsafe"      // the vendor may have acted, and would not recognise a repetition
	ReasonAttempts Reason = "attempts"    // all attempts are used up
	ReasonBudget   Reason = "budget"      // the retry budget is spent
	ReasonBreaker  Reason = "breaker"     // the circuit breaker is open
	ReasonDeadline Reason = "deadline"    // no time is left
	ReasonWait     Reason = "retry_after" // the vendor asks for a longer wait than Config.MaxRetryAfter
	ReasonCanceled Reason = "canceled"    // the caller's context ended
	ReasonRequest  Reason = "request"     // the request cannot be sent, or cannot be sent again
)

// Error is the error of a failed operation. Its text has the host and what happened, but no path,
// query or header. errors.Is matches it with sentinels of this package and with the errors in Err.
type Error struct {
	Method   string
	Host     string
	Attempts int    // how many attempts were made
	Class    Class  // how the last attempt ended
	Reason   Reason // why there was no further attempt

	// Last is the last response of any attempt. It is nil if no attempt had a response.
	Last *Response

	// RetryAfter is how long to wait before another call, as the vendor or the open breaker asks.
	// It is 0 if neither asks for a wait.
	RetryAfter time.Duration

	// Err is the error of the last attempt. It is nil if that attempt had a response.
	Err error

	sent   bool // some attempt sent something
	unsure bool // the vendor may have acted on the operation
	keyed  bool // the vendor got a key
	later  bool // another call may end differently, even after ClassInvalid
}

// Response is the part of a vendor's answer that an Error keeps.
type Response struct {
	Status int
	Header http.Header

	// Body is the first 64 KiB of the body, or less.
	Body []byte

	// Truncated says that the body was longer than Body, or broke off.
	Truncated bool
}

// header returns the header of the response, or nil if there is no response.
func (r *Response) header() http.Header {
	if r == nil {
		return nil
	}
	return r.Header
}

// Error describes the failure.
func (e *Error) Error() string {
	text := "outbound: " + e.Method + " " + e.Host
	switch {
	case e.Err != nil:
		text += ": " + clean(e.Err.Error())
	case e.Last != nil:
		text += fmt.Sprintf(": %d %s", e.Last.Status, http.StatusText(e.Last.Status))
	}
	switch e.Reason {
	case ReasonUnsafe:
		text += "; not tried again, because the vendor may have acted and got no key to recognise a repetition"
	case ReasonAttempts:
		text += fmt.Sprintf("; given up after %d attempts", e.Attempts)
	case ReasonBudget:
		text += fmt.Sprintf("; not tried again after %d attempts, because the retry budget of the host is spent", e.Attempts)
	case ReasonBreaker:
		text += fmt.Sprintf("; the circuit breaker of the host is open, after %d attempts", e.Attempts)
	case ReasonDeadline:
		text += fmt.Sprintf("; not tried again after %d attempts, because no time is left", e.Attempts)
	case ReasonWait:
		text += fmt.Sprintf("; the vendor asks to wait %s", e.RetryAfter)
	}
	return text
}

// Unwrap returns the error of the last attempt, or nil.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is a sentinel that applies to e: one of this package, or
// [postroom.ErrNotApplied]. An Error matches postroom.ErrNotApplied if the vendor certainly did
// nothing: nothing was sent, or the vendor rejected everything. So if the function of an inbox.Step
// or an idempotency.Call returns the Error, the call counts as not made.
func (e *Error) Is(target error) bool {
	switch target {
	case postroom.ErrNotApplied:
		//guard:only-what-did-certainly-not-happen-is-not-applied true
		return !e.sent || !e.unsure
	case vendorcall.ErrMayBeApplied:
		//guard:an-unknown-outcome-is-a-veto false
		return e.sent && e.unsure
	case ErrNotSent:
		return !e.sent
	case ErrRejected:
		return e.sent && !e.unsure
	case ErrAttempts:
		return e.Reason == ReasonAttempts
	case ErrBudget:
		return e.Reason == ReasonBudget
	case ErrBreakerOpen:
		return e.Reason == ReasonBreaker
	case ErrRedirect:
		return e.Class == ClassRedirect
	case ErrDeadline:
		return e.Reason == ReasonDeadline || e.Reason == ReasonWait
	}
	return false
}

// Timeout reports whether the last attempt took too long.
func (e *Error) Timeout() bool { return e.Class == ClassTimeout }

// snoozeUnsent is how long the inbox waits before it runs a handler again, if the handler's call
// was not sent. If the breaker is open, the inbox waits until the breaker lets a call through.
const snoozeUnsent = 15 * time.Second

// ForHandler converts err for a handler of events. It returns:
//
//   - [postroom.Permanent] if another attempt would end the same way, for instance because the host
//     has a bad certificate. But the error is not
//     permanent if the vendor or Decide said to try again, or if the status may mean that a call
//     with the same key is running;
//   - [postroom.Snooze] if nothing was sent, because the breaker was open, the budget was spent, or
//     there was no connection or no address. The handler runs again after 15 seconds, or when the
//     breaker lets the next call through;
//   - [postroom.RetryAfter] if the vendor asks for a wait;
//   - otherwise err unchanged.
func ForHandler(err error) error {
	var e *Error
	if !errors.As(err, &e) {
		return err
	}
	switch e.Class {
	case ClassInvalid, ClassAuth, ClassRedirect:
		//guard:an-answer-to-try-again-is-not-permanent false
		if e.later {
			break
		}
		//guard:a-passing-fault-is-not-permanent false
		if e.Reason == ReasonRequest && isPassing(e.Err) {
			return err // the reader of the request's body may succeed the next time
		}
		return postroom.Permanent(err)
	case ClassConflict:
		// If the call has a key, the answer may be about an earlier call with the same key.
		//guard:a-conflict-with-a-key-is-tried-again true
		if !e.keyed {
			return postroom.Permanent(err)
		}
	}
	switch {
	//guard:a-bad-certificate-is-permanent false
	case e.Class == ClassConnection && e.Reason == ReasonFinal && !e.sent && !e.later: // a bad certificate, or no TLS
		return postroom.Permanent(err)
	case !e.sent:
		return postroom.Snooze(cmp.Or(e.RetryAfter, snoozeUnsent), err)
	case e.RetryAfter > 0:
		return postroom.RetryAfter(e.RetryAfter, err)
	}
	return err
}

// isPassing reports whether the cause of an error may be gone at the next attempt.
func isPassing(err error) bool {
	err = guard.Seal(err) // the error may come from a user's code
	var network net.Error
	return errors.As(err, &network) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) ||
		errors.Is(err, io.ErrUnexpectedEOF)
}

// timeoutError is the error of an attempt that took too long. It does not match
// context.DeadlineExceeded, because a match would say that the caller's context ended.
type timeoutError struct{ after time.Duration }

func (e *timeoutError) Error() string { return fmt.Sprintf("no answer within %s", e.after) }
func (*timeoutError) Timeout() bool   { return true }
func (*timeoutError) Temporary() bool { return true }

// addresses matches URLs in texts of errors. Only host and port may be shown.
var addresses = regexp.MustCompile(`([a-zA-Z][a-zA-Z0-9+.-]*://)(?:[^/\s"'@]*@)?([^/\s"'?#]*)[^\s"']*`)

// quotes matches the texts with which net/http quotes a header or the status line of a response. A
// header may be a secret.
var quotes = regexp.MustCompile(`(?s)(malformed (?:MIME|HTTP)[ a-z]*|failed to parse Location header|Content-Length(?: headers)?|transfer encodings?|[Tt]railer key).*`)

// clean removes possible secrets from the text of an error, and limits its length.
func clean(text string) string {
	text = addresses.ReplaceAllString(guard.Clean(text, 4<<10), "$1$2")
	//guard:an-errors-text-quotes-no-header = text
	text = quotes.ReplaceAllString(text, "$1")
	if len(text) > 300 {
		text = strings.ToValidUTF8(text[:300], "") + "…"
	}
	return text
}
