package outbound

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/postroom/postroom/internal/guard"
	"github.com/postroom/postroom/internal/sleep"
)

// operation is one call of RoundTrip: one or more attempts with one key.
type operation struct {
	t        *Transport
	req      *http.Request // the caller's request; it is not changed
	host     *host
	body     *body
	deadline time.Time

	origin
	keys
	tries
	credentials
	doubt
	last *Response // the latest response that the method discard kept; nil if there is no such response
	conclusion
}

// origin says where an operation comes from, if a redirect led to it.
type origin struct {
	earlier *operation // the operation whose response was the redirect
	foreign bool       // a redirect led to another host
}

// keys has the key of an operation in two forms.
type keys struct {
	key  string // the caller's key; "" if there is none
	sent string // the key that the vendor gets
}

// credentials has what Config.Refresh returned.
type credentials struct {
	refreshed     bool // Refresh was called
	authorization string
}

// tries counts attempts.
type tries struct{ attempts, attemptsLeft int }

// doubt says what the vendor may have done.
type doubt struct {
	delivered bool // an attempt sent something
	unsure    bool // the vendor may have acted on the operation
}

// conclusion says how the last attempt ended, and why no other attempt followed.
type conclusion struct {
	class  Class
	reason Reason
	later  bool // another call may end differently
}

// result says how an attempt ended.
type result struct {
	resp    *http.Response
	err     error
	class   Class // "" for a success
	told    keyState
	again   bool   // another attempt may end differently
	later   bool   // another call may end differently, after some time
	unsent  bool   // nothing was sent
	reason  Reason // set if it is certain that no attempt follows
	release context.CancelFunc
}

// prepare prepares the parts that all attempts share. Its error is never the vendor's fault.
func (op *operation) prepare() error {
	req, p := op.req, op.t.cfg.Protocol
	if err := contextError(req.Context()); err != nil {
		return err
	}
	if req.URL == nil || req.URL.Host == "" || req.URL.Scheme != "http" && req.URL.Scheme != "https" {
		return errors.New("the request's URL is not an absolute URL with http or https")
	}
	op.host = op.t.hosts.of(req.URL, op.t)
	keyed := req.Context().Value(keyOf{}) != nil || op.t.cfg.GenerateKeys ||
		len(linesOf(req.Header, p.header())) > 0 || op.earlier != nil && op.earlier.key != ""
	inMember := p.Field != "" && !p.Keyless && !isSafe(req.Method) && !op.foreign
	repeat := op.attemptsLeft > 1 && (op.repeatable() || keyed && !p.Keyless)
	b, err := newBody(req, inMember, repeat, op.t.cfg.MaxBody)
	op.body = b
	if err != nil {
		return err
	}
	if inMember {
		err = b.parse()
	}
	var keyErr error
	if op.keys, keyErr = op.t.cfg.chooseKey(req, op.body, op.origin); keyErr != nil {
		return keyErr
	}
	if op.sent == "" || !inMember {
		return nil
	}
	if err != nil && isIdempotent(req.Method) {
		op.key, op.sent = "", "" // the body has no place for a key, and the method needs none
		return nil
	}
	if err != nil {
		return err
	}
	return b.insert(p.Field, op.sent)
}

// repeatable reports whether it is safe to send the request again, even if the vendor has acted on
// it.
func (op *operation) repeatable() bool {
	return op.sent != "" || isIdempotent(op.req.Method) || op.req.Context().Value(repeatable{}) != nil
}

func (op *operation) run() (*http.Response, error) {
	op.host.budget.deposit(time.Now())
	for {
		r := op.attempt()
		wait, reason := op.next(r)
		if reason != "" {
			return op.finish(r, reason)
		}
		op.discard(r)
		op.t.metrics.retried(op.req.Context(), op.host.name, r.class, wait)
		op.t.cfg.Logger.LogAttrs(op.req.Context(), slog.LevelInfo, "outbound call is tried again",
			slog.String("host", op.host.name), slog.String("method", op.req.Method), slog.Int("attempt", op.attempts),
			slog.String("reason", string(r.class)), slog.Duration("wait", wait), slog.String("key", op.shown(op.t.cfg.RedactKeys)))
		sleep.For(op.req.Context(), wait)
		if err := contextError(op.req.Context()); err != nil {
			return op.finish(result{err: err, class: ClassCanceled}, ReasonCanceled)
		}
	}
}

// next returns how long to wait before the next attempt, or why no attempt follows.
func (op *operation) next(r result) (time.Duration, Reason) {
	switch {
	case r.reason != "":
		return 0, r.reason
	case op.refresh(r):
		return 0, ""
	case !r.again:
		return 0, ReasonFinal
	//guard:no-blind-repetition false
	case !op.repeatable() && !r.unsent:
		return 0, ReasonUnsafe
	//guard:attempts-are-counted false
	case op.attemptsLeft == 0:
		return 0, ReasonAttempts
	//guard:a-body-that-is-gone-is-not-sent-again false
	case !op.body.rewindable():
		return 0, ReasonRequest
	}
	wait := op.t.cfg.Schedule.Delay(op.attempts)
	if r.resp != nil {
		if asked, ok := ParseRetryAfter(r.resp.Header, time.Now()); ok {
			//guard:retry-after-has-a-bound false
			if asked > op.t.cfg.MaxRetryAfter {
				return 0, ReasonWait
			}
			// Retry-After is the minimum. A random time is added, so that callers do not all try
			// again at the same moment.
			wait = max(wait, asked+chance(min(asked/5, time.Second)))
		}
	}
	until := time.Now().Add(wait)
	if end, ok := op.req.Context().Deadline(); !until.Before(op.deadline) || ok && !until.Before(end) {
		return 0, ReasonDeadline
	}
	//guard:an-open-breaker-ends-retrying remove
	if _, open := op.host.breaker.open(); open {
		return 0, ReasonBreaker
	}
	//guard:retries-have-a-budget false
	if !op.host.budget.withdraw(time.Now(), wait) {
		return 0, ReasonBudget
	}
	return wait, ""
}

// refresh asks once for a new Authorization if the vendor refused the old one, and reports whether
// it got a new one.
func (op *operation) refresh(r result) bool {
	//guard:a-refresh-is-for-a-refusal 6 false
	//guard:a-refresh-stays-at-its-host 4 false
	if op.t.cfg.Refresh == nil || op.refreshed || op.attemptsLeft == 0 || op.foreign ||
		r.resp == nil || r.resp.StatusCode != http.StatusUnauthorized || !op.body.rewindable() {
		return false
	}
	//guard:refresh-is-asked-once false
	op.refreshed = true
	//guard:a-refresh-gets-no-key = op.req
	asking := op.req.WithContext(WithKey(op.req.Context(), "")) // what Refresh calls is another operation
	value, err := op.t.cfg.Refresh(asking)
	//guard:an-error-of-refresh-ends-nothing = @1
	err = guard.Seal(err)
	if err != nil {
		op.t.cfg.Logger.WarnContext(op.req.Context(), "no new authorization for an outbound call", "host", op.host.name, "error", clean(err.Error()))
		return false
	}
	op.authorization = value
	return value != ""
}

// finish ends the operation with the result of the last attempt.
func (op *operation) finish(r result, reason Reason) (*http.Response, error) {
	op.body.close()
	op.class, op.reason, op.later = r.class, reason, r.later
	if last, ok := op.req.Context().Value(lastOf{}).(**operation); ok {
		*last = op
	}
	if reason != ReasonFinal {
		op.t.metrics.ended(op.req.Context(), op.hostName(), reason)
	}
	if r.resp == nil {
		if r.release != nil {
			r.release()
		}
		return nil, op.failure(r.err, op.last, op.last.header())
	}
	r.resp.Request = op.req.WithContext(context.WithValue(op.req.Context(), resultOf{}, op))
	r.resp.Body = &responseBody{ReadCloser: r.resp.Body, release: r.release}
	return r.resp, nil
}

// failure returns the Error of the operation.
func (op *operation) failure(err error, last *Response, header http.Header) *Error {
	e := &Error{
		Method: op.req.Method, Host: op.hostName(), Attempts: op.attempts, Class: op.class, Reason: op.reason,
		Last: last, Err: err, sent: op.delivered, unsure: op.unsure, keyed: op.sent != "", later: op.later,
	}
	if e.Method == "" {
		e.Method = http.MethodGet
	}
	e.RetryAfter, _ = ParseRetryAfter(header, time.Now())
	if op.reason == ReasonBreaker {
		e.RetryAfter = max(e.RetryAfter, op.host.breaker.remaining())
	}
	return e
}

func (op *operation) hostName() string {
	if op.host == nil {
		return "?"
	}
	return op.host.name
}

// CheckResponse returns an [Error] if a response is a failure. Then it also reads a part of the
// body, which the Error keeps, and closes the body. Status 2xx, or 304 for GET and HEAD, is no
// failure, unless Decide returned Retry. Only a 202 that says that a call with the key is running,
// or that has a problem document, is a failure. If a response is no failure, the caller can read
// its whole body.
func CheckResponse(resp *http.Response) error {
	req := resp.Request
	if req == nil || req.URL == nil { // the response was not made by net/http
		req = &http.Request{Method: "?", URL: new(url.URL)}
	}
	op, _ := req.Context().Value(resultOf{}).(*operation)
	var class Class
	var told keyState
	if op != nil {
		class = op.class
	} else {
		told = toldOf(resp)
		class, _ = classOf(req.Method, resp, told)
	}
	if class == "" {
		return nil
	}
	if resp.Body == nil { // the response was not made by net/http
		resp.Body = http.NoBody
	}
	kept := keep(resp)
	_ = resp.Body.Close()
	if op != nil {
		return op.failure(nil, kept, resp.Header)
	}
	//guard:a-doubt-is-no-rejection 1.8 remove
	e := &Error{
		Method: req.Method, Host: hostOf(req.URL), Attempts: 1, Class: class, Reason: ReasonFinal,
		Last: kept, sent: true, unsure: !Protocol{}.rejected(resp, told),
	}
	e.RetryAfter, _ = ParseRetryAfter(resp.Header, time.Now())
	return e
}

const (
	keepAtMost = 64 << 10               // how many bytes of the body of a failed attempt are kept
	drainFor   = 500 * time.Millisecond // limits the time to read the body of an attempt that is not the last
)

// keep reads the part of a response that an Error keeps.
func keep(resp *http.Response) *Response {
	kept := &Response{Status: resp.StatusCode, Header: resp.Header}
	//guard:a-failures-body-has-a-limit 1 = @1
	body, err := io.ReadAll(io.LimitReader(resp.Body, keepAtMost))
	kept.Body, kept.Truncated = body, err != nil
	if !kept.Truncated && len(body) == keepAtMost {
		n, err := resp.Body.Read(make([]byte, 1))
		kept.Truncated = n > 0 || !errors.Is(guard.Seal(err), io.EOF)
	}
	return kept
}

// discard keeps a part of the response of an attempt and closes the body, so that the connection
// can be used again.
func (op *operation) discard(r result) {
	if r.resp != nil {
		limit := time.AfterFunc(drainFor, r.release)
		op.last = keep(r.resp)
		_ = r.resp.Body.Close()
		limit.Stop()
	}
	r.release()
}

// contextError returns why a context ended, or nil. With errors.Is, the returned error matches both
// the context's error and the context's cause.
func contextError(ctx context.Context) error {
	//guard:a-cause-of-any-type-ends-nothing 2 = @1
	err, cause := ctx.Err(), guard.Seal(context.Cause(ctx)) // a user's code may have made the cause
	if err == nil || errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}
