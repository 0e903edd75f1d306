package webhook_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/webhook"
)

// pauseOf returns for how many seconds the last recorded attempt paused an endpoint. Both times are
// from one statement, so the result does not depend on how long the test takes. It is -1 if the
// endpoint is not paused.
func (r *rig) pauseOf(endpoint string) float64 {
	r.Helper()
	return one[float64](r, "SELECT coalesce(extract(epoch FROM paused_until - last_at), -1)::float8 FROM postroom.webhook_endpoint WHERE id = $1", endpoint)
}

// An endpoint is paused for as long as the documentation says after each kind of failure, and after
// a failure that concerns only the event it is not paused.
func TestPauseAfterEachKindOfFailure(t *testing.T) {
	t.Parallel()
	const none, first = -1, 1 // seconds
	answers := func(status int, header ...string) func(t *testing.T) string {
		return func(t *testing.T) string {
			to := newReceiver(t)
			to.answer(status, header...)
			return to.URL
		}
	}
	does := func(do http.HandlerFunc) func(t *testing.T) string {
		return func(t *testing.T) string {
			to := newReceiver(t)
			to.Config.Handler = do
			return to.URL
		}
	}
	named := func(name string) func(t *testing.T) string {
		return func(*testing.T) string { return "https://" + name + ".example.com" }
	}
	for name, tt := range map[string]struct {
		url   func(t *testing.T) string
		pause float64
	}{
		"408":                                {answers(408), first},
		"425":                                {answers(425), first},
		"429":                                {answers(429), first},
		"500":                                {answers(500), first},
		"502":                                {answers(502), first},
		"503":                                {answers(503), first},
		"504":                                {answers(504), first},
		"429 for 600 s":                      {answers(429, "Retry-After", "600"), 600},
		"503 for 600 s":                      {answers(503, "Retry-After", "600"), 600},
		"503 for no time":                    {answers(503, "Retry-After", "0"), first},
		"503 for more than the longest time": {answers(503, "Retry-After", "7200"), 3600},
		"503 for a time that is no time":     {answers(503, "Retry-After", "soon"), first},
		"302":                                {answers(302, "Location", "https://example.com"), none},
		"400":                                {answers(400), none},
		"404":                                {answers(404), none},
		"404 for 600 s":                      {answers(404, "Retry-After", "600"), none},
		"422":                                {answers(422), none},
		"410":                                {answers(410), none}, // the endpoint is disabled
		"no answer in time": {does(func(_ http.ResponseWriter, req *http.Request) {
			_, _ = io.Copy(io.Discard, req.Body) // the context ends with the connection only after that
			<-req.Context().Done()
		}), first},
		"the connection breaks": {does(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }), first},
		"the connection is refused": {func(t *testing.T) string {
			to := newReceiver(t)
			to.Close()
			return to.URL
		}, first},
		"no TLS": {func(t *testing.T) string {
			to := httptest.NewServer(http.NotFoundHandler())
			t.Cleanup(to.Close)
			return "https://" + to.Listener.Addr().String()
		}, first},
		"the host's name does not exist": {named("unknown"), first},
		"the host's name servers fail":   {named("down"), first},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, func(cfg *webhook.SenderConfig) {
				cfg.Timeout = 2 * time.Second
				cfg.Resolver = resolver(func(name string, _ int) (string, bool) { return "", name != "down.example.com." })
			})
			r.add(webhook.EndpointSpec{ID: "e", URL: tt.url(t)})
			r.run()
			r.emit("e1", nil)
			if d := r.failed("e"); d.Attempts < 1 || d.Class == "snoozed" {
				t.Errorf("held: %+v, want a failed attempt", d)
			}
			if got := r.pauseOf("e"); got != tt.pause {
				t.Errorf("the endpoint is paused for %g s, want %g", got, tt.pause)
			}
		})
	}
}

// An endpoint fails once and then works. Its event arrives with the second attempt, by the clock.
func TestSecondAttemptComesByTheClock(t *testing.T) {
	t.Parallel()
	r, to := newRig(t, nil), newReceiver(t)
	to.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if len(to.requests()) == 0 {
			to.answer(500)
		} else {
			to.answer(204)
		}
		to.ServeHTTP(w, req)
	})
	r.add(webhook.EndpointSpec{ID: "e", URL: to.URL})
	r.run()
	r.emit("e1", nil)
	r.eventually("the event to be delivered", func() bool {
		return len(to.requests()) == 2 && one[int](r, "SELECT count(*) FROM postroom.held") == 0
	})
	if got := r.pauseOf("e"); got != -1 {
		t.Errorf("the endpoint works, and is paused for %g s", got)
	}
}

// An endpoint refuses one event. The next event arrives at once.
func TestARefusedEventDelaysNoOther(t *testing.T) {
	t.Parallel()
	r, to := newRig(t, nil), newReceiver(t)
	to.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Header.Get("webhook-id") == "e1" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		to.ServeHTTP(w, req)
	})
	r.add(webhook.EndpointSpec{ID: "e", URL: to.URL})
	r.run()
	r.emit("e1", nil)
	r.failed("e")
	r.emit("e2", func(ev *postroom.Event) { ev.Key = "8" })
	r.eventually("the other event's request", func() bool { return len(to.requests()) == 1 })
}

// The longer an endpoint fails, the longer is its pause: a tenth of that time, at most ten minutes.
func TestPauseGrowsWithTheTimeOfFailure(t *testing.T) {
	t.Parallel()
	for since, want := range map[string]string{"100 seconds": "(last_at - failing_since) / 10", "1 day": "interval '10 minutes'"} {
		t.Run(since, func(t *testing.T) {
			t.Parallel()
			r, to := newRig(t, nil), newReceiver(t)
			to.answer(500)
			r.add(webhook.EndpointSpec{ID: "e", URL: to.URL})
			r.exec("UPDATE postroom.webhook_endpoint SET failing_since = now() - $1::text::interval", since)
			r.run()
			r.emit("e1", nil)
			r.failed("e")
			if !one[bool](r, "SELECT paused_until - last_at = "+want+" FROM postroom.webhook_endpoint") {
				t.Errorf("the endpoint is paused for %g s, want %s", r.pauseOf("e"), want)
			}
		})
	}
}

// An endpoint fails while many events wait for it, and then works. The log says so once each, and has
// no line for each event that waits. These events show what paused the endpoint.
func TestStateOfAnEndpointIsLoggedOnce(t *testing.T) {
	t.Parallel()
	const events = 100
	log := &journal{}
	logger := slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelInfo}))
	r, to := newRig(t, func(cfg *webhook.SenderConfig) { cfg.Logger = logger }), newReceiver(t)
	r.in = inbox.New(r.pool, nil, inbox.Config{IdlePoll: 20 * time.Millisecond, Logger: logger})
	r.sender = webhook.NewSender(r.in, r.cfg)
	r.in.Handle(inbox.Subscription{Name: "fanout"}, r.sender.FanOut())
	to.answer(503, "Retry-After", "600")
	r.add(webhook.EndpointSpec{ID: "e", URL: to.URL})
	r.run()
	r.emit("first", nil)
	r.failed("e")
	r.insertDue("e", events)
	r.eventually("all to wait", func() bool {
		return one[int](r, "SELECT count(*) FROM postroom.held WHERE handler = 'webhooks' AND next_at <= now()") == 0
	})
	if text := one[string](r, "SELECT min(failures -> -1 ->> 'text') FROM postroom.held WHERE class = 'snoozed'"); !strings.HasSuffix(text, "webhook: endpoint e is paused, because it answered 503") {
		t.Errorf("a waiting event shows %q", text)
	}
	to.answer(204)
	r.eventually("the deliveries", func() bool {
		r.overrideNextAtAndPause()
		return one[int](r, "SELECT count(*) FROM postroom.held") == 0
	})
	for line, want := range map[string]int{"webhook endpoint fails": 1, "webhook endpoint works again": 1, "event snoozed": 0} {
		if got := strings.Count(log.String(), `"`+line+`"`); got != want {
			t.Errorf("%d lines %q, want %d", got, line, want)
		}
	}
	if t.Failed() {
		t.Log(log)
	}
}

// An endpoint works again, and the inbox repeats the transaction that records it, because of a conflict
// with another transaction. The log says once that the endpoint works again.
func TestARepeatedTransactionLogsOnce(t *testing.T) {
	t.Parallel()
	log := &journal{}
	r, to := newRig(t, func(cfg *webhook.SenderConfig) { cfg.Logger = slog.New(slog.NewTextHandler(log, nil)) }), newReceiver(t)
	r.add(webhook.EndpointSpec{ID: "e", URL: to.URL})
	r.exec("UPDATE postroom.webhook_endpoint SET failing_since = now(), last_status = 500, last_at = now()")
	r.exec("CREATE SEQUENCE tries")
	r.exec(`CREATE FUNCTION refuse_once() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF nextval('tries') = 1 THEN RAISE EXCEPTION 'a conflict' USING ERRCODE = 'serialization_failure'; END IF; RETURN OLD; END $$`)
	r.exec(`CREATE CONSTRAINT TRIGGER refuse AFTER DELETE ON postroom.held DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
		WHEN (OLD.handler = 'webhooks') EXECUTE FUNCTION refuse_once()`)
	r.run()
	r.emit("e1", nil)
	r.eventually("the delivery", func() bool { return one[int](r, "SELECT count(*) FROM postroom.held") == 0 })
	if n := one[int](r, "SELECT last_value FROM tries"); n != 2 {
		t.Fatalf("%d transactions, want 2", n)
	}
	if n := strings.Count(log.String(), `"webhook endpoint works again"`); n != 1 {
		t.Errorf("%d lines, want 1:\n%s", n, log)
	}
}
