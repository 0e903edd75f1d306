package webhook_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/webhook"
)

// patience is how long a test waits for something that should happen.
const patience = 60 * time.Second

// secret is the secret of tests.
const secret = "whsec_dGVzdHMgb2Ygd2ViaG9va3M="

// store is an inbox in memory. It knows one handler.
type store struct {
	mu     sync.Mutex
	known  map[string]string // bodies by source and id
	calls  []inbox.Acceptance
	during func(ctx context.Context) error // if set, is called before an event is stored
	orders map[string]error                // errors by handler
}

func (s *store) AcceptAll(ctx context.Context, all ...inbox.Acceptance) ([]inbox.AcceptResult, error) {
	if len(all) != 1 {
		panic("one event at a time")
	}
	a := all[0]
	if err := s.orders[a.Handler]; err != nil {
		return nil, err
	}
	if a.Handler != "h" {
		return nil, inbox.ErrUnknownHandler
	}
	if err := a.Event.ValidateAccepted(); err != nil {
		return nil, err
	}
	if s.during != nil {
		if err := s.during(ctx); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, a)
	key := a.Event.Source + "#" + a.Event.ID
	body, known := s.known[key]
	switch {
	case !known:
		if s.known == nil {
			s.known = make(map[string]string)
		}
		s.known[key] = string(a.Event.Data)
		return []inbox.AcceptResult{inbox.Stored}, nil
	case body == string(a.Event.Data):
		return []inbox.AcceptResult{inbox.Duplicate}, nil
	case a.IgnoreChanged:
		return []inbox.AcceptResult{inbox.Changed}, nil
	}
	return []inbox.AcceptResult{inbox.Conflict}, nil
}

// journal is a log that is read while it is written.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(line []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(line)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// endpoint is a receiver under test.
type endpoint struct {
	*testing.T
	*webhook.Receiver

	in    *store
	log   *journal
	meter *sdk.ManualReader
	spans *tracetest.SpanRecorder
}

// newEndpoint returns a receiver of Standard Webhooks, unless set changes that.
func newEndpoint(t *testing.T, set ...func(*webhook.ReceiverConfig)) *endpoint {
	t.Helper()
	e := &endpoint{T: t, in: &store{}, log: &journal{}, meter: sdk.NewManualReader(), spans: tracetest.NewSpanRecorder()}
	cfg := webhook.ReceiverConfig{
		Source: "/acme", Handler: "h", Scheme: webhook.Standard(secret), Patience: patience,
		Logger:         slog.New(slog.NewTextHandler(e.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		MeterProvider:  sdk.NewMeterProvider(sdk.WithReader(e.meter)),
		TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(e.spans)),
	}
	for _, s := range set {
		s(&cfg)
	}
	e.Receiver = webhook.Over(e.in, nil, cfg)
	return e
}

// request returns a signed request.
func request(t testing.TB, s webhook.Scheme, id, typ, body string) *http.Request {
	t.Helper()
	req := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
	m := webhook.Message{ID: id, Type: typ, Time: time.Now()}
	if err := webhook.Sign(s, req.Header, m, []byte(body)); err != nil {
		t.Fatal(err)
	}
	return req
}

// signed returns a request of Standard Webhooks.
func signed(t testing.TB, id, body string) *http.Request {
	t.Helper()
	return request(t, webhook.Standard(secret), id, "", body)
}

// do sends a request and returns the answer.
func (e *endpoint) do(req *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	e.ServeHTTP(w, req)
	return w
}

// want fails the test unless a request gets this answer. code is part of the body.
func (e *endpoint) want(req *http.Request, status int, code string) *httptest.ResponseRecorder {
	e.Helper()
	w := e.do(req)
	h := w.Header()
	problem := h.Get("Content-Type") == "application/problem+json"
	if w.Code != status || !strings.Contains(w.Body.String(), `"`+code+`"`) && code != "" || problem != (status != 200) || h.Get("Cache-Control") != "no-store" {
		e.Errorf("answered %d %q %s, want %d %q", w.Code, h, w.Body, status, code)
	}
	if again := h.Get("Retry-After"); (again == "1") != (status == 503) {
		e.Errorf("%d with Retry-After %q", status, again)
	}
	return w
}

// events are those that the inbox got.
func (e *endpoint) events() []postroom.Event {
	e.in.mu.Lock()
	defer e.in.mu.Unlock()
	var all []postroom.Event
	for _, c := range e.in.calls {
		all = append(all, c.Event)
	}
	return all
}

// counted returns how many requests had an outcome, by the metric.
func (e *endpoint) counted(outcome, reason string) int64 {
	e.Helper()
	var found metricdata.ResourceMetrics
	if err := e.meter.Collect(e.Context(), &found); err != nil {
		e.Fatal(err)
	}
	for _, scope := range found.ScopeMetrics {
		for _, m := range scope.Metrics {
			sum, ok := m.Data.(metricdata.Sum[int64])
			if !ok || m.Name != "postroom.webhook.received" {
				continue
			}
			for _, p := range sum.DataPoints {
				source, _ := p.Attributes.Value("source")
				o, _ := p.Attributes.Value("outcome")
				r, _ := p.Attributes.Value("reason")
				if source.AsString() == "/acme" && o.AsString() == outcome && r.AsString() == reason {
					return p.Value
				}
			}
		}
	}
	return 0
}
