package webhook_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/webhook"
)

func TestStored(t *testing.T) {
	e := newEndpoint(t)
	e.want(signed(t, "a", `{"type":"invoice.paid"}`), 200, "")
	e.want(signed(t, "a", `{"type":"invoice.paid"}`), 200, "")
	e.want(signed(t, "a", `{"type":"invoice.gone"}`), 200, "")
	if len(e.in.known) != 1 || e.counted("stored", "") != 1 || e.counted("duplicate", "") != 1 || e.counted("conflict", "") != 1 {
		t.Errorf("known: %v, log:\n%s", e.in.known, e.log)
	}
	ev := e.events()[0]
	if ev.ID != "a" || ev.Source != "/acme" || ev.Type != "standard.invoice.paid" || ev.Key != "" || ev.ContentType != "application/json" ||
		string(ev.Data) != `{"type":"invoice.paid"}` || time.Since(ev.Time).Abs() > time.Minute {
		t.Errorf("stored %+v", ev)
	}
	if err := e.Check(t.Context()); err != nil || len(e.events()) != 3 {
		t.Errorf("Check = %v, and the inbox got %d events, want 3", err, len(e.events()))
	}
}

// All refusals have the same answer, byte by byte. The log has the reason of each.
func TestRefused(t *testing.T) {
	e := newEndpoint(t)
	tenants := newEndpoint(t, func(c *webhook.ReceiverConfig) {
		c.Choose = func(*http.Request) (string, webhook.Scheme, error) { return "", nil, webhook.ErrUnknownTenant }
	})
	custom := newEndpoint(t, func(c *webhook.ReceiverConfig) {
		c.Scheme = verifier(func() (webhook.Message, error) { return webhook.Message{}, errors.New("secret") })
	})
	with := func(name string, values ...string) *http.Request {
		req := signed(t, "a", "{}")
		req.Header[http.CanonicalHeaderKey(name)] = values
		return req
	}
	at := func(d time.Duration) *http.Request {
		req := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("{}"))
		if err := webhook.Sign(webhook.Standard(secret), req.Header, webhook.Message{ID: "a", Time: time.Now().Add(d)}, []byte("{}")); err != nil {
			t.Fatal(err)
		}
		return req
	}
	var first *httptest.ResponseRecorder
	for _, tt := range []struct {
		e      *endpoint
		req    *http.Request
		reason webhook.Reason
	}{
		{e, with("webhook-signature"), webhook.NoSignature},
		{e, with("webhook-signature", "v1,AAAA"), webhook.WrongSignature},
		{e, request(t, webhook.Standard("whsec_b3RoZXI="), "a", "", "{}"), webhook.WrongSignature},
		{e, with("webhook-timestamp", "+1"), webhook.MalformedTime},
		{e, at(-time.Hour), webhook.Stale},
		{e, at(time.Hour), webhook.Future},
		{e, with("webhook-id", "a.b"), webhook.MalformedID},
		{e, with("webhook-id", "a", "b"), webhook.RepeatedHeader},
		{tenants, signed(t, "a", "{}"), webhook.UnknownTenant},
		{custom, signed(t, "a", "{}"), webhook.OtherReason},
	} {
		before := tt.e.counted("rejected", string(tt.reason))
		w := tt.e.want(tt.req, 401, "webhook_verification_failed")
		if first == nil {
			first = w
		}
		if w.Body.String() != first.Body.String() || !maps.EqualFunc(w.Header(), first.Header(), func(a, b []string) bool { return fmt.Sprint(a) == fmt.Sprint(b) }) {
			t.Errorf("%s: answered %v %s, not %v %s", tt.reason, w.Header(), w.Body, first.Header(), first.Body)
		}
		if tt.e.counted("rejected", string(tt.reason)) != before+1 || !strings.Contains(tt.e.log.String(), "level=INFO msg=\"webhook refused\" source=/acme remote=192.0.2.1:1234 reason="+string(tt.reason)) {
			t.Errorf("the message does not mention %s:\n%s", tt.reason, tt.e.log)
		}
		if len(tt.e.in.known) != 0 || strings.Contains(tt.e.log.String(), "secret") {
			t.Errorf("%s: stored %v, log:\n%s", tt.reason, tt.e.in.known, tt.e.log)
		}
	}
}

// verifier is a user's scheme.
type verifier func() (webhook.Message, error)

func (v verifier) Verify(http.Header, []byte, time.Time) (webhook.Message, error) { return v() }

// failing is a body that breaks off.
type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("broken") }

func TestAnswers(t *testing.T) {
	post := func(body string) *http.Request { return signed(t, "a", body) }
	broken := httptest.NewRequest(http.MethodPost, "/", failing{})
	unsized := post(strings.Repeat("x", 101))
	unsized.ContentLength = -1
	get := httptest.NewRequest(http.MethodGet, "/", nil)
	type config = webhook.ReceiverConfig
	small := func(c *config) { c.MaxBody = 100 }
	github := func(c *config) { c.Scheme = webhook.GitHub("s") }
	ofForm := request(t, webhook.GitHub("s"), "a", "push", "payload=x")
	coded := func(codings ...string) *http.Request {
		req := post("{}")
		req.Header["Content-Encoding"] = codings
		return req
	}
	ofForm.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for _, tt := range []struct {
		name   string
		set    func(*config)
		req    *http.Request
		status int
		code   string
		told   string // outcome
	}{
		{"a body of the largest size", small, post(strings.Repeat("x", 100)), 200, "", "stored"},
		{"a larger body", small, post(strings.Repeat("x", 101)), 413, "request_too_large", "too_large"},
		{"a larger body without a length", small, unsized, 413, "request_too_large", "too_large"},
		{"more than an event may have", nil, post(strings.Repeat("x", 2<<20+1)), 413, "request_too_large", "too_large"},
		{"a body that breaks off", nil, broken, 400, "unreadable_request", "unreadable"},
		{"another method", nil, get, 405, "method_not_allowed", "other_method"},
		{"no id in the header", nil, signed(t, "", "{}"), 400, "webhook_without_id", "without_id"},
		{"no id in the body", func(c *config) { c.Scheme = webhook.Stripe("s") }, request(t, webhook.Stripe("s"), "", "", `{"type":"a"}`), 400, "webhook_without_id", "without_id"},
		{"no JSON, and the id would be in it", func(c *config) { c.Scheme = webhook.Stripe("s") }, request(t, webhook.Stripe("s"), "", "", "payment"), 400, "webhook_without_id", "without_id"},
		{"no JSON, and the id is a header", nil, post("payment"), 200, "", "stored"}, // as an event without a type
		{"a ping", github, request(t, webhook.GitHub("s"), "a", "ping", "{}"), 200, "", "handshake"},
		{"a form", github, ofForm, 415, "webhook_is_form", "form"},
		{"a compressed body", nil, coded("gzip"), 415, "webhook_is_encoded", "encoded"},
		{"a body that is compressed twice", nil, coded("identity", " , br"), 415, "webhook_is_encoded", "encoded"},
		{"a character set in place of a compression", nil, coded("UTF-8"), 200, "", "stored"},
		{"a body that is said not to be compressed", nil, coded("identity", "", "Identity, identity"), 200, "", "stored"},
		{"a type that is not stored", func(c *config) { c.Types = []string{"standard.a.*"} }, post(`{"type":"b"}`), 200, "", "ignored"},
		{"it has no id either", func(c *config) { c.Types = []string{"standard.a.*"} }, signed(t, "", `{"type":"a"}`), 200, "", "ignored"},
		{"a type that is stored", func(c *config) { c.Types = []string{"standard.x", "standard.a.*"} }, post(`{"type":"a.b"}`), 200, "", "stored"},
		{"the event cannot be made", func(c *config) {
			c.Event = func(webhook.Message, http.Header, []byte) (postroom.Event, error) {
				return postroom.Event{}, errors.New("no")
			}
		}, post("{}"), 500, "webhook_not_processed", "no_event"},
		{"making the event panics", func(c *config) {
			c.Event = func(webhook.Message, http.Header, []byte) (postroom.Event, error) { panic("no") }
		}, post("{}"), 500, "webhook_not_processed", "no_event"},
		{"the event is not valid", func(c *config) {
			c.Event = func(webhook.Message, http.Header, []byte) (postroom.Event, error) {
				return postroom.Event{Type: "a b"}, nil
			}
		}, post("{}"), 500, "webhook_not_processed", "no_event"},
		{"the key is not valid", func(c *config) { c.Key = func(postroom.Event) string { return "a\x00" } }, post("{}"), 500, "webhook_not_processed", "no_event"},
		{"making the key panics", func(c *config) { c.Key = func(postroom.Event) string { panic("no") } }, post("{}"), 500, "webhook_not_processed", "no_event"},
		{"no such handler", func(c *config) { c.Handler = "other" }, post("{}"), 500, "webhook_misconfigured", "misconfigured"},
		{"no secret", func(c *config) { c.Scheme = webhook.Standard("") }, post("{}"), 500, "webhook_misconfigured", "misconfigured"},
		{"no secret, no signature", func(c *config) { c.Scheme = webhook.Stripe() }, post("{}"), 500, "webhook_misconfigured", "misconfigured"},
		{"the scheme panics", func(c *config) { c.Scheme = verifier(func() (webhook.Message, error) { panic("no") }) }, post("{}"), 500, "webhook_misconfigured", "misconfigured"},
		{"no scheme", func(c *config) { c.Scheme = nil }, post("{}"), 500, "webhook_misconfigured", "misconfigured"},
		{"no source", func(c *config) { c.Source = "" }, post("{}"), 500, "webhook_misconfigured", ""},
		{"the tenants cannot be read", func(c *config) {
			c.Choose = func(*http.Request) (string, webhook.Scheme, error) { return "", nil, errors.New("away") }
		}, post("{}"), 503, "webhook_not_stored", "unavailable"},
		{"no tenant", func(c *config) {
			c.Choose = func(*http.Request) (string, webhook.Scheme, error) { return "", webhook.Standard(secret), nil }
		}, post("{}"), 500, "webhook_misconfigured", "misconfigured"},
		{"choosing panics", func(c *config) { c.Choose = func(*http.Request) (string, webhook.Scheme, error) { panic("no") } }, post("{}"), 500, "webhook_misconfigured", "misconfigured"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := newEndpoint(t, func(c *config) {
				if tt.set != nil {
					tt.set(c)
				}
			})
			w := e.want(tt.req, tt.status, tt.code)
			if tt.told != "" && e.counted(tt.told, "") != 1 {
				t.Errorf("not counted as %s", tt.told)
			}
			if (len(e.in.known) == 1) != (tt.told == "stored") {
				t.Errorf("stored: %v", e.in.known)
			}
			if want := map[int]string{405: "POST"}[tt.status]; w.Header().Get("Allow") != want {
				t.Errorf("Allow: %q", w.Header().Get("Allow"))
			}
			if loud := strings.Contains(e.log.String(), "level=ERROR"); loud != (tt.status == 500) {
				t.Errorf("log:\n%s", e.log)
			}
			if faulty := tt.code == "webhook_misconfigured" && !slices.Contains([]string{"the scheme panics", "choosing panics", "no tenant"}, tt.name); (e.Check(t.Context()) != nil) != faulty {
				t.Errorf("Check = %v", e.Check(t.Context()))
			}
		})
	}
}

// The error of the inbox decides the answer, which is never 200.
func TestErrorsOfTheInbox(t *testing.T) {
	for _, tt := range []struct {
		err    error
		status int
		told   string
	}{
		{errors.New("connection refused"), 503, "unavailable"},
		{context.DeadlineExceeded, 503, "unavailable"},
		{inbox.ErrOrdered, 500, "misconfigured"},
		{postroom.Unrecoverable(errors.New("config")), 500, "misconfigured"},
		{&postroom.EventError{Op: "accept", Err: postroom.ErrUnknownType}, 200, "ignored"},
	} {
		e := newEndpoint(t)
		e.in.orders = map[string]error{"h": tt.err}
		e.want(signed(t, "a", "{}"), tt.status, "")
		if e.counted(tt.told, "") != 1 {
			t.Errorf("%v is not counted as %s", tt.err, tt.told)
		}
	}
}

// Slack gets its challenge back, and nothing is stored.
func TestChallenge(t *testing.T) {
	slack := webhook.Slack("s")
	e := newEndpoint(t, func(c *webhook.ReceiverConfig) { c.Scheme = slack })
	body := `{"type":"url_verification","challenge":"3eZbrw1a"}`
	w := e.want(request(t, slack, "", "", body), 200, "")
	if w.Body.String() != "3eZbrw1a" || w.Header().Get("Content-Type") != "text/plain; charset=utf-8" || len(e.events()) != 0 {
		t.Errorf("answered %q %s", w.Header(), w.Body)
	}
	e.want(request(t, webhook.Slack("other"), "", "", body), 401, "webhook_verification_failed")
}

// In a request without an id Slack says that it leaves out events. Nothing is stored.
func TestSlackLimitsTheRate(t *testing.T) {
	slack := webhook.Slack("s")
	e := newEndpoint(t, func(c *webhook.ReceiverConfig) { c.Scheme = slack })
	body := `{"type":"app_rate_limited","team_id":"T1","minute_rate_limited":1518467820,"api_app_id":"A1"}`
	if w := e.want(request(t, slack, "", "", body), 200, ""); w.Body.Len() != 0 || len(e.events()) != 0 || e.counted("handshake", "") != 1 {
		t.Errorf("answered %s, stored %v", w.Body, e.events())
	}
	e.want(request(t, webhook.Slack("other"), "", "", body), 401, "webhook_verification_failed")
}

func TestChangedRequestsFollowThePolicy(t *testing.T) {
	stripe := webhook.Stripe("s")
	for _, tt := range []struct {
		scheme webhook.Scheme
		set    webhook.ChangePolicy
		ignore bool
	}{
		{stripe, webhook.ChangedDefault, true},
		{stripe, webhook.HoldChanged, false},
		{stripe, webhook.IgnoreChanged, true},
		{webhook.Standard(secret), webhook.ChangedDefault, false},
		{webhook.Standard(secret), webhook.HoldChanged, false},
		{webhook.Standard(secret), webhook.IgnoreChanged, true},
	} {
		e := newEndpoint(t, func(c *webhook.ReceiverConfig) { c.Scheme, c.Changed = tt.scheme, tt.set })
		for _, n := range []int{1, 2} {
			e.want(request(t, tt.scheme, "a", "", fmt.Sprintf(`{"id":"a","n":%d}`, n)), 200, "")
		}
		if e.in.calls[1].IgnoreChanged != tt.ignore || (e.counted("changed", "") == 1) != tt.ignore || (e.counted("conflict", "") == 1) == tt.ignore {
			t.Errorf("%T, %d: %+v", tt.scheme, tt.set, e.in.calls)
		}
	}
}

func TestEventsOfRequests(t *testing.T) {
	github := webhook.GitHub("s")
	for provider, want := range map[string]string{
		"push": "github.push", "a b/c": "github.a_b_c", "é": "github._", "": "github.untyped", "a..b": "github.a._.b", ".": "github._._",
		strings.Repeat("a.", 300): "github." + strings.TrimSuffix(strings.Repeat("a.", 124), "."),
	} {
		e := newEndpoint(t, func(c *webhook.ReceiverConfig) {
			c.Scheme, c.Key = github, func(ev postroom.Event) string { return "key of " + ev.ID }
		})
		req := request(t, github, "a", provider, "x")
		req.Header.Set("Content-Type", "application/cloudevents+json")
		e.want(req, 200, "")
		if ev := e.events()[0]; ev.Type != want || ev.Key != "key of a" || ev.ContentType != "application/octet-stream" || ev.Validate() != nil {
			t.Errorf("%q: %+v", provider, ev)
		}
	}
	e := newEndpoint(t, func(c *webhook.ReceiverConfig) {
		c.Event = func(m webhook.Message, h http.Header, body []byte) (postroom.Event, error) {
			ev := postroom.NewEvent("thing.made", string(body))
			ev.Key, ev.ID = h.Get("X-Key")+m.ID, ""
			return ev, nil
		}
	})
	req := signed(t, "a", "x")
	req.Header.Set("X-Key", "k")
	e.want(req, 200, "")
	if ev := e.events()[0]; ev.ID != "a" || ev.Source != "/acme" || ev.Type != "thing.made" || ev.Key != "ka" || string(ev.Data) != `"x"` {
		t.Errorf("%+v", ev)
	}
	e = newEndpoint(t)
	at := time.Now().Add(-2 * time.Minute).Truncate(time.Second)
	req = httptest.NewRequest(http.MethodPost, "/", strings.NewReader("x"))
	if err := webhook.Sign(webhook.Standard(secret), req.Header, webhook.Message{ID: "a", Time: at}, []byte("x")); err != nil {
		t.Fatal(err)
	}
	e.want(req, 200, "")
	if ev := e.events()[0]; !ev.Time.Equal(at) {
		t.Errorf("the event has the time %s, want that of signing, %s", ev.Time, at)
	}
}

// counting counts what it verifies.
type counting struct {
	webhook.Scheme

	calls *[]string
}

func (c counting) Verify(h http.Header, body []byte, now time.Time) (webhook.Message, error) {
	*c.calls = append(*c.calls, string(body))
	return c.Scheme.Verify(h, body, now)
}

// A request of an unknown tenant is verified too, and is refused even if its signature is right.
func TestTenants(t *testing.T) {
	var calls []string
	schemes := map[string]webhook.Scheme{
		"/ann": counting{webhook.Standard(secret), &calls}, "/bob": counting{webhook.Standard("whsec_Ym9i"), &calls},
	}
	e := newEndpoint(t, func(c *webhook.ReceiverConfig) {
		c.Scheme, c.Choose = nil, func(r *http.Request) (string, webhook.Scheme, error) {
			body := make([]byte, 2)
			if n, err := r.Body.Read(body); n != 2 || err != nil {
				t.Errorf("the body is not to be read: %d, %v", n, err)
			}
			if s := schemes[r.URL.Path]; s != nil {
				return r.URL.Path[1:], s, nil
			}
			return "", nil, fmt.Errorf("look: %w", webhook.ErrUnknownTenant)
		}
	})
	send := func(path string, s webhook.Scheme, status int) {
		t.Helper()
		req := request(t, s, "a", "", "{}")
		req.URL.Path = path
		e.want(req, status, "")
	}
	send("/none", webhook.Standard(secret), 401) // before any tenant was chosen
	send("/ann", webhook.Standard(secret), 200)
	send("/bob", webhook.Standard(secret), 401)
	send("/ann", webhook.Standard("whsec_Ym9i"), 401)
	send("/none", webhook.Standard(secret), 401)
	send("/ann", webhook.Standard(secret), 200)
	send("/none", webhook.Standard(secret), 401) // signed as the tenant that was chosen last
	if len(calls) != 6 || len(e.in.known) != 1 || e.counted("rejected", "unknown_tenant") != 3 {
		t.Errorf("%d requests were verified, want all but the first; stored %v", len(calls), e.in.known)
	}
	if err := e.Check(t.Context()); err != nil {
		t.Error(err)
	}
}

// A receiver reads a body for ten times Patience. That time must not overflow, so that a large
// body is read.
func TestPatienceHasALimit(t *testing.T) {
	for _, patience := range []time.Duration{-1, time.Hour + 1, math.MaxInt64/10 + 1, math.MaxInt64} {
		e := newEndpoint(t, func(c *webhook.ReceiverConfig) { c.Patience = patience })
		if err := e.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "Patience is "+patience.String()) {
			t.Errorf("%s: %v, want an error", patience, err)
		}
	}
	if err := newEndpoint(t, func(c *webhook.ReceiverConfig) { c.Patience = time.Hour }).Check(t.Context()); err != nil {
		t.Error(err)
	}
}

// An id is unique within its tenant: no tenant can take it from another, and the source of an event
// says whose secret verified it.
func TestTenantsHaveIDsOfTheirOwn(t *testing.T) {
	tenants := map[string]struct {
		scheme webhook.Scheme
		source string
	}{
		"ann":     {webhook.Stripe("whsec_a"), "/acme/ann"},
		"bob":     {webhook.Stripe("whsec_b"), "/acme/bob"},
		"bob/ann": {webhook.Stripe("whsec_c"), "/acme/bob%2Fann"},
		"#1 ü":    {webhook.Stripe("whsec_d"), "/acme/%231%20%C3%BC"},
	}
	choose := func(c *webhook.ReceiverConfig) {
		c.Scheme, c.Choose = nil, func(r *http.Request) (string, webhook.Scheme, error) {
			name := r.URL.Query().Get("tenant")
			return name, tenants[name].scheme, nil
		}
	}
	for name, set := range map[string]func(c *webhook.ReceiverConfig){
		"/acme": choose,
		"/other": func(c *webhook.ReceiverConfig) {
			choose(c)
			c.Event = func(m webhook.Message, _ http.Header, body []byte) (postroom.Event, error) {
				return postroom.Event{Source: "/other", Type: "a", Data: body}, nil
			}
		},
	} {
		e := newEndpoint(t, set)
		for tenant, of := range tenants {
			req := request(t, of.scheme, "", "", fmt.Sprintf(`{"id":"evt_1","type":"charge.succeeded","tenant":%q}`, tenant))
			req.URL.RawQuery = url.Values{"tenant": {tenant}}.Encode()
			e.want(req, 200, "")
			if ev := e.events()[len(e.events())-1]; ev.ID != "evt_1" || ev.Source != name+strings.TrimPrefix(of.source, "/acme") {
				t.Errorf("%s: stored %s of %s", tenant, ev.ID, ev.Source)
			}
		}
		if n := e.counted("stored", ""); n != int64(len(tenants)) {
			t.Errorf("%s: %d events were stored, want %d", name, n, len(tenants))
		}
	}
}

// A lookup of tenants ignores case, and Choose returns the name in the request. A captured event is
// not stored again under another spelling, by this process or another one. All other events are
// stored: those under the first spelling, and those under a new one, to which the tenant was renamed.
// Two tenants whose names differ only in case are no fault.
func TestSpellingsOfATenant(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	secrets := map[string]string{"acme": "whsec_a", "ACME": "whsec_a", "Acme": "whsec_a", "xY": "whsec_b", "Xy": "whsec_c", "é": "whsec_d", "É": "whsec_d"}
	log := &journal{}
	var receiver *webhook.Receiver
	restart := func() {
		in := inbox.New(pool, nil, inbox.Config{Logger: silent})
		in.Declare(inbox.Subscription{Name: "h"})
		receiver = webhook.NewReceiver(in, webhook.ReceiverConfig{
			Source: "/hooks", Handler: "h", Patience: patience, Logger: slog.New(slog.NewTextHandler(log, nil)),
			Choose: func(r *http.Request) (string, webhook.Scheme, error) {
				name := r.URL.Query().Get("tenant")
				return name, webhook.Stripe(secrets[name]), nil
			},
		})
	}
	send := func(tenant, id string, status int) {
		t.Helper()
		req := request(t, webhook.Stripe(secrets[tenant]), "", "", fmt.Sprintf(`{"id":%q,"type":"charge.succeeded"}`, id))
		req.URL.RawQuery = url.Values{"tenant": {tenant}}.Encode()
		w := httptest.NewRecorder()
		receiver.ServeHTTP(w, req)
		if w.Code != status {
			t.Errorf("%s of %s: answered %d %s, want %d", id, tenant, w.Code, w.Body, status)
		}
	}
	restart()
	send("acme", "evt_1", 200)
	send("ACME", "evt_1", 500)
	send("Acme", "evt_1", 500)
	send("acme", "evt_1", 200)
	send("xY", "evt_1", 200)
	send("Xy", "evt_1", 200)
	send("xY", "evt_1", 200)
	send("é", "evt_1", 200)
	send("É", "evt_1", 500)
	restart()
	send("acme", "evt_3", 200)
	send("ACME", "evt_1", 500)
	send("ACME", "evt_2", 200)
	send("acme", "evt_2", 500)
	send("Acme", "evt_4", 200)
	send("acme", "evt_1", 200)
	send("Xy", "evt_1", 200)
	if n := count(t, pool, "SELECT count(*) FROM postroom.held"); n != 7 {
		t.Errorf("%d events were stored, want 7", n)
	}
	if !strings.Contains(log.String(), `level=ERROR`) || !strings.Contains(log.String(), `returned the tenant \"ACME\", and earlier \"acme\" for the same event: return the stored name of a tenant`) ||
		!strings.Contains(log.String(), `\"É\", and earlier \"é\"`) {
		t.Errorf("log:\n%s", log)
	}
}

// A captured request is sent so often that a receiver forgets what it counts. It still takes no effect
// again under another spelling of its tenant.
func TestSpellingsAfterManyRequests(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	in := inbox.New(pool, nil, inbox.Config{Logger: silent})
	in.Declare(inbox.Subscription{Name: "h"})
	receiver := webhook.NewReceiver(in, webhook.ReceiverConfig{
		Source: "/hooks", Handler: "h", Patience: patience, Logger: silent, Types: []string{"a.paid"},
		Choose: func(r *http.Request) (string, webhook.Scheme, error) {
			return r.URL.RawQuery, verifier(func() (webhook.Message, error) {
				return webhook.Message{Scheme: "a", ID: "evt_1", Type: r.Header.Get("Type")}, nil
			}), nil
		},
	})
	send := func(times int, tenant, kind string, status int) {
		req := httptest.NewRequest(http.MethodPost, "/?"+tenant, nil)
		req.Header.Set("Type", kind)
		w := httptest.NewRecorder()
		for range times {
			if receiver.ServeHTTP(w, req); w.Code != status {
				t.Fatalf("%s of %s: answered %d %s, want %d", kind, tenant, w.Code, w.Body, status)
			}
		}
	}
	send(1, "acme", "paid", 200)
	send(99_999, "acme", "ignored", 200)
	send(1, "ACME", "paid", 500)
}

func TestCheckReportsAllFaults(t *testing.T) {
	e := newEndpoint(t, func(c *webhook.ReceiverConfig) {
		*c = webhook.ReceiverConfig{Source: "a b", Handler: "none", Scheme: webhook.Stripe(), Types: []string{""}, Changed: 7, MaxBody: postroom.MaxAccepted + 1, Patience: -1}
	})
	err := e.Check(t.Context())
	for _, want := range []string{"Source", "Types", "Changed is 7", "MaxBody is 8388609", "Patience is -1ns", "no secret", "no such handler"} {
		if !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("Check does not report %q: %v", want, err)
		}
	}
	if !errors.Is(err, postroom.ErrUnrecoverable) || !errors.Is(err, webhook.ErrNoSecret) || !errors.Is(err, inbox.ErrUnknownHandler) {
		t.Errorf("Check = %v", err)
	}
}

// A request has a span, and its event belongs to the same trace.
func TestSpan(t *testing.T) {
	e := newEndpoint(t)
	e.in.during = func(context.Context) error { return errors.New("away") }
	e.want(signed(t, "a", `{"type":"b"}`), 503, "webhook_not_stored")
	span := e.spans.Ended()[0]
	got := map[string]string{}
	for _, a := range span.Attributes() {
		got[string(a.Key)] = a.Value.String()
	}
	want := map[string]string{
		"cloudevents.event_source": "/acme", "cloudevents.event_id": "a", "cloudevents.event_type": "standard.b", "postroom.outcome": "unavailable", "http.response.status_code": "503",
	}
	if span.Name() != "receive /acme" || !reflect.DeepEqual(got, want) || span.Status().Description != "unavailable" {
		t.Errorf("span %s: %v %v", span.Name(), got, span.Status())
	}
}

// If a function of a user ends its goroutine, only its request ends.
func TestGoexitEndsOnlyItsRequest(t *testing.T) {
	e := newEndpoint(t, func(c *webhook.ReceiverConfig) {
		c.Key = func(postroom.Event) string { runtime.Goexit(); return "" }
	})
	e.want(signed(t, "a", "{}"), 500, "webhook_misconfigured")
	if len(e.events()) != 0 {
		t.Errorf("stored %v", e.events())
	}
}
