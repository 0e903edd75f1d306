package idempotency

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/postroom/postroom/idempotency/internal/answer"
	"github.com/postroom/postroom/idempotency/internal/failure"
	"github.com/postroom/postroom/idempotency/internal/fingerprint"
)

// route is a Route together with its guard.
type route struct {
	Route

	g    *Guard
	next http.Handler
	warn sync.Once // logs once that multipart is refused
}

// Handler puts the guard in front of next. Put authentication, rate and size limits, CORS and
// compression around the guard: a request that they refuse must not use up its key.
//
// The handler next gets a copy of the request, with the body in memory, and a ResponseWriter that
// holds the answer back until the guard has stored it. So next cannot stream, hijack or send
// trailers. The ResponseWriter has the headers that outer code set, and next may remove them. The
// request's context does not end when the client disconnects; see [Route.Timeout]. If next panics,
// the guard rolls back, and the panic continues.
//
// [Guard.Check] returns rt's faults. Until they are fixed, the guard answers requests with 500.
func (g *Guard) Handler(rt Route, next http.Handler) http.Handler {
	r := &route{Route: rt.defaults(), g: g, next: next}
	if err := r.validate(); err != nil {
		g.report(err)
	}
	if g.cfg.Principal == nil && !r.Unsupported {
		g.report(errors.New("config: Principal is missing: each caller must have its own keys; use Anonymous if there is no authentication"))
	}
	return r
}

func (g *Guard) fault() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return errors.Join(g.faults...)
}

func (g *Guard) report(fault error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.faults = append(g.faults, fault)
}

// guardMark marks the context of a request that a guard is serving. Its value is a *served.
type guardMark struct{}

// served is a request that a guard is serving.
type served struct {
	g     *Guard
	key   string // "" if the request has no key
	outer *http.Request
	body  []byte
}

// serving returns the request that the guard is serving, and in whose context r was made, or nil.
func (g *Guard) serving(r *http.Request) *served {
	s, _ := r.Context().Value(guardMark{}).(*served)
	//guard:another-guards-mark-does-not-count false
	if s == nil || s.g != g {
		return nil
	}
	return s
}

// is reports whether r is the request that is being served, and not another request that its handler
// made: r is the same up to its body, and a router has at most removed a part of its path.
func (s *served) is(r *http.Request, key string) bool {
	//guard:another-key-is-another-request 1 true
	//guard:another-method-is-another-request 2 true
	//guard:another-target-is-another-request 3 true
	//guard:another-path-is-another-request 4 true
	//guard:another-query-in-a-copy-is-another-request 5 true
	return key == s.key && r.Method == s.outer.Method && r.RequestURI == s.outer.RequestURI && strings.HasSuffix(s.outer.URL.Path, r.URL.Path) &&
		r.URL.RawQuery == s.outer.URL.RawQuery
}

// ServeHTTP answers a request.
func (rt *route) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	lines := rt.lines(r)
	outer := rt.g.serving(r)
	//guard:what-has-no-key-passes-inside false
	if outer != nil && len(lines) == 0 {
		rt.next.ServeHTTP(w, r)
		return
	}
	//guard:a-faulty-guard-runs-nothing false
	if fault := rt.g.fault(); fault != nil {
		rt.misconfigured(w, r, fault)
		return
	}
	required, optional := slices.Contains(rt.Required, r.Method), slices.Contains(rt.Optional, r.Method)
	switch {
	case rt.Unsupported && len(lines) > 0:
		rt.refuse(w, CodeNotSupported, "")
		return
	case rt.Unsupported || !required && !optional:
		rt.next.ServeHTTP(w, r)
		return
	}
	value, err := rt.Key.parse(lines)
	//guard:a-key-inside-a-request-with-a-key-is-refused false
	if outer != nil && outer.key != "" {
		rt.inside(w, r, outer, value)
		return
	}
	if errors.Is(err, ErrMissingKey) && !required {
		rt.unkeyed(w, r)
		return
	}
	if err != nil {
		rt.refuse(w, codeOf(err), detailOf[codeOf(err)]+detail(err))
		return
	}
	op, body, ok := rt.operation(w, r, value)
	if ok {
		op.run = rt.runner(w, r, body)
		rt.answer(w, r, rt.g.execute(r.Context(), op))
	}
}

// inside serves a request with a key whose context is that of a request with a key. If it is the same
// request, which has come to a second guard, the request passes. Another request with a key has no
// transaction in which its answer could be kept, so the guard refuses it.
func (rt *route) inside(w http.ResponseWriter, r *http.Request, outer *served, key string) {
	same := outer.is(r, key)
	if same {
		body, ok := rt.read(w, r)
		if !ok {
			return
		}
		//guard:another-body-is-another-request = true
		same = bytes.Equal(body, outer.body)
		r = r.WithContext(r.Context())
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	//guard:a-nested-guard-passes-through false
	if same {
		rt.next.ServeHTTP(w, r)
		return
	}
	rt.g.cfg.Logger.ErrorContext(r.Context(), "request refused: it has a key, and is sent inside another request with a key", "pattern", r.Pattern, "outer", outer.outer.Pattern)
	rt.refuse(w, CodeMisconfigured, "The request was sent inside another request with a key. Send it without a key, so that the key of the outer request protects it too.")
}

// detail returns the text of an ErrInvalidKey, which never quotes the key, and "" for other errors.
func detail(err error) string {
	if errors.Is(err, ErrInvalidKey) {
		return err.Error()
	}
	return ""
}

// lines returns the lines of the first header that has a key.
func (rt *route) lines(r *http.Request) []string {
	for _, name := range rt.Headers {
		if lines := r.Header.Values(name); len(lines) > 0 {
			return lines
		}
	}
	return nil
}

func (rt *route) misconfigured(w http.ResponseWriter, r *http.Request, fault error) {
	rt.g.cfg.Logger.ErrorContext(r.Context(), "request refused: the idempotency guard is not set up correctly",
		"pattern", r.Pattern, "error", fault)
	rt.refuse(w, CodeMisconfigured, "")
}

// operation returns the operation that a request asks for. If there is none, it answers the request
// and returns false.
func (rt *route) operation(w http.ResponseWriter, r *http.Request, value string) (*operation, []byte, bool) {
	principal, err := rt.g.cfg.Principal(r)
	//guard:who-cannot-be-asked-has-not-said-no = @ && false
	if err != nil && failure.IsInterruption(err) { // Principal ran out of time
		rt.g.cfg.Logger.WarnContext(r.Context(), "principal of a request not determined", "error", err)
		rt.refuse(w, CodeUnavailable, "")
		return nil, nil, false
	}
	//guard:no-principal-no-keys false
	if err != nil || principal == "" {
		rt.g.cfg.Logger.InfoContext(r.Context(), "a request with an idempotency key has no principal", "error", err)
		rt.refuse(w, CodeUnauthorized, "")
		return nil, nil, false
	}
	key, other := Key{Scope: rt.scope(r), Principal: principal, Value: value}.stored(rt.g.cfg.HashPrincipal)
	if err := key.check(); err != nil {
		rt.misconfigured(w, r, fmt.Errorf("scope: %w: mount the handler in a http.ServeMux, or set Route.Scope", err))
		return nil, nil, false
	}
	op := &operation{key: key, other: other, keyed: true, lock: key.lock(rt.g.store.schema), rules: &rt.Route, timeout: rt.timeout(r)}
	body, ok := rt.read(w, r)
	if !ok {
		return nil, nil, false
	}
	//guard:a-form-read-outside-is-no-body 3 = @1
	//guard:a-body-read-outside-is-not-empty 3.1 false
	if rt.PrintFunc == nil && len(body) == 0 && (r.ContentLength > 0 || len(r.PostForm) > 0 || r.MultipartForm != nil) {
		rt.misconfigured(w, r, errors.New("the body was read before the guard, so the guard cannot compare requests: "+
			"make its reader restore the body, move the reader behind the guard, or set Route.PrintFunc"))
		return nil, nil, false
	}
	p := fingerprint.Printer{Request: r, Body: body, Headers: rt.PrintHeaders, Parts: rt.Multipart, Own: rt.PrintFunc}
	op.print, err = p.Print(rt.kind())
	if errors.Is(err, fingerprint.ErrMultipart) {
		rt.warn.Do(func() {
			rt.g.cfg.Logger.WarnContext(r.Context(), "multipart requests are refused: set Route.Multipart to have them compared by their parts", "scope", key.Scope)
		})
		rt.refuse(w, CodeMultipart, "")
		return nil, nil, false
	}
	if err != nil {
		rt.misconfigured(w, r, err)
		return nil, nil, false
	}
	op.reprint = p.Print
	return op, body, true
}

func (rt *route) kind() fingerprint.Kind {
	kind := fingerprint.Kind(rt.Print)
	if rt.PrintFunc != nil {
		kind = fingerprint.Func
	}
	if len(rt.PrintHeaders) > 0 {
		kind |= fingerprint.Headers
	}
	return kind
}

// scope returns the operation's name, or "" if the operation has no name.
func (rt *route) scope(r *http.Request) string {
	if rt.Scope != nil {
		return rt.Scope(r)
	}
	//guard:a-wildcards-name-is-no-part-of-the-scope = r.Pattern
	pattern := wildcards.ReplaceAllString(r.Pattern, "{$1}")
	if pattern == "" || strings.HasPrefix(pattern, r.Method+" ") {
		return pattern
	}
	return r.Method + " " + pattern
}

// wildcards matches the wildcards of a pattern of http.ServeMux. Their names may change, and {$} is
// no wildcard.
var wildcards = regexp.MustCompile(`\{[^{}$.]+(\.\.\.)?\}`)

// timeout returns the time limit of the handler.
func (rt *route) timeout(r *http.Request) time.Duration {
	if rt.TimeoutHeader == "" {
		return rt.Timeout
	}
	ms, err := strconv.ParseUint(r.Header.Get(rt.TimeoutHeader), 10, 32)
	if err != nil || ms == 0 {
		return rt.Timeout
	}
	return min(rt.Timeout, time.Duration(ms)*time.Millisecond)
}

// read returns the complete body, or it answers the request and returns false.
func (rt *route) read(w http.ResponseWriter, r *http.Request) ([]byte, bool) {
	if r.Body == nil {
		return nil, true
	}
	//guard:a-body-has-a-bound 1 = @2
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, rt.MaxBody))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		rt.refuse(w, CodeRequestLarge, "")
	case err != nil:
		rt.refuse(w, CodeUnreadable, "")
	}
	return body, err == nil
}

// unkeyed runs a request without a key.
func (rt *route) unkeyed(w http.ResponseWriter, r *http.Request) {
	body, ok := rt.read(w, r)
	if !ok {
		return
	}
	rules := rt.Route
	rules.Store = StoreSuccess
	op := &operation{rules: &rules, timeout: rt.timeout(r)}
	run := rt.runner(w, r, body)
	op.run = func(ctx context.Context, a *attempt) (result, error) {
		res, err := run(ctx, a)
		//guard:an-error-without-a-key-is-undone false
		if res.verdict == keepAnswer { // there is no key under which to keep the answer
			res.verdict = undo
		}
		return res, err
	}
	rt.answer(w, r, rt.g.execute(r.Context(), op))
}

// runner returns a function that runs the handler. Each attempt gets the original request and w's
// original header, without changes by earlier attempts.
func (rt *route) runner(w http.ResponseWriter, r *http.Request, body []byte) func(ctx context.Context, a *attempt) (result, error) {
	return func(ctx context.Context, a *attempt) (result, error) {
		again := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
		req := r.Clone(context.WithValue(ctx, guardMark{}, &served{g: rt.g, key: a.op.key.Value, outer: r, body: body}))
		req.Body, _ = again()
		req.GetBody, req.ContentLength, req.TransferEncoding = again, int64(len(body)), nil
		defer func() {
			if req.MultipartForm != nil && r.MultipartForm == nil { // net/http removes only the files of r
				_ = req.MultipartForm.RemoveAll()
			}
		}()
		drops := rt.Oversize == OversizeDrops || rt.Mode == LeaseMode || !a.op.keyed
		outside := w.Header().Clone()
		b := answer.NewBuffer(outside, rt.MaxResponse, drops)
		rt.next.ServeHTTP(b, req)
		status, header, content := b.Answer()
		res := result{response: Response{Status: status, Header: header, Body: content}, dropped: b.Large()}
		res.kept = Response{Status: status, Header: answer.Keepable(header, outside, rt.OmitHeaders), Body: content}
		res.verdict = rt.verdict(status)
		switch {
		case b.Large() && !drops:
			return res, ErrTooLarge
		//guard:a-handler-without-the-transaction-is-told false
		case rt.TxRequired && res.verdict == keepAll && !a.asked.Load():
			return res, errNoTx
		}
		return res, nil
	}
}

// verdict says whether effects and answer are kept, by the answer's status.
func (rt *route) verdict(status int) verdict {
	switch {
	case status >= 200 && status < 400:
		return keepAll
	case rt.Store == StoreAll, rt.Store == StoreFinal && answer.IsFinal(status):
		return keepAnswer
	}
	return undo
}
