package outbound

import (
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postroom/postroom/internal/guard"
)

// errNothing is the error of an attempt if Config.Next returned nothing.
var errNothing = errors.New("the next RoundTripper returned neither a response nor an error")

// errLate is the error of an attempt that was not made, because no time was left.
var errLate = errors.New("the operation's time was over before the request could be sent")

// attempt sends the request once.
func (op *operation) attempt() result {
	ctx := op.req.Context()
	//guard:no-caller-waits-nothing-is-sent false
	if err := contextError(ctx); err != nil {
		return result{err: err, class: ClassCanceled, reason: ReasonCanceled}
	}
	limit := min(op.t.cfg.AttemptTimeout, time.Until(op.deadline))
	if limit <= 0 { // the caller's body or Refresh used up the time, which is not a fault of the host
		return result{err: errLate, class: ClassTimeout, reason: ReasonDeadline}
	}
	sending, err := op.body.open()
	if err != nil {
		return result{err: err, class: ClassInvalid, reason: ReasonRequest}
	}
	done, ok := op.host.breaker.allow()
	if !ok {
		if sending != nil {
			_ = sending.Close()
		}
		return result{class: ClassBreaker, reason: ReasonBreaker}
	}
	//guard:a-panic-says-nothing = error(nil)
	word := errNoWord // the variable word stays errNoWord if Next panics
	defer func() { done(word) }()
	op.attempts++
	op.attemptsLeft--

	late := &timeoutError{after: limit}
	attempt, release := context.WithTimeoutCause(context.WithValue(ctx, attemptOf{}, true), limit, late)
	attempt, span := op.t.metrics.begin(attempt, op)
	p := new(probe)
	attempt = httptrace.WithClientTrace(attempt, p.trace())
	begun := time.Now()
	resp, err := op.send(attempt, sending, limit)
	took := time.Since(begun)

	var astray error
	if resp != nil {
		//guard:a-next-that-follows-redirects-is-found remove
		astray = op.astray(resp)
	}
	r := result{resp: resp, err: err, release: release}
	switch {
	case astray != nil:
		r.resp, r.err, r.class, r.reason = nil, astray, ClassRedirect, ReasonFinal
	case err == nil:
		r.told = toldOf(resp)
		//guard:what-has-no-key-says-nothing-about-one false
		if r.told == keyUnread && op.sent == "" {
			r.told = keyUntold
		}
		r.class, r.again = classOf(op.req.Method, resp, r.told)
	//guard:a-callers-deadline-is-no-outage false
	case ctx.Err() != nil:
		r.err, r.class, r.reason = contextError(ctx), ClassCanceled, ReasonCanceled
	case sending.broken() != nil:
		r.err, r.class, r.reason = sending.broken(), ClassInvalid, ReasonRequest
	case attempt.Err() != nil:
		r.err, r.class, r.again = late, ClassTimeout, true
	default:
		_, native := op.t.cfg.Next.(*http.Transport)
		r.class, r.again = classOfError(err, native, p.asked.Load())
	}
	//guard:a-repetition-below-is-a-doubt false
	if p.wrote.Load() > 1 { // http.Transport repeated it, and the answer is only about the last time
		op.unsure = true
	}
	op.account(&r, p.unsent(err))
	word = op.word(r)
	op.t.metrics.attempted(ctx, op, span, r, took)
	return r
}

// send passes one attempt to Next.
func (op *operation) send(ctx context.Context, body *sentBody, limit time.Duration) (*http.Response, error) {
	req := op.req.Clone(ctx)
	//guard:a-request-without-headers-is-one false
	if req.Header == nil {
		req.Header = make(http.Header)
	}
	if body != nil {
		req.Body, req.GetBody, req.ContentLength = body, op.body.again, op.body.length
		//guard:the-length-is-that-of-what-is-sent false
		if op.body.kept != nil {
			req.Header.Del("Content-Length")
		}
	}
	op.t.metrics.propagate(ctx, req.Header)
	//guard:no-context-of-a-trace-abroad do @; op.t.metrics.propagate(ctx, req.Header)
	op.setHeaders(req, limit)
	resp, err := op.t.cfg.Next.RoundTrip(req)
	err = guard.Seal(err) // a user's code may have made the error
	switch {
	case err != nil && resp != nil:
		//guard:an-error-beats-a-response false
		if resp.Body != nil {
			_ = resp.Body.Close()
		}
		return nil, err
	//guard:nothing-is-no-answer false
	case err == nil && resp == nil:
		return nil, errNothing
	//guard:a-response-without-a-body-is-one false
	case resp != nil && resp.Body == nil:
		resp.Body = http.NoBody
	}
	return resp, err
}

// setHeaders adds the transport's headers to those of the caller, and removes headers
// that must not be sent.
func (op *operation) setHeaders(req *http.Request, limit time.Duration) {
	if op.authorization != "" { // the method refresh never sets this field for another host
		setHeader(req.Header, "Authorization", op.authorization)
	}
	if name := op.t.cfg.TimeoutHeader; name != "" {
		setHeader(req.Header, name, strconv.FormatInt(max(limit.Milliseconds(), 1), 10))
	}
	carrier := op.t.cfg.Protocol.header()
	if op.foreign || op.key == "" && !isSafe(req.Method) {
		// If a request has one of these two headers, http.Transport itself may repeat it.
		//guard:no-blind-repetition-below remove
		req.Header.Del("Idempotency-Key")
		req.Header.Del("X-Idempotency-Key")
		if carrier != "" {
			req.Header.Del(carrier)
		}
	} else if carrier != "" && op.sent != "" {
		setHeader(req.Header, carrier, op.sent)
	}
	if op.foreign { // after all headers are set: no header of this package goes abroad either
		//guard:no-secrets-abroad remove
		goAbroad(req.Header)
	}
}

// setHeader sets a header, and removes other spellings of it: http.Transport sends each spelling that
// is in the map, and a library of a vendor may have put one there, such as PayPal-Request-Id.
func setHeader(h http.Header, name, value string) {
	//guard:a-header-has-one-spelling remove
	maps.DeleteFunc(h, func(other string, _ []string) bool { return strings.EqualFold(other, name) })
	h.Set(name, value)
}

// linesOf returns the values of a header in any spelling.
func linesOf(h http.Header, name string) (lines []string) {
	for other, values := range h {
		//guard:a-key-has-any-spelling = other == http.CanonicalHeaderKey(name)
		if strings.EqualFold(other, name) {
			lines = append(lines, values...)
		}
	}
	return lines
}

// account records what the vendor may have done because of the attempt. Then it calls Config.Decide
// and, if necessary, Protocol.Decide.
func (op *operation) account(r *result, unsent bool) {
	r.unsent = r.err != nil && unsent
	//guard:unsent-is-not-done true
	if !r.unsent {
		op.delivered = true
		//guard:a-doubt-is-not-forgotten do op.unsure = @1 || @2
		if r.resp == nil || !op.t.cfg.Protocol.rejected(r.resp, r.told) {
			op.unsure = true
		}
	}
	//guard:a-caller-who-has-gone-is-not-decided-on false
	if r.reason != "" {
		return
	}
	decision := Undecided
	if op.t.cfg.Decide != nil {
		decision = op.t.cfg.Decide(r.resp, r.err)
	}
	//guard:the-config-decides-first 1 true
	//guard:a-protocol-decides-about-responses 2 true
	if decision == Undecided && r.resp != nil && op.t.cfg.Protocol.Decide != nil {
		decision = op.t.cfg.Protocol.Decide(r.resp)
	}
	//guard:a-kept-failure-is-not-asked-for-again false
	//guard:what-is-kept-decides-last 1 true
	if decision == Undecided && r.resp != nil && op.key != "" && r.class != "" && r.resp.Header.Get("Idempotent-Replayed") == "true" {
		decision = Stop // the vendor keeps this answer with the key, so the next answer would be the same
	}
	switch decision {
	case Retry:
		r.again = true
		//guard:a-refused-success-is-a-failure 1 false
		if r.class == "" || r.class == ClassConflict {
			r.class = ClassBusy
		}
	case Stop:
		r.again = false
	}
	//guard:a-call-under-way-is-not-permanent 2 false
	r.later = r.again || decision == Undecided && r.resp != nil && op.sent != "" && slices.Contains(op.t.cfg.Protocol.Busy, r.resp.StatusCode)
}

// word returns what an attempt tells the breaker: nil (success), errOutage or errNoWord.
func (op *operation) word(r result) error {
	switch {
	case r.resp != nil && !isOutage(r.resp.StatusCode):
		return nil
	case r.resp != nil, r.class == ClassTimeout:
		return errOutage
	case r.class == ClassConnection:
		return errOutage
	}
	return errNoWord
}

// A probe records whether an attempt asked for a connection and got one, and how many times the
// request was written.
type probe struct {
	asked, got atomic.Bool
	wrote      atomic.Int32
}

func (p *probe) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GetConn: func(string) { p.asked.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { p.got.Store(true) },

		WroteHeaders: func() { p.wrote.Add(1) },
	}
}

// unsent reports whether an attempt that ended with err certainly sent nothing. Two conditions make
// this certain. The attempt got no connection. And either it asked for a connection, or err says
// that nothing was sent.
func (p *probe) unsent(err error) bool {
	if err == nil || p.got.Load() {
		return false
	}
	var (
		operation *net.OpError
		name      *net.DNSError
	)
	//guard:next-says-that-nothing-was-sent 2 false
	//guard:a-host-that-is-not-found-was-sent-nothing 3 = @2.1 != nil
	return p.asked.Load() || errors.Is(err, ErrNotSent) || errors.As(err, &name) ||
		errors.As(err, &operation) && (operation.Op == "dial" || operation.Op == "proxyconnect")
}

// responseBody ends the attempt's context when the body has been read or is closed.
type responseBody struct {
	io.ReadCloser
	release context.CancelFunc
	once    sync.Once
}

func (b *responseBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.once.Do(b.release)
	}
	return n, err
}

func (b *responseBody) Close() error {
	err := b.ReadCloser.Close()
	b.once.Do(b.release)
	return err
}
