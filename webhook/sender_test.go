package webhook_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/propagation"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/deadletter"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/clock"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/outbox"
	"github.com/postroom/postroom/schema"
	"github.com/postroom/postroom/webhook"
)

// Each endpoint that gets an event's type gets the event once, signed.
func TestEventsGoToTheirEndpoints(t *testing.T) {
	t.Parallel()
	r, to := newRig(t, func(cfg *webhook.SenderConfig) { cfg.AccountHeader = "tenant" }), newReceiver(t)
	to.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		to.answer(200)
		to.ServeHTTP(w, req)
		_, _ = io.WriteString(w, "a body")
	})
	secret := r.add(webhook.EndpointSpec{ID: "all", Account: "acme", URL: to.URL + "/all"})
	r.add(webhook.EndpointSpec{ID: "placed", Account: "acme", URL: to.URL, Types: []string{"order.placed"}, Secret: secret})
	r.add(webhook.EndpointSpec{ID: "paid", Account: "acme", URL: to.URL, Types: []string{"order.paid"}})
	r.add(webhook.EndpointSpec{ID: "disabled", Account: "acme", URL: to.URL})
	r.add(webhook.EndpointSpec{ID: "other", Account: "other", URL: to.URL})
	if err := r.store.Disable(t.Context(), "disabled", ann); err != nil {
		t.Fatal(err)
	}
	r.run()
	tenant := func(ev *postroom.Event) { ev.Headers = map[string]string{"tenant": "acme"} }
	r.emit("e1", tenant)
	r.emit("e1", tenant) // again
	r.eventually("two deliveries", func() bool { return len(to.requests()) >= 2 })
	r.eventually("nothing to be held", func() bool { return one[int](r, "SELECT count(*) FROM postroom.held") == 0 })
	for _, got := range to.requests() {
		m, err := webhook.Standard(string(secret)).Verify(got.header, got.body, time.Now())
		if err != nil || m.ID != "e1" || m.Type != "order.placed" {
			t.Errorf("%+v, %v", m, err)
		}
		if b := decoded(t, got.body); b.Type != "order.placed" || string(b.Data) != `{"order":7}` || time.Since(b.Timestamp) > time.Minute {
			t.Errorf("the body is %s", got.body)
		}
		if got.header.Get("Content-Type") != "application/json" || got.header.Get("Idempotency-Key") != "" {
			t.Errorf("headers: %v", got.header)
		}
	}
	receipts := one[string](r, "SELECT string_agg(convert_from(result, 'UTF8'), '; ' ORDER BY dedupe_key) FROM postroom.receipt")
	if !regexp.MustCompile(`^{"status":200,"ms":[0-9]+}; {"status":200,"ms":[0-9]+}$`).MatchString(receipts) {
		t.Errorf("receipts: %s, want the status and the time of each answer, and nothing else", receipts)
	}
	if n := one[int](r, "SELECT count(*) FROM postroom.inbox WHERE handler = 'webhooks'"); n != 2 {
		t.Fatalf("%d deliveries, want 2", n)
	}
	if n := len(to.requests()); n != 2 {
		t.Errorf("%d requests, want 2", n)
	}
}

// Data that is not JSON is sent in base64. An id that cannot be a webhook-id is sent as a
// digest.
func TestOddEventsAreSentInBase64(t *testing.T) {
	t.Parallel()
	r, to := newRig(t, nil), newReceiver(t)
	secret := r.add(webhook.EndpointSpec{ID: "e", URL: to.URL})
	r.run()
	for i, id := range []string{"order.7", "bücher-7"} {
		r.emit(id, func(ev *postroom.Event) { ev.ContentType, ev.Data = "application/octet-stream", []byte{0, 1, 0xff} })
		r.eventually("a delivery", func() bool { return len(to.requests()) == i+1 })
		got := to.requests()[i]
		m, err := webhook.Standard(string(secret)).Verify(got.header, got.body, time.Now())
		if err != nil || !strings.HasPrefix(m.ID, "sha256-") || string(decoded(t, got.body).Binary) != "\x00\x01\xff" {
			t.Errorf("%s: %+v, %v: %s", id, m, err, got.body)
		}
	}
}

// A receiver takes what a sender sends, also the largest event, whose data is not JSON.
func TestReceiverTakesTheLargestEventOfASender(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.in.Declare(inbox.Subscription{Name: "apply"})
	secret := webhook.Secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	to := newReceiver(t)
	to.Config.Handler = webhook.NewReceiver(r.in, webhook.ReceiverConfig{Source: "/acme", Handler: "apply", Scheme: webhook.Standard(string(secret)), Patience: patience, Logger: silent})
	r.add(webhook.EndpointSpec{ID: "e", URL: to.URL, Secret: secret})
	r.run()
	r.emit("e1", func(ev *postroom.Event) {
		ev.ContentType, ev.Data = "application/octet-stream", make([]byte, postroom.MaxData)
	})
	r.eventually("an answer", func() bool { return one[bool](r, "SELECT last_status IS NOT NULL FROM postroom.webhook_endpoint") })
	if status := one[int](r, "SELECT last_status FROM postroom.webhook_endpoint"); status != 200 {
		t.Errorf("answered %d", status)
	}
}

// Each attempt and each replay has the same webhook-id, with a new timestamp and new signatures.
func TestAttemptsAndReplaysKeepTheirID(t *testing.T) {
	t.Parallel()
	r, to := newRig(t, nil), newReceiver(t)
	old := r.add(webhook.EndpointSpec{ID: "e", URL: to.URL})
	r.run()
	to.answer(500)
	r.emit("e1", func(ev *postroom.Event) { ev.Time = time.Now().Add(-time.Hour) }) // each request has the time of its attempt
	if d := r.failed("e"); d.Attempts != 1 || d.Class != "error" || d.Wait < 3 || d.Wait > 7 || !strings.Contains(d.Text, "endpoint e answered 500") {
		t.Errorf("held: %+v", d)
	}
	recent, err := r.store.Rotate(t.Context(), "e", "", ann)
	if err != nil {
		t.Fatal(err)
	}
	verify := func(n int, signs map[webhook.Secret]bool) {
		t.Helper()
		r.overrideNextAtAndPause()
		r.eventually(fmt.Sprint(n, " requests"), func() bool { return len(to.requests()) == n })
		got := to.requests()[n-1]
		for secret, want := range signs {
			if m, err := webhook.Standard(string(secret)).Verify(got.header, got.body, time.Now()); (err == nil) != want || want && m.ID != "e1" {
				t.Errorf("request %d: %+v, %v; want a signature of this secret: %v", n, m, err, want)
			}
		}
		r.eventually("it to be recorded", func() bool {
			return one[int](r, "SELECT count(*) FROM postroom.held WHERE claimed_by IS NOT NULL") == 0
		})
	}
	verify(2, map[webhook.Secret]bool{old: true, recent: true})
	r.exec("UPDATE postroom.webhook_endpoint SET rotated_at = now() - interval '24 hours 1 second'")
	verify(3, map[webhook.Secret]bool{old: false, recent: true})
	newest, err := r.store.Rotate(t.Context(), "e", "", ann)
	if err != nil {
		t.Fatal(err)
	}
	to.answer(200)
	verify(4, map[webhook.Secret]bool{old: false, recent: true, newest: true})
	first, last := to.requests()[0], to.requests()[3]
	if string(first.body) != string(last.body) {
		t.Errorf("the body changed from %s to %s", first.body, last.body)
	}
	if all, err := r.store.List(t.Context()); err != nil || len(all) != 1 || !all[0].FailingSince.IsZero() || all[0].LastStatus != 200 {
		t.Errorf("endpoints: %+v, %v", all, err)
	}
}

// An endpoint refuses an event ten times. Each wait is as long as the documentation says, or up to a
// fifth longer. Both times are from one statement.
func TestAttemptsFollowTheDocumentedSchedule(t *testing.T) {
	t.Parallel()
	r, to := newRig(t, nil), newReceiver(t)
	to.answer(404) // this pauses no endpoint
	r.add(webhook.EndpointSpec{ID: "e", URL: to.URL})
	r.run()
	r.emit("e1", nil)
	attempts := 0
	next := func() (d delivery) {
		t.Helper()
		attempts++
		r.eventually(fmt.Sprint("attempt ", attempts), func() bool {
			d, _ = r.heldOf("e")
			return d.Attempts == attempts
		})
		return d
	}
	for _, wait := range []time.Duration{
		5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour, 10 * time.Hour, 14 * time.Hour, 20 * time.Hour, 24 * time.Hour,
	} {
		next()
		got := one[float64](r, "SELECT extract(epoch FROM next_at - (failures -> -1 ->> 'at')::timestamptz)::float8 FROM postroom.held")
		if least := wait.Seconds(); got < least-0.1 || got > 1.2*least+0.1 {
			t.Errorf("the wait after attempt %d is %g s, want %s and up to a fifth more", attempts, got, wait)
		}
		r.overrideNextAtAndPause()
	}
	if d := next(); !d.Dead || d.Class != "error" || len(to.requests()) != 10 {
		t.Errorf("after %d requests: %+v, want a dead event after ten", len(to.requests()), d)
	}
}

// limits records how much time each attempt had when it began.
type limits struct {
	sdktrace.SpanProcessor

	left chan time.Duration
}

func (l limits) OnStart(ctx context.Context, s sdktrace.ReadWriteSpan) {
	at, _ := ctx.Deadline()
	l.left <- time.Until(at)
	l.SpanProcessor.OnStart(ctx, s)
}

// By default, an attempt has 20 seconds.
func TestDefaultTimeOfAnAttempt(t *testing.T) {
	t.Parallel()
	l := limits{tracetest.NewSpanRecorder(), make(chan time.Duration, 10)}
	r := newRig(t, func(cfg *webhook.SenderConfig) {
		cfg.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(l))
	})
	r.add(webhook.EndpointSpec{ID: "e", URL: newReceiver(t).URL})
	r.run()
	r.emit("e1", nil)
	if left := devtest.Receive(t, patience, "an attempt", l.left); left > 20*time.Second || left < 11*time.Second {
		t.Errorf("the attempt has %s, want 20s", left)
	}
}

// sampled samples each span, and gives it a state.
type sampled struct{ state trace.TraceState }

func (s sampled) ShouldSample(sdktrace.SamplingParameters) sdktrace.SamplingResult {
	return sdktrace.SamplingResult{Decision: sdktrace.RecordAndSample, Tracestate: s.state}
}

func (sampled) Description() string { return "sampled" }

// A request has the headers of the program's propagator, and no others. The test is not parallel,
// because it changes the propagator of the process.
func TestRequestsHaveTheTraceOfTheirAttempt(t *testing.T) {
	before := otel.GetTextMapPropagator()
	defer otel.SetTextMapPropagator(before)
	spans := tracetest.NewSpanRecorder()
	state, err := trace.ParseTraceState("vendor=1")
	if err != nil {
		t.Fatal(err)
	}
	member, err := baggage.NewMember("customer", "ann")
	if err != nil {
		t.Fatal(err)
	}
	bag, err := baggage.New(member)
	if err != nil {
		t.Fatal(err)
	}
	r, to := newRig(t, func(cfg *webhook.SenderConfig) {
		cfg.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans), sdktrace.WithSampler(sampled{state}))
	}), newReceiver(t)
	r.add(webhook.EndpointSpec{ID: "e", URL: to.URL})
	r.runIn(baggage.ContextWithBaggage(t.Context(), bag))
	for i, tt := range []struct {
		set            propagation.TextMapPropagator
		trace, baggage bool
	}{
		{propagation.NewCompositeTextMapPropagator(), false, false}, // the default of a program
		{propagation.TraceContext{}, true, false},
		{propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{}), true, true},
	} {
		otel.SetTextMapPropagator(tt.set)
		r.emit(fmt.Sprint("e", i), nil)
		r.eventually("the request and its span", func() bool { return len(to.requests()) == i+1 && len(spans.Ended()) == i+1 })
		of := spans.Ended()[i].SpanContext()
		want := map[string]string{"Traceparent": "", "Tracestate": "", "Baggage": ""}
		if tt.trace {
			want["Traceparent"], want["Tracestate"] = fmt.Sprintf("00-%s-%s-01", of.TraceID(), of.SpanID()), "vendor=1"
		}
		if tt.baggage {
			want["Baggage"] = "customer=ann"
		}
		for name, value := range want {
			if got := to.requests()[i].header.Get(name); got != value {
				t.Errorf("request %d: %s is %q, want %q", i, name, got, value)
			}
		}
	}
}

// proxyVar says that the test binary is the process of TestNoProxyIsUsed.
const proxyVar = "POSTROOM_TEST_PROXY"

// The environment names a proxy, and the sender does not use it: a proxy would look up the host's name
// itself, and connect to addresses to which no webhook may go. The test runs itself in a process of its
// own, because net/http reads the environment once.
func TestNoProxyIsUsed(t *testing.T) {
	t.Parallel()
	if os.Getenv(proxyVar) != "" {
		r, to := newRig(t, func(cfg *webhook.SenderConfig) {
			cfg.Resolver = resolver(func(string, int) (string, bool) { return "127.0.0.1", true })
		}), newReceiver(t)
		r.add(webhook.EndpointSpec{ID: "e", URL: "https://hooks.example.com" + to.URL[strings.LastIndex(to.URL, ":"):]})
		r.run()
		r.emit("e1", nil)
		r.eventually("an attempt", func() bool {
			_, held := r.heldOf("e")
			return held || len(to.requests()) > 0
		})
		if d, held := r.heldOf("e"); held {
			t.Errorf("held: %+v", d)
		}
		return
	}
	proxy, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() })
	var used atomic.Bool
	go func() { // ends with the listener
		for {
			c, err := proxy.Accept()
			if err != nil {
				return
			}
			used.Store(true)
			_ = c.Close()
		}
	}()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestNoProxyIsUsed$", "-test.v")
	cmd.Env = append(os.Environ(), proxyVar+"=1", "HTTPS_PROXY=http://"+proxy.Addr().String(), "NO_PROXY=", "POSTROOM_TEST_DATABASE_URL="+devtest.Postgres(t).URL())
	if out, err := cmd.CombinedOutput(); err != nil || used.Load() || !strings.Contains(string(out), "--- PASS: TestNoProxyIsUsed") {
		t.Errorf("the proxy was used: %t, %v\n%s", used.Load(), err, out)
	}
}

// The test has each row of the documented table of answers.
func TestAnswersOfEndpoints(t *testing.T) {
	t.Parallel()
	type want struct {
		class    string
		attempts int
		least    float64 // seconds until the next attempt
		most     float64
		dead     bool
		disabled bool
	}
	again := want{class: "error", attempts: 1, least: 3, most: 7}
	later := func(seconds float64) want {
		return want{class: "error", attempts: 1, least: seconds - 5, most: seconds + 1}
	}
	for _, tt := range []struct {
		name   string
		status int
		header []string
		want   want
	}{
		{"gone", 410, nil, want{class: webhook.ClassDisabled, attempts: 1, dead: true, disabled: true}},
		{"timeout", 408, nil, again},
		{"too early", 425, nil, again},
		{"too many", 429, []string{"Retry-After", "600"}, later(600)},
		{"too many, again at once", 429, []string{"Retry-After", "1"}, again}, // the schedule is longer
		{"broken", 500, nil, again},
		{"bad gateway", 502, []string{"Retry-After", "700"}, later(700)},
		{"unavailable", 503, []string{"Retry-After", "999999999"}, later(24 * 3600)},
		{"gateway timeout", 504, []string{"Retry-After", "800"}, later(800)},
		{"bad request", 400, nil, again},
		{"not found", 404, []string{"Retry-After", "900"}, again},
		{"conflict", 409, nil, again},
		{"found elsewhere", 302, nil, again},
		{"moved", 307, nil, again},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, to, elsewhere := newRig(t, nil), newReceiver(t), newReceiver(t)
			to.answer(tt.status, append(tt.header, "Location", elsewhere.URL)...)
			r.add(webhook.EndpointSpec{ID: "e", URL: to.URL})
			r.run()
			r.emit("e1", nil)
			d := r.failed("e")
			w := tt.want
			if d.Class != w.class || d.Attempts != w.attempts || d.Dead != w.dead || !d.Dead && (d.Wait < w.least || d.Wait > w.most) {
				t.Errorf("held: %+v, want %+v", d, w)
			}
			all, err := r.store.List(t.Context())
			if err != nil || all[0].LastStatus != tt.status || all[0].FailingSince.IsZero() || all[0].DisabledAt.IsZero() == w.disabled {
				t.Errorf("endpoints: %+v, %v", all, err)
			}
			if len(elsewhere.requests()) != 0 {
				t.Error("a redirect was followed")
			}
			if w.disabled {
				if got := one[string](r, "SELECT actor || ': ' || reason FROM postroom.audit WHERE action = 'webhook disable'"); got != "sender: it answered 410 Gone" {
					t.Errorf("the audit has %q", got)
				}
			}
		})
	}
}

// An endpoint that does not answer fails, too.
func TestSilentEndpointFails(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(cfg *webhook.SenderConfig) { cfg.Timeout = 300 * time.Millisecond })
	hangs, resets := make(chan struct{}), newReceiver(t)
	slow := newReceiver(t)
	slow.Config.Handler = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hangs })
	t.Cleanup(func() { close(hangs) })
	resets.Config.Handler = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	gone := newReceiver(t)
	gone.Close()
	for id, url := range map[string]string{"hangs": slow.URL, "resets": resets.URL, "refuses": gone.URL} {
		r.add(webhook.EndpointSpec{ID: id, URL: url})
	}
	r.run()
	r.emit("e1", nil)
	for _, id := range []string{"hangs", "resets", "refuses"} {
		if d := r.failed(id); d.Class != "error" || d.Attempts != 1 || d.Dead {
			t.Errorf("%s: %+v", id, d)
		}
	}
	if n := one[int](r, "SELECT count(*) FROM postroom.webhook_endpoint WHERE last_status = 0 AND failing_since IS NOT NULL AND paused_until > failing_since"); n != 3 {
		t.Errorf("%d endpoints fail, want 3", n)
	}
}

// An endpoint is disabled after five days of failures, and its events die and can be replayed.
func TestEndpointIsDisabledAfterFiveDays(t *testing.T) {
	t.Parallel()
	r, to := newRig(t, nil), newReceiver(t)
	r.add(webhook.EndpointSpec{ID: "e", URL: to.URL})
	r.run()
	to.answer(500)
	r.emit("e1", nil)
	r.failed("e")
	r.exec("UPDATE postroom.webhook_endpoint SET failing_since = now() - interval '5 days' + interval '1 hour'")
	again := func(requests int) {
		t.Helper()
		r.overrideNextAtAndPause()
		r.eventually("another attempt", func() bool {
			return len(to.requests()) == requests && one[int](r, "SELECT count(*) FROM postroom.held WHERE handler = 'webhooks' AND (claimed_by IS NOT NULL OR class IS NULL)") == 0
		})
	}
	again(2)
	if d, _ := r.heldOf("e"); d.Dead || d.Attempts != 2 {
		t.Fatalf("an hour before: %+v", d)
	}
	r.exec("UPDATE postroom.webhook_endpoint SET paused_until = now() + interval '1 hour'") // the pause of the second failure, but longer than a busy machine needs
	r.emit("e2", nil)                                                                       // it waits: the endpoint is paused
	r.eventually("the second event to be snoozed", func() bool {
		return one[int](r, "SELECT count(*) FROM postroom.held WHERE event_id = 'e2' AND handler = 'webhooks' AND class = 'snoozed' AND attempts = 0 AND claimed_by IS NULL") == 1
	})
	r.exec("UPDATE postroom.webhook_endpoint SET failing_since = now() - interval '5 days 1 second'")
	r.exec("UPDATE postroom.held SET next_at = now() + interval '1 day' WHERE event_id = 'e2' AND handler = 'webhooks'")
	r.exec("UPDATE postroom.webhook_endpoint SET paused_until = NULL") // first, as in overrideNextAtAndPause
	r.exec("UPDATE postroom.held SET next_at = now() WHERE event_id = 'e1' AND handler = 'webhooks'")
	r.eventually("the endpoint to be disabled", func() bool {
		return one[int](r, "SELECT count(*) FROM postroom.webhook_endpoint WHERE disabled_reason LIKE 'it failed since %'") == 1
	})
	r.overrideNextAtAndPause()
	r.eventually("both events to be dead", func() bool {
		return one[int](r, "SELECT count(*) FROM postroom.held WHERE dead_at IS NOT NULL AND class = 'endpoint_disabled'") == 2
	})
	if n := len(to.requests()); n != 3 {
		t.Errorf("%d requests, want 3: none to a disabled endpoint", n)
	}
	r.emit("e3", nil) // a disabled endpoint does not get this event
	r.eventually("it to be fanned out", func() bool {
		return one[int](r, "SELECT count(*) FROM postroom.inbox WHERE handler = 'fanout'") == 3 && one[int](r, "SELECT count(*) FROM postroom.held WHERE handler = 'fanout'") == 0
	})
	if n := one[int](r, "SELECT count(*) FROM postroom.inbox WHERE handler = 'webhooks'"); n != 2 {
		t.Fatalf("%d deliveries, want 2", n)
	}

	to.answer(204)
	if err := r.store.Enable(t.Context(), "e", ann); err != nil {
		t.Fatal(err)
	}
	if job := <-r.replay(deadletter.Filter{Class: webhook.ClassDisabled}); job.Succeeded != 2 {
		t.Errorf("replayed: %+v", job)
	}
	r.eventually("both events to be delivered", func() bool { return one[int](r, "SELECT count(*) FROM postroom.held") == 0 })
	got := make(map[string]int)
	for _, request := range to.requests() {
		got[request.header.Get("webhook-id")]++
	}
	if got["e1"] != 4 || got["e2"] != 1 {
		t.Errorf("requests by id: %v", got)
	}
}

// The number of requests to one endpoint at a time is limited: to one until it is known to work,
// and to InFlight after that. The other events wait, and that costs them no attempt.
func TestInFlight(t *testing.T) {
	t.Parallel()
	const most, events = 2, 12
	r, to := newRig(t, func(cfg *webhook.SenderConfig) { cfg.InFlight = most }), newReceiver(t)
	begun, answer := make(chan struct{}, events), make(chan struct{})
	var running, peak atomic.Int64
	to.Config.Handler = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if n := running.Add(1); n > peak.Load() {
			peak.Store(n)
		}
		defer running.Add(-1)
		begun <- struct{}{}
		<-answer
	})
	r.add(webhook.EndpointSpec{ID: "e", URL: to.URL})
	r.run()
	t.Cleanup(func() { close(answer) })
	for n := range events {
		r.emit(fmt.Sprint("e", n), nil)
	}
	waiting := func() int {
		return one[int](r, "SELECT count(*) FROM postroom.held WHERE handler = 'webhooks' AND class = 'snoozed' AND attempts = 0 AND dead_at IS NULL")
	}
	r.eventually("one request, and the other events to wait", func() bool { return waiting() == events-1 && peak.Load() == 1 || peak.Load() > 1 })
	if n := peak.Load(); n != 1 {
		t.Fatalf("%d requests are under way to an endpoint that was not tried before, want 1", n)
	}
	for n := range events {
		if n > 0 {
			r.overrideNextAtAndPause()
			r.eventually("each event to run or to wait", func() bool {
				claimed := one[int](r, "SELECT count(*) FROM postroom.held WHERE claimed_by IS NOT NULL")
				return claimed == int(running.Load()) && one[int](r, "SELECT count(*) FROM postroom.held WHERE claimed_by IS NULL AND next_at <= now()") == 0
			})
		}
		devtest.Receive(t, patience, "a request", begun)
		answer <- struct{}{}
	}
	r.eventually("all events to be delivered", func() bool { return one[int](r, "SELECT count(*) FROM postroom.held") == 0 })
	if n := peak.Load(); n != most {
		t.Errorf("up to %d requests were under way at the same time, want %d", n, most)
	}
}

// An endpoint gets several requests at a time, until another process records that the endpoint fails.
// From then on it gets one request at a time, until a request succeeds.
func TestAnEndpointThatFailsGetsOneRequestAtATime(t *testing.T) {
	t.Parallel()
	const most, events = 3, 6
	r, to := newRig(t, func(cfg *webhook.SenderConfig) { cfg.InFlight = most }), newReceiver(t)
	begun, answer := make(chan struct{}, events), make(chan struct{})
	var waits atomic.Bool
	var running atomic.Int64
	to.before = func() {
		if waits.Load() {
			running.Add(1)
			defer running.Add(-1)
			begun <- struct{}{}
			<-answer
		}
	}
	r.add(webhook.EndpointSpec{ID: "e", URL: to.URL})
	r.run()
	t.Cleanup(func() { close(answer) })
	for n := range most {
		r.emit(fmt.Sprint("before", n), nil)
		r.eventually("a delivery", func() bool {
			return len(to.requests()) == n+1 && one[int](r, "SELECT count(*) FROM postroom.held") == 0
		})
	}
	waits.Store(true)
	r.exec("UPDATE postroom.webhook_endpoint SET failing_since = now(), last_status = 500, last_at = now()")
	for n := range events {
		r.emit(fmt.Sprint("e", n), nil)
	}
	settled := func(want int) {
		t.Helper()
		r.eventually("each event to run or to wait", func() bool {
			return one[int](r, "SELECT count(*) FROM postroom.held WHERE handler = 'fanout' OR claimed_by IS NULL AND next_at <= now()") == 0 &&
				one[int](r, "SELECT count(*) FROM postroom.held WHERE claimed_by IS NOT NULL") == int(running.Load())
		})
		if n := running.Load(); n != int64(want) {
			t.Errorf("%d requests run at the same time, want %d", n, want)
		}
	}
	devtest.Receive(t, patience, "a request", begun)
	settled(1)
	answer <- struct{}{}
	r.eventually("the success to be recorded", func() bool {
		return one[int](r, "SELECT count(*) FROM postroom.webhook_endpoint WHERE failing_since IS NULL") == 1
	})
	r.overrideNextAtAndPause()
	for range 2 {
		devtest.Receive(t, patience, "a request", begun)
	}
	settled(2)
}

// These are addresses to which no webhook may go.
func TestBlockedAddresses(t *testing.T) {
	t.Parallel()
	to := newReceiver(t)
	port := to.Listener.Addr().String()
	port = port[strings.LastIndex(port, ":"):]
	r := newRig(t, func(cfg *webhook.SenderConfig) {
		cfg.AllowedPrefixes = []netip.Prefix{netip.MustParsePrefix("10.9.9.9/32")}
		cfg.Resolver = resolver(func(name string, _ int) (string, bool) {
			switch name {
			case "inside.example.com.":
				return "127.0.0.1", true
			case "metadata.example.com.":
				return "169.254.169.254", true
			case "down.example.com.":
				return "", false
			}
			return "", true
		})
	})
	for id, url := range map[string]string{
		"loopback": to.URL, "by-name": "https://inside.example.com" + port, "metadata": "https://metadata.example.com/latest", "private": "https://10.0.0.1",
		"mapped": "https://[::ffff:127.0.0.1]" + port, "port": "https://93.184.215.14:22", "nat64": "https://[64:ff9b::a00:1]",
	} {
		r.add(webhook.EndpointSpec{ID: id, URL: url})
	}
	for id, url := range map[string]string{"plain": "http://127.0.0.1", "user": "https://a:hunter2@example.com"} {
		r.exec("INSERT INTO postroom.webhook_endpoint (id, url, secrets) VALUES ($1, $2, '{whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw}')", id, url)
	}
	r.add(webhook.EndpointSpec{ID: "dns", URL: "https://down.example.com"})
	r.add(webhook.EndpointSpec{ID: "unknown", URL: "https://unknown.example.com"})
	r.run()
	r.emit("e1", nil)
	for _, id := range []string{"loopback", "by-name", "metadata", "private", "mapped", "port", "nat64", "plain", "user"} {
		d := r.failed(id)
		if !d.Dead || d.Class != "permanent" || strings.Contains(d.Text, "hunter2") {
			t.Errorf("%s: %+v", id, d)
		}
	}
	if len(to.requests()) != 0 {
		t.Error("a request reached this machine")
	}
	for _, id := range []string{"dns", "unknown"} {
		if d := r.failed(id); d.Class != "error" || d.Attempts != 1 || d.Dead {
			t.Errorf("%s: %+v", id, d)
		}
	}
}

// A host has a forbidden address and an allowed one. If the allowed one cannot be reached, that is a
// failure of the endpoint, and the event is not dead.
func TestAHostWithAForbiddenAddress(t *testing.T) {
	t.Parallel()
	to := newReceiver(t)
	listener, err := net.Listen("tcp", "127.0.0.9:0")
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(to)
	_ = server.Listener.Close()
	server.Listener = listener
	server.StartTLS()
	t.Cleanup(server.Close)
	closed, err := net.Listen("tcp", "127.0.0.9:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	r := newRig(t, func(cfg *webhook.SenderConfig) {
		cfg.AllowedPrefixes = []netip.Prefix{netip.MustParsePrefix("127.0.0.9/32")}
		cfg.Resolver = resolver(func(name string, _ int) (string, bool) {
			if name == "forbidden.example.com." {
				return "127.0.0.1 127.0.0.2", true
			}
			return "127.0.0.1 127.0.0.9", true
		})
	})
	port := func(l net.Listener) string { return fmt.Sprint(":", l.Addr().(*net.TCPAddr).Port) }
	r.add(webhook.EndpointSpec{ID: "works", URL: "https://works.example.com" + port(listener)})
	r.add(webhook.EndpointSpec{ID: "refuses", URL: "https://refuses.example.com" + port(closed)})
	r.add(webhook.EndpointSpec{ID: "forbidden", URL: "https://forbidden.example.com" + port(listener)})
	r.run()
	r.emit("e1", nil)
	r.eventually("the request to the allowed address", func() bool { return len(to.requests()) == 1 })
	if d := r.failed("refuses"); d.Class != "error" || d.Dead {
		t.Errorf("the allowed address refuses connections: %+v", d)
	}
	if d := r.failed("forbidden"); d.Class != "permanent" || !d.Dead {
		t.Errorf("both addresses are forbidden: %+v", d)
	}
}

// The name servers of a customer's domain fail. That is a failure of the endpoint: it is disabled
// in the end.
func TestLookupsOfAnEndpointFail(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(cfg *webhook.SenderConfig) {
		cfg.Resolver = resolver(func(name string, _ int) (string, bool) { return "", name == "" })
	})
	r.add(webhook.EndpointSpec{ID: "e", URL: "https://broken.example.com"})
	r.run()
	r.emit("e1", nil)
	if d := r.failed("e"); d.Class != "error" || d.Attempts != 1 || d.Dead {
		t.Fatalf("the first attempt: %+v", d)
	}
	r.exec("UPDATE postroom.webhook_endpoint SET failing_since = failing_since - interval '5 days 1 second'")
	r.overrideNextAtAndPause()
	r.eventually("the event to be dead", func() bool {
		d, _ := r.heldOf("e")
		return d.Dead && d.Class == webhook.ClassDisabled
	})
}

// No name server answers. That does not count against the endpoint, and costs no attempt.
func TestNoNameServerAnswers(t *testing.T) {
	t.Parallel()
	unreachable := &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("no route to the name server")
	}}
	silence := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	for name, names := range map[string]*net.Resolver{
		"each question fails":         resolver(func(string, int) (string, bool) { return "", false }),
		"the server is not reachable": unreachable,
		"the server does not answer":  silence,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, func(cfg *webhook.SenderConfig) { cfg.Resolver, cfg.Timeout = names, 4*time.Second })
			r.add(webhook.EndpointSpec{ID: "e", URL: "https://example.com"})
			r.run()
			r.emit("e1", nil)
			if d := r.failed("e"); d.Class != "snoozed" || d.Attempts != 0 || d.Dead {
				t.Errorf("the event: %+v", d)
			}
			if one[bool](r, "SELECT failing_since IS NOT NULL FROM postroom.webhook_endpoint") {
				t.Error("the endpoint is said to fail")
			}
		})
	}
}

// Faults of the config are reported at once, and the sender sends nothing.
func TestSenderConfig(t *testing.T) {
	t.Parallel()
	in := inbox.New(nil, nil, inbox.Config{Schema: "a b"})
	s := webhook.NewSender(in, webhook.SenderConfig{
		Name: "w", InFlight: -1, Timeout: time.Hour, Types: []string{"order.*"}, AllowedPrefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/8")},
	})
	err := s.Check(t.Context())
	for _, want := range []string{"Schema", "InFlight", "Timeout", "AllowedPrefixes", "Types"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q in it", err, want)
		}
	}
}

// An inbox with the handler of FanOut does not start if the config of the sender is faulty. It also
// does not start if the handler is in a Mux, or has a middleware.
func TestInboxRefusesAFaultySender(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	for name, wrap := range map[string]func(h postroom.Handler) postroom.Handler{
		"alone": func(h postroom.Handler) postroom.Handler { return h },
		"mux": func(h postroom.Handler) postroom.Handler {
			var mux postroom.Mux
			mux.On("order.placed", h)
			return &mux
		},
		"chain": func(h postroom.Handler) postroom.Handler {
			return postroom.Chain(h, func(next postroom.Handler) postroom.Handler { return next })
		},
	} {
		in := inbox.New(pool, nil, inbox.Config{Logger: silent})
		s := webhook.NewSender(in, webhook.SenderConfig{Name: "webhooks", InFlight: -1, AcceptOnly: true, Logger: silent})
		in.Handle(inbox.Subscription{Name: "fanout"}, wrap(s.FanOut()))
		for what, start := range map[string]func(context.Context) error{"Check": in.Check, "Run": in.Run} {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			if err := start(ctx); !errors.Is(err, postroom.ErrUnrecoverable) || !strings.Contains(err.Error(), "InFlight is -1") {
				t.Errorf("%s: %s returned %v, want the fault of the sender", name, what, err)
			}
			cancel()
		}
	}
}

// An inbox that only delivers does not start either if the config of the sender is faulty.
func TestInboxThatOnlyDeliversRefusesAFaultySender(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	in := inbox.New(pool, nil, inbox.Config{Logger: silent})
	webhook.NewSender(in, webhook.SenderConfig{Name: "webhooks", InFlight: -1, Logger: silent})
	if err := in.Check(t.Context()); !errors.Is(err, postroom.ErrUnrecoverable) || !strings.Contains(err.Error(), "InFlight is -1") {
		t.Errorf("%v, want the fault of the sender", err)
	}
}

// The program of the documentation works with four connections, which is the default of a pool on a
// machine with up to four processors.
func TestSenderWithThePoolOfASmallMachine(t *testing.T) {
	t.Parallel()
	r, to := newRig(t, nil), newReceiver(t)
	cfg := r.pool.Config()
	cfg.MaxConns = 4
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(t.Context()), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	r.in = inbox.New(pool, nil, inbox.Config{IdlePoll: 20 * time.Millisecond, Logger: silent})
	r.sender = webhook.NewSender(r.in, r.cfg)
	r.in.Handle(inbox.Subscription{Name: "fanout"}, r.sender.FanOut())
	if err := r.in.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.add(webhook.EndpointSpec{ID: "e", URL: to.URL})
	r.run()
	for i := range 20 {
		r.emit(fmt.Sprint("e", i), nil)
	}
	r.eventually("the deliveries", func() bool {
		return len(to.requests()) == 20 && one[int](r, "SELECT count(*) FROM postroom.held") == 0
	})
}

// A sender has its endpoints in the schema of its inbox.
func TestSenderHasTheSchemaOfItsInbox(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	if _, err := schema.Migrate(t.Context(), pool, "tenant2"); err != nil {
		t.Fatal(err)
	}
	ep := webhook.NewEndpoints(pool, webhook.EndpointsConfig{Schema: "tenant2"})
	if _, _, err := ep.Add(t.Context(), webhook.EndpointSpec{ID: "e", URL: "https://example.com"}, ann); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]error{"tenant2": nil, "": webhook.ErrUnknownEndpoint} {
		s := webhook.NewSender(inbox.New(pool, nil, inbox.Config{Schema: name, Logger: silent}), webhook.SenderConfig{Name: "webhooks", Logger: silent})
		if _, err := s.Test(t.Context(), "e", ann); !errors.Is(err, want) {
			t.Errorf("schema %q of the inbox: Test of the endpoint returned %v, want %v", name, err, want)
		}
	}
}

// An inbox does not start if it fans out for a sender of another schema, or forwards webhooks to an
// outbox of another schema.
func TestInboxRefusesWebhooksOfAnotherSchema(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	if _, err := schema.Migrate(t.Context(), pool, "tenant2"); err != nil {
		t.Fatal(err)
	}
	for _, other := range []string{"", "tenant2"} {
		sender := webhook.NewSender(inbox.New(pool, nil, inbox.Config{Schema: other, Logger: silent}), webhook.SenderConfig{Name: "webhooks", AcceptOnly: true, Logger: silent})
		for name, h := range map[string]postroom.Handler{
			"FanOut": sender.FanOut(), "Forward": webhook.Forward(outbox.New(outbox.Config{Source: "/shop", Schema: other})),
		} {
			in := inbox.New(pool, nil, inbox.Config{Logger: silent})
			in.Handle(inbox.Subscription{Name: "h"}, h)
			err := in.Check(t.Context())
			if other == "" && err != nil {
				t.Errorf("%s of the same schema: %v", name, err)
			}
			if other != "" && (!errors.Is(err, postroom.ErrUnrecoverable) || !strings.Contains(err.Error(), "schema tenant2") || !strings.Contains(err.Error(), "schema postroom")) {
				t.Errorf("%s of another schema: %v, want an error with both schemas", name, err)
			}
		}
	}
}

// An inbox does not start if it forwards webhooks to an outbox that refuses each event.
func TestInboxRefusesToForwardToAFaultyOutbox(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	for want, out := range map[string]*outbox.Outbox{
		"no outbox": nil, "Source": outbox.New(outbox.Config{}), "schema name": outbox.New(outbox.Config{Source: "/shop", Schema: "Shop"}),
	} {
		in := inbox.New(pool, nil, inbox.Config{Logger: silent})
		in.Handle(inbox.Subscription{Name: "h"}, webhook.Forward(out))
		if err := in.Check(t.Context()); !errors.Is(err, postroom.ErrUnrecoverable) || !strings.Contains(err.Error(), want) {
			t.Errorf("Check = %v, want a refusal with %q", err, want)
		}
	}
}

// Attempts are counted by their outcome. Disabled endpoints are counted too. Each request has a
// span. No metric names a host.
func TestDeliveriesAreCounted(t *testing.T) {
	t.Parallel()
	meter, spans := sdk.NewManualReader(), tracetest.NewSpanRecorder()
	r := newRig(t, func(cfg *webhook.SenderConfig) {
		cfg.MeterProvider = sdk.NewMeterProvider(sdk.WithReader(meter))
		cfg.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	})
	works, broken := newReceiver(t), newReceiver(t)
	broken.answer(500)
	r.add(webhook.EndpointSpec{ID: "works", URL: works.URL})
	r.add(webhook.EndpointSpec{ID: "broken", URL: broken.URL})
	r.add(webhook.EndpointSpec{ID: "inside", URL: "https://10.0.0.1"})
	r.add(webhook.EndpointSpec{ID: "disabled", URL: works.URL})
	if err := r.store.Disable(t.Context(), "disabled", ann); err != nil {
		t.Fatal(err)
	}
	r.run()
	r.emit("e1", nil)
	r.failed("broken")
	r.failed("inside")
	disabled := 0.0
	counted := func() map[string]int64 {
		var all metricdata.ResourceMetrics
		if err := meter.Collect(t.Context(), &all); err != nil {
			t.Fatal(err)
		}
		got := make(map[string]int64)
		for _, scope := range all.ScopeMetrics {
			for _, m := range scope.Metrics {
				if gauge, ok := m.Data.(metricdata.Gauge[float64]); ok && m.Name == "postroom.webhook.endpoints.disabled" {
					disabled = gauge.DataPoints[0].Value
					continue
				}
				data, ok := m.Data.(metricdata.Sum[int64])
				if !ok || m.Name != "postroom.webhook.delivered" {
					t.Errorf("another metric: %s", m.Name)
					continue
				}
				for _, point := range data.DataPoints {
					outcome, _ := point.Attributes.Value("outcome")
					got[outcome.AsString()] += point.Value
				}
			}
		}
		return got
	}
	r.eventually("three attempts to be counted", func() bool {
		return maps.Equal(counted(), map[string]int64{"delivered": 1, "failed": 1, "blocked": 1})
	})
	if disabled != 1 {
		t.Errorf("%g endpoints are disabled, want 1", disabled)
	}
	if n := len(spans.Ended()); n != 3 {
		t.Errorf("%d spans, want 3", n)
	}
}

// A clock that is ahead for a moment disables no endpoint. The test is not parallel, because it
// changes the clock of the process.
func TestDatabaseClockThatIsAheadDisablesNoEndpoint(t *testing.T) {
	defer clock.OverrideLatest(40 * 24 * time.Hour)()
	r, to := newRig(t, nil), newReceiver(t)
	r.add(webhook.EndpointSpec{ID: "e", URL: to.URL})
	r.run()
	to.answer(500)
	r.emit("e1", nil)
	r.failed("e")
	r.exec("UPDATE postroom.webhook_endpoint SET failing_since = now() - interval '39 days'")
	again := func(requests int) {
		t.Helper()
		r.overrideNextAtAndPause()
		r.eventually("another attempt", func() bool {
			return len(to.requests()) == requests && one[int](r, "SELECT count(*) FROM postroom.held WHERE handler = 'webhooks' AND (claimed_by IS NOT NULL OR class IS NULL)") == 0
		})
	}
	again(2)
	if n := one[int](r, "SELECT count(*) FROM postroom.webhook_endpoint WHERE disabled_at IS NOT NULL"); n != 0 {
		t.Error("the endpoint is disabled")
	}
	clock.OverrideLatest(0)
	r.overrideNextAtAndPause()
	r.eventually("the endpoint to be disabled", func() bool {
		return one[int](r, "SELECT count(*) FROM postroom.webhook_endpoint WHERE disabled_reason LIKE 'it failed since %'") == 1
	})
}

// An event was delivered, but this could not be recorded at once. Meanwhile the endpoint begins to fail.
// When the event is done, no request is made: the endpoint still fails, but only since after the answer.
func TestAnAnswerBeforeAFailureIsNoSuccessAfterIt(t *testing.T) {
	t.Parallel()
	r, to := newRig(t, nil), newReceiver(t)
	r.add(webhook.EndpointSpec{ID: "ep", URL: to.URL})
	r.exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not now'; END $$`)
	r.exec(`CREATE TRIGGER refuse BEFORE DELETE ON postroom.held FOR EACH ROW WHEN (OLD.handler = 'webhooks') EXECUTE FUNCTION refuse()`)
	r.run()
	r.emit("e1", nil)
	r.failed("ep")
	r.exec("UPDATE postroom.webhook_endpoint SET failing_since = now() - interval '4 days', last_status = 500, last_at = now() WHERE id = 'ep'")
	r.exec("DROP TRIGGER refuse ON postroom.held")
	r.exec("UPDATE postroom.held SET next_at = now() WHERE handler = 'webhooks' AND next_at IS NOT NULL AND claimed_by IS NULL")
	r.eventually("the event to be done", func() bool { return one[int](r, "SELECT count(*) FROM postroom.held") == 0 })
	if n := len(to.requests()); n != 1 {
		t.Fatalf("%d requests, want 1", n)
	}
	if !one[bool](r, `SELECT coalesce(last_status = 500 AND failing_since = (SELECT done_at FROM postroom.receipt WHERE handler = 'webhooks'), false)
		FROM postroom.webhook_endpoint`) {
		t.Errorf("the endpoint does not fail since the answer: %s", one[string](r, "SELECT e::text FROM postroom.webhook_endpoint AS e"))
	}
}

// A request begins while its endpoint works. Before its answer comes, another request fails. The answer
// is a success: the endpoint no longer fails, and five days of failures do not begin with that failure.
func TestASuccessEndsAFailureThatBeganMeanwhile(t *testing.T) {
	t.Parallel()
	r, to := newRig(t, nil), newReceiver(t)
	begun, end := make(chan struct{}), make(chan struct{})
	to.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		switch req.Header.Get("webhook-id") {
		case "slow":
			close(begun)
			<-end
		case "refused":
			w.WriteHeader(http.StatusNotFound)
			return
		}
		to.ServeHTTP(w, req)
	})
	r.add(webhook.EndpointSpec{ID: "ep", URL: to.URL})
	r.run()
	done := func() bool { return one[int](r, "SELECT count(*) FROM postroom.held WHERE event_id <> 'refused'") == 0 }
	r.emit("first", nil) // after its success, two requests may run at the same time
	r.eventually("the first delivery", func() bool { return len(to.requests()) == 1 && done() })
	r.emit("slow", nil)
	devtest.Receive(t, patience, "the slow request", begun)
	r.emit("refused", nil)
	r.failed("ep")
	close(end)
	r.eventually("the slow delivery", func() bool { return len(to.requests()) == 2 && done() })
	if all, err := r.store.List(t.Context()); err != nil || !all[0].FailingSince.IsZero() || all[0].LastStatus != http.StatusNoContent {
		t.Errorf("endpoints: %+v, %v; want one that works since the last answer", all, err)
	}
}
