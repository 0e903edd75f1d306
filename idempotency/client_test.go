package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/idempotency"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/outbound"
)

// caller calls a service through package outbound, as another service does.
type caller struct {
	*rig

	url    string
	client *outbound.Client
	busy   chan struct{} // receives a value when an answer says that the key is in progress
}

// RoundTrip makes one attempt.
func (c *caller) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err == nil && (resp.StatusCode == http.StatusAccepted || resp.StatusCode == http.StatusConflict) {
		select {
		case c.busy <- struct{}{}:
		default:
		}
	}
	return resp, err
}

func newCaller(r *rig, attempts int) *caller {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { r.mux.ServeHTTP(w, req) }))
	r.Cleanup(server.Close)
	c := &caller{rig: r, url: server.URL, busy: make(chan struct{}, 1)}
	c.client = outbound.NewClient(outbound.Config{
		Next: c, Logger: slog.New(slog.DiscardHandler), Attempts: attempts, AttemptTimeout: patience, Total: patience,
		Budget: outbound.Budget{Off: true}, Breaker: outbound.Breaker{Off: true},
		Schedule: outbound.Exponential{Base: time.Millisecond, Cap: 10 * time.Millisecond},
	})
	return c
}

// call makes a call with a key and a body, and headers as name, value, …
func (c *caller) call(path, key, body string, headers ...string) ([]byte, error) {
	req, err := http.NewRequestWithContext(outbound.WithKey(c.Context(), key), http.MethodPost, c.url+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer ann")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	return c.client.Fetch(req)
}

// A client of package outbound understands each answer of a guard, in each contract of the
// documentation and in both modes. It never takes an answer about a running request for a result.
func TestClientOfAGuard(t *testing.T) {
	t.Parallel()
	codes := make(map[idempotency.Code]string)
	for i, code := range []idempotency.Code{idempotency.CodeInProgress, idempotency.CodeMismatch, idempotency.CodeReplayRefused, idempotency.CodeUnrepeatable} {
		codes[code] = fmt.Sprint("E", i)
	}
	all := map[string]func() (idempotency.Config, idempotency.Route){
		"own codes": func() (idempotency.Config, idempotency.Route) {
			return idempotency.Config{Codes: codes, DocsURL: "https://docs.example/keys"}, idempotency.Route{
				StatusURL: func(*http.Request, idempotency.Key) string { return "/status" }, Store: idempotency.StoreFinal,
			}
		},
	}
	for name, contract := range contracts {
		all[name] = contract
	}
	for name, contract := range all {
		for _, mode := range []idempotency.Mode{idempotency.TxMode, idempotency.LeaseMode} {
			t.Run(fmt.Sprint(name, " ", mode), func(t *testing.T) {
				t.Parallel()
				cfg, route := contract()
				route.Mode, route.MaxBody = mode, 100
				clientOf(t, cfg, route)
			})
		}
	}
}

// clientOf calls a service with the given settings in each situation.
func clientOf(t *testing.T, cfg idempotency.Config, route idempotency.Route) {
	t.Helper()
	r := newRig(t, func(c *idempotency.Config) { c.Codes, c.DocsURL = cfg.Codes, cfg.DocsURL })
	c := newCaller(r, 1000)
	const body = `{"amount":1000}`
	key := func(n int) string { return fmt.Sprintf("6c0e3a52-5a51-4f0b-9a7e-3f6f5a3f2b%02d", n) }
	effect := func(ctx context.Context) {
		var err error
		if route.Mode == idempotency.TxMode {
			_, err = idempotency.Tx(ctx).Exec(ctx, "INSERT INTO ledger DEFAULT VALUES")
		} else {
			_, err = r.pool.Exec(ctx, "INSERT INTO ledger DEFAULT VALUES")
		}
		if err != nil {
			r.Error(err)
		}
	}
	done := func(w http.ResponseWriter, req *http.Request) {
		effect(req.Context())
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, `{"id":1}`)
	}
	failed := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
	}
	effects := 0
	succeeds := func(what string, got []byte, err error, more int) {
		t.Helper()
		if effects += more; err != nil || string(got) != `{"id":1}` || r.effects() != effects {
			t.Errorf("%s: %q, %v, %d effects; want the refund, and %d effects", what, got, err, r.effects(), effects)
		}
	}
	fails := func(what string, err error, class outbound.Class, notDone, permanent bool) {
		t.Helper()
		var e *outbound.Error
		if !errors.As(err, &e) || e.Class != class || r.effects() != effects {
			t.Errorf("%s: %v, %d effects; want class %s, and %d effects", what, err, r.effects(), class, effects)
		}
		if errors.Is(err, postroom.ErrNotApplied) != notDone || errors.Is(outbound.ForHandler(err), postroom.ErrPermanent) != permanent {
			t.Errorf("%s: NotApplied = %t, permanent: %t; want %t, %t", what, !notDone, !permanent, notDone, permanent)
		}
	}
	differs := func(what string, err error) {
		t.Helper()
		if route.MismatchStatus == http.StatusConflict {
			fails(what, err, outbound.ClassConflict, false, false)
			return
		}
		fails(what, err, outbound.ClassInvalid, false, true)
	}

	path := r.mount(route, done)
	got, err := c.call(path, key(1), body)
	succeeds("the first call", got, err, 1)
	got, err = c.call(path, key(1), body)
	succeeds("a repetition", got, err, 0)
	_, err = c.call(path, key(1), `{"amount":2000}`)
	differs("another body", err)
	_, err = c.call(path, key(2), body, "Authorization", "")
	fails("no caller", err, outbound.ClassAuth, true, true)
	_, err = c.call(path, key(2), `{"note":"`+strings.Repeat("x", 200)+`"}`)
	fails("a large body", err, outbound.ClassInvalid, true, true)
	_, err = c.call(path, key(2), body, "Content-Type", "multipart/form-data; boundary=x")
	fails("multipart", err, outbound.ClassInvalid, true, true)
	_, err = c.call(path, strings.Repeat("k", 200), body)
	fails("a key that is too long", err, outbound.ClassInvalid, true, true)

	// While a request runs, its repetition gets no result. Then it gets that of the first request,
	// or it is carried out itself.
	for n, first := range map[int]http.HandlerFunc{10: done, 11: failed(http.StatusInternalServerError)} {
		if n == 11 && route.Store == idempotency.StoreAll {
			continue // the error of the first request is the answer
		}
		gate := newGate(done)
		var began atomic.Bool
		slow := r.mount(route, func(w http.ResponseWriter, req *http.Request) {
			if began.Swap(true) {
				done(w, req)
				return
			}
			gate.then = first
			gate.serve(w, req)
		})
		answer := r.inside(gate, slow, sending{key: key(n)})
		again := make(chan error, 1)
		go func() {
			select {
			case <-c.busy: // of an earlier case
			default:
			}
			var err error
			got, err = c.call(slow, key(n), body)
			again <- err
		}()
		select {
		case <-c.busy:
		case err := <-again:
			t.Fatalf("the repetition of a running request ended with %q, %v", got, err)
		}
		answer()
		succeeds(fmt.Sprint("a repetition of a running request ", n), got, <-again, 1)
	}

	_, err = c.call(r.mount(route, failed(http.StatusUnprocessableEntity)), key(20), body)
	fails("the handler refuses", err, outbound.ClassInvalid, true, true)
	_, err = c.call(r.mount(route, failed(http.StatusConflict)), key(21), body)
	fails("the handler answers 409", err, outbound.ClassConflict, false, false)

	private := route
	private.AuthorizeReplay = func(*http.Request, idempotency.Record) error { return errors.New("not yours") }
	path = r.mount(private, done)
	got, err = c.call(path, key(30), body)
	succeeds("a call whose answer is not repeated", got, err, 1)
	_, err = c.call(path, key(30), body)
	fails("its repetition", err, outbound.ClassAuth, false, true)

	large := route
	large.Oversize, large.MaxResponse = idempotency.OversizeDrops, 1
	path = r.mount(large, done)
	got, err = c.call(path, key(31), body)
	succeeds("a call whose answer is not kept", got, err, 1)
	_, err = c.call(path, key(31), body)
	fails("its repetition", err, outbound.ClassConflict, false, false)

	if route.Store == idempotency.StoreAll {
		return // an error is the answer
	}
	var calls atomic.Int64
	got, err = c.call(r.mount(route, func(w http.ResponseWriter, req *http.Request) {
		if calls.Add(1) == 1 {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		done(w, req)
	}), key(40), body)
	succeeds("a call that fails once", got, err, 1)
}

// While the database is away, a guard answers 503. The client repeats the call.
func TestClientOfAGuardWithoutADatabase(t *testing.T) {
	t.Parallel()
	r := newRigOn(t, devtest.Pool(t))
	c := newCaller(r, 2)
	away := devtest.Pool(t)
	r.pool = away
	r.reset(func(c *idempotency.Config) { c.StoreTimeout = time.Second })
	path := r.mount(idempotency.Route{}, r.refund)
	away.Close()
	_, err := c.call(path, "k1", `{}`)
	var e *outbound.Error
	if !errors.As(err, &e) || e.Class != outbound.ClassUnavailable || e.Attempts != 2 || errors.Is(err, postroom.ErrNotApplied) || e.Last.Status != http.StatusServiceUnavailable {
		t.Errorf("%v; want class %s after two attempts, and 503", err, outbound.ClassUnavailable)
	}
}
