package idempotency_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/postroom/postroom/idempotency"
	"github.com/postroom/postroom/internal/devtest"
)

// patience is how long a test waits for something that should happen.
const patience = 60 * time.Second

// rig is one test's database, guard and service.
type rig struct {
	*testing.T

	pool  *pgxpool.Pool
	guard *idempotency.Guard
	mux   *http.ServeMux
	calls atomic.Int64 // of handlers
	meter *sdk.ManualReader
	log   *journal
	paths atomic.Int64
}

// customer returns the principal, which is the bearer token.
func customer(r *http.Request) (string, error) {
	return strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), nil
}

func newRig(t *testing.T, set ...func(*idempotency.Config)) *rig {
	t.Helper()
	return newRigOn(t, devtest.Pool(t), set...)
}

func newRigOn(t *testing.T, pool *pgxpool.Pool, set ...func(*idempotency.Config)) *rig {
	t.Helper()
	r := &rig{T: t, pool: pool}
	r.exec("CREATE TABLE ledger (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, note text, CONSTRAINT later UNIQUE (note) DEFERRABLE INITIALLY DEFERRED)")
	r.reset(set...)
	return r
}

// reset makes a guard, and a service, anew.
func (r *rig) reset(set ...func(*idempotency.Config)) {
	r.Helper()
	r.meter, r.log, r.mux = sdk.NewManualReader(), new(journal), http.NewServeMux()
	cfg := idempotency.Config{
		Principal: customer, MeterProvider: sdk.NewMeterProvider(sdk.WithReader(r.meter)), StoreTimeout: patience,
		Logger: slog.New(slog.NewJSONHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	for _, s := range set {
		s(&cfg)
	}
	r.guard = idempotency.New(r.pool, cfg)
	r.calls.Store(0)
}

func (r *rig) exec(sql string, args ...any) {
	r.Helper()
	if _, err := r.pool.Exec(r.Context(), sql, args...); err != nil {
		r.Fatal(err)
	}
}

func one[T any](r *rig, sql string, args ...any) (v T) {
	r.Helper()
	if err := r.pool.QueryRow(r.Context(), sql, args...).Scan(&v); err != nil {
		r.Fatal(err)
	}
	return v
}

// effects is how many rows the handlers left.
func (r *rig) effects() int { return one[int](r, "SELECT count(*) FROM ledger") }

// mount mounts a handler on a new path, and returns the path.
func (r *rig) mount(rt idempotency.Route, h http.HandlerFunc) string {
	path := fmt.Sprintf("/op%d", r.paths.Add(1))
	r.mux.Handle(path, r.guard.Handler(rt, h))
	return path
}

// refund writes a row of the ledger and answers as a service would.
func (r *rig) refund(w http.ResponseWriter, req *http.Request) {
	n := r.calls.Add(1)
	var id int64
	err := idempotency.Tx(req.Context()).QueryRow(req.Context(), "INSERT INTO ledger DEFAULT VALUES RETURNING id").Scan(&id)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "application/json; charset=utf-8")
	h.Set("Location", fmt.Sprintf("/refunds/%d", id))
	h.Add("Link", "</a>; rel=up")
	h.Add("Link", "</b>; rel=next")
	h.Set("Set-Cookie", "session=secret")
	h.Set("X-Request-Id", fmt.Sprint(n))
	h.Set("X-Region", "eu")
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, `{"id": %d,  "call": %d}`, id, n)
}

// failing writes a row of the ledger and answers with the given status.
func (r *rig) failing(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		n := r.calls.Add(1)
		r.insert(req.Context())
		w.WriteHeader(status)
		fmt.Fprintf(w, "call %d", n)
	}
}

func (r *rig) insert(ctx context.Context) {
	if _, err := idempotency.Tx(ctx).Exec(ctx, "INSERT INTO ledger DEFAULT VALUES"); err != nil {
		r.Error(err)
	}
}

// sending is a request that a test sends.
type sending struct {
	method, key, body, as string
	header                map[string]string
	ctx                   context.Context
}

// send sends a request. Method, body and caller have defaults. Without a key, no header is sent.
func (r *rig) send(path string, s sending) *httptest.ResponseRecorder {
	r.Helper()
	method, body, as := s.method, s.body, s.as
	if method == "" {
		method = http.MethodPost
	}
	if body == "" {
		body = `{"amount":1000}`
	}
	if as == "" {
		as = "ann"
	}
	req := httptest.NewRequest(method, path, strings.NewReader(body))
	if s.ctx != nil {
		req = req.WithContext(s.ctx)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+as)
	if s.key != "" {
		req.Header.Set("Idempotency-Key", s.key)
	}
	for name, value := range s.header {
		req.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	r.mux.ServeHTTP(w, req)
	return w
}

func (r *rig) post(path, key string) *httptest.ResponseRecorder {
	r.Helper()
	return r.send(path, sending{key: key})
}

// want checks an answer's status and, unless it is empty, its code.
func (r *rig) want(w *httptest.ResponseRecorder, status int, code string) {
	r.Helper()
	if w.Code != status || code != "" && codeIn(w) != code {
		r.Errorf("answer is %d %s, want %d %s", w.Code, w.Body, status, code)
	}
}

func codeIn(w *httptest.ResponseRecorder) string {
	var p struct{ Code string }
	_ = json.Unmarshal(w.Body.Bytes(), &p) // not every answer is a problem
	return p.Code
}

// wantReplay checks that two answers are the same, and the second a replay.
func (r *rig) wantReplay(first, second *httptest.ResponseRecorder) {
	r.Helper()
	if second.Header().Get("Idempotent-Replayed") != "true" {
		r.Errorf("answer is no replay: %d %s", second.Code, second.Body)
	}
	if first.Code != second.Code || !bytes.Equal(first.Body.Bytes(), second.Body.Bytes()) {
		r.Errorf("%d %q was repeated as %d %q", first.Code, first.Body, second.Code, second.Body)
	}
}

// wantCalls checks how often handlers were called, and how many rows they left.
func (r *rig) wantCalls(calls int64, effects int) {
	r.Helper()
	if got := r.calls.Load(); got != calls {
		r.Errorf("the handler was called %d times, want %d", got, calls)
	}
	if got := r.effects(); got != effects {
		r.Errorf("%d effects, want %d", got, effects)
	}
}

// gate is a handler that waits inside its transaction.
type gate struct {
	entered, open chan struct{}
	then          http.HandlerFunc
	once          sync.Once
}

func newGate(then http.HandlerFunc) *gate {
	return &gate{entered: make(chan struct{}, 100), open: make(chan struct{}), then: then}
}

func (g *gate) serve(w http.ResponseWriter, req *http.Request) {
	g.entered <- struct{}{}
	select {
	case <-g.open:
	case <-time.After(patience): // a handler waits here that should not: the test fails and does not hang
	}
	g.then(w, req)
}

func (g *gate) release() { g.once.Do(func() { close(g.open) }) }

// inside sends a request, and returns when its handler has begun. It returns a function that waits
// for the answer.
func (r *rig) inside(g *gate, path string, s sending) (answer func() *httptest.ResponseRecorder) {
	r.Helper()
	got := make(chan *httptest.ResponseRecorder, 1)
	go func() { got <- r.send(path, s) }()
	select {
	case <-g.entered:
	case w := <-got:
		r.Fatalf("the handler was not reached: %d %s", w.Code, w.Body)
	case <-time.After(patience):
		r.Fatal("the handler was not reached")
	}
	r.Cleanup(g.release)
	return func() *httptest.ResponseRecorder {
		r.Helper()
		g.release()
		select {
		case w := <-got:
			return w
		case <-time.After(patience):
			r.Fatal("there is no answer")
			return nil
		}
	}
}

// counts returns the counters, by name.
func (r *rig) counts() map[string]int64 {
	r.Helper()
	var all metricdata.ResourceMetrics
	if err := r.meter.Collect(context.WithoutCancel(r.Context()), &all); err != nil {
		r.Fatal(err)
	}
	got := make(map[string]int64)
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if sum, ok := m.Data.(metricdata.Sum[int64]); ok {
				for _, point := range sum.DataPoints {
					got[m.Name] += point.Value
				}
			}
		}
	}
	return got
}

// journal keeps what is logged.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}
