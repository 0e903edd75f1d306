package idempotency_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/postroom/postroom/idempotency"
	"github.com/postroom/postroom/internal/devtest"
)

// The effect and its key are in one database and one transaction. Keys cannot be kept anywhere
// else.
func TestKeyAndEffectAreOneTransaction(t *testing.T) { // C11
	t.Parallel()
	r := newRig(t)
	path := r.mount(idempotency.Route{}, r.refund)
	r.post(path, "k")
	if !one[bool](r, "SELECT (SELECT xmin FROM ledger) = (SELECT xmin FROM postroom.idempotency)") {
		r.Error("effect and answer were written by two transactions")
	}
}

func TestMarkers(t *testing.T) { // C13
	t.Parallel()
	r := newRig(t)
	path := r.mount(idempotency.Route{}, r.refund)
	first, second := r.post(path, "k"), r.post(path, "k")
	for _, got := range []struct{ have, want string }{
		{first.Header().Get("Idempotency-Status"), "stored"},
		{first.Header().Get("Idempotent-Replayed"), ""},
		{second.Header().Get("Idempotency-Status"), "replayed"},
		{second.Header().Get("Idempotent-Replayed"), "true"},
	} {
		if got.have != got.want {
			r.Errorf("header is %q, want %q", got.have, got.want)
		}
	}
	r.reset(func(c *idempotency.Config) { c.StatusHeader, c.ReplayedHeader = "X-Idem", idempotency.Omit })
	path = r.mount(idempotency.Route{}, r.refund)
	first, second = r.post(path, "k"), r.post(path, "k")
	if first.Header().Get("X-Idem") != "stored" || second.Header().Get("X-Idem") != "replayed" || second.Header().Get("Idempotent-Replayed") != "" {
		r.Errorf("headers are %v and %v", first.Header(), second.Header())
	}
}

func TestCodes(t *testing.T) { // C14
	t.Parallel()
	r := newRig(t)
	for _, tt := range []struct {
		codes             map[idempotency.Code]string
		missing, mismatch string
	}{
		{nil, "missing_idempotency_key", "idempotency_key_payload_mismatch"},
		{idempotency.CodesUpper, "MISSING_IDEMPOTENCY_KEY", "IDEMPOTENCY_KEY_REUSE"},
		{idempotency.CodesDotted, "VALIDATION.idempotency.missing_key", "CONFLICT.idempotency.payload_mismatch"},
		{map[idempotency.Code]string{idempotency.CodeMissingKey: "E1"}, "E1", "idempotency_key_payload_mismatch"},
	} {
		r.reset(func(c *idempotency.Config) { c.Codes = tt.codes })
		path := r.mount(idempotency.Route{Scope: func(*http.Request) string { return "codes " + tt.missing }}, r.refund)
		r.want(r.post(path, ""), 400, tt.missing)
		r.post(path, "k")
		r.want(r.send(path, sending{key: "k", body: "2"}), 422, tt.mismatch)
	}
}

func TestProblems(t *testing.T) { // 2.4
	t.Parallel()
	r := newRig(t)
	path := r.mount(idempotency.Route{}, r.refund)
	w := r.post(path, "")
	var p map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
		t.Fatal(err)
	}
	if p["type"] != "urn:postroom:problem:missing_idempotency_key" || p["status"] != 400.0 || p["title"] == "" || p["retryable"] != false {
		r.Errorf("problem is %v", p)
	}
	if h := w.Header(); h.Get("Content-Type") != "application/problem+json" || h.Get("Cache-Control") != "no-store" || h.Get("Link") != "" {
		r.Errorf("header is %v", h)
	}
	r.reset(func(c *idempotency.Config) { c.DocsURL = "https://docs.example/keys" })
	w = r.post(r.mount(idempotency.Route{}, r.refund), "")
	if w.Header().Get("Link") != `<https://docs.example/keys>; rel="describedby"` || !strings.Contains(w.Body.String(), `"https://docs.example/keys#missing_idempotency_key"`) {
		r.Errorf("with documentation: %v %s", w.Header(), w.Body)
	}
}

func TestLeaseModeIsTheOption(t *testing.T) { // C19
	t.Parallel()
	r := newRig(t)
	path := r.mount(idempotency.Route{Mode: idempotency.LeaseMode}, func(w http.ResponseWriter, req *http.Request) {
		if info, ok := idempotency.FromContext(req.Context()); !ok || info.Mode != idempotency.LeaseMode {
			r.Errorf("attempt is %v", info)
		}
		if got := one[string](r, "SELECT state FROM postroom.idempotency"); got != "pending" {
			r.Errorf("while the handler runs its key is %s", got)
		}
		w.WriteHeader(http.StatusNoContent)
	})
	r.wantReplay(r.post(path, "k"), r.post(path, "k"))
	r.want(r.post(path, "k"), 204, "")
}

func TestRecordHasTheAnswer(t *testing.T) { // C20
	t.Parallel()
	r := newRig(t)
	path := r.mount(idempotency.Route{}, r.refund)
	first := r.post(path, "k")
	rec, err := r.guard.Get(r.Context(), idempotency.Key{Scope: "POST " + path, Principal: "ann", Value: "k"})
	if err != nil {
		t.Fatal(err)
	}
	if rec.Response.Status != 201 || string(rec.Response.Body) != first.Body.String() || rec.State != idempotency.StateComplete || rec.CreatedAt.IsZero() || rec.CompletedAt.Before(rec.CreatedAt) {
		r.Errorf("record is %+v", rec)
	}

	path = r.mount(idempotency.Route{Render: func(_ context.Context, ref string) (idempotency.Response, error) {
		if ref != "refund 7" {
			return idempotency.Response{}, errors.New("another reference")
		}
		return idempotency.Response{Body: []byte("made of " + ref)}, nil
	}}, func(w http.ResponseWriter, req *http.Request) {
		r.insert(req.Context())
		idempotency.KeepRef(req.Context(), "refund 7")
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write([]byte("made"))
	})
	r.want(r.post(path, "k"), 201, "")
	if w := r.post(path, "k"); w.Code != 201 || w.Body.String() != "made of refund 7" {
		r.Errorf("made again: %d %s", w.Code, w.Body)
	}
	if one[bool](r, "SELECT body IS NOT NULL FROM postroom.idempotency WHERE scope = $1", "POST "+path) {
		r.Error("the body is stored in addition to the reference")
	}
}

// The limit applies only to answers that are kept. It does not apply if only a reference is kept,
// or nothing.
func TestLargeAnswersThatAreNotKept(t *testing.T) { // C20, E23
	t.Parallel()
	r := newRig(t)
	body := strings.Repeat("x", 20)
	path := r.mount(idempotency.Route{
		MaxResponse: 10, Oversize: idempotency.OversizeDrops,
		Render: func(context.Context, string) (idempotency.Response, error) {
			return idempotency.Response{Body: []byte(body)}, nil
		},
	}, func(w http.ResponseWriter, req *http.Request) {
		idempotency.KeepRef(req.Context(), "ref")
		_, _ = w.Write([]byte(body))
	})
	r.wantReplay(r.post(path, "k"), r.post(path, "k"))

	path = r.mount(idempotency.Route{MaxResponse: 10}, func(w http.ResponseWriter, req *http.Request) {
		if req.Method == "POST" {
			w.WriteHeader(http.StatusBadRequest)
		}
		for range 2 {
			_, _ = w.Write([]byte(body[:8]))
		}
	})
	if w := r.send(path, sending{method: "PUT"}); w.Code != 200 || w.Body.String() != body[:16] {
		r.Errorf("without a key: %d %s", w.Code, w.Body)
	}
	r.want(r.post(path, "k"), 500, "response_too_large") // and not a part of the 400
}

func TestNamesOfMetrics(t *testing.T) { // C21
	t.Parallel()
	r := newRig(t)
	path := r.mount(idempotency.Route{}, r.refund)
	r.post(path, "k")
	r.post(path, "k")
	r.send(path, sending{key: "k", body: "2"})
	for name, want := range map[string]int64{"idempotent.created": 1, "idempotent.replayed": 1, "idempotent.conflict": 1, "idempotent.in_progress": 0} {
		if got := r.counts()[name]; got != want {
			r.Errorf("%s is %d, want %d", name, got, want)
		}
	}
	// For other names, use the views of the SDK.
	view := metric.NewView(metric.Instrument{Name: "idempotent.replayed"}, metric.Stream{Name: "idempotent.replays"})
	r.reset(func(c *idempotency.Config) {
		r.meter = metric.NewManualReader()
		c.MeterProvider = metric.NewMeterProvider(metric.WithReader(r.meter), metric.WithView(view))
	})
	path = r.mount(idempotency.Route{Scope: func(*http.Request) string { return "views" }}, r.refund)
	r.post(path, "k")
	r.post(path, "k")
	if got := r.counts()["idempotent.replays"]; got != 1 {
		r.Errorf("with a view: %d", got)
	}
}

func TestUnsupported(t *testing.T) { // C22
	t.Parallel()
	r := newRig(t)
	path := r.mount(idempotency.Route{Unsupported: true}, func(w http.ResponseWriter, _ *http.Request) { r.calls.Add(1); w.WriteHeader(http.StatusOK) })
	r.want(r.post(path, "k"), 400, "idempotency_not_supported")
	r.want(r.post(path, ""), 200, "")
	r.want(r.post(path, ""), 200, "")
	r.wantCalls(2, 0)
}

func TestTimeoutHeader(t *testing.T) { // C27
	t.Parallel()
	r := newRig(t)
	var left time.Duration
	look := func(_ http.ResponseWriter, req *http.Request) {
		at, _ := req.Context().Deadline()
		left = time.Until(at)
	}
	def := r.mount(idempotency.Route{}, look)
	honoured := r.mount(idempotency.Route{TimeoutHeader: "X-Request-Timeout"}, look)
	for _, tt := range []struct {
		path, value string
		most, least time.Duration
	}{
		{def, "700", 30 * time.Second, 2 * time.Second},
		{honoured, "700", 700 * time.Millisecond, -patience},
		{honoured, "", 30 * time.Second, 2 * time.Second},
		{honoured, "0.7", 30 * time.Second, 2 * time.Second},
		{honoured, "99999999", 30 * time.Second, 2 * time.Second},
	} {
		r.send(tt.path, sending{key: "k" + tt.value, header: map[string]string{"X-Request-Timeout": tt.value}})
		if left > tt.most || left < tt.least {
			r.Errorf("%q: the handler has %s", tt.value, left)
		}
	}
}

// All faults are reported at once, each with the name of its field, and no request runs until they
// are fixed.
func TestFaults(t *testing.T) {
	t.Parallel()
	r := newRigOn(t, devtest.Pool(t), func(c *idempotency.Config) {
		c.Schema, c.StatusHeader, c.StoreTimeout, c.PurgeEvery = "No", "a b", -1, -1
		c.Codes = map[idempotency.Code]string{"nonsense": "x"}
	})
	path := r.mount(idempotency.Route{
		Required: []string{"GET", "post"}, MismatchStatus: 418, TTL: -1, Wait: -1, MaxBody: -1, MaxResponse: -1, Timeout: -1, Lease: -1, RetryAfter: -1,
		Mode: 7, Store: 7, From: 7, Oversize: 7, Print: 77, TxRetries: -1, Key: idempotency.KeyFormat{MaxLen: 256},
		OmitHeaders: []string{"no name"}, TimeoutHeader: "a:", Headers: []string{""},
	}, r.refund)
	err := r.guard.Check(r.Context())
	for _, name := range []string{
		"Schema", "StatusHeader", "StoreTimeout", "PurgeEvery", "nonsense", "GET", `"post"`, "MismatchStatus", "TTL", "Wait", "MaxBody", "MaxResponse", "Timeout",
		"Lease", "RetryAfter", "Mode", "Store", "From", "Oversize", "Print", "TxRetries", "MaxLen", `"no name"`, "TimeoutHeader", `""`,
	} {
		if err == nil || !strings.Contains(err.Error(), name) {
			r.Errorf("%s is not in %v", name, err)
		}
	}
	r.want(r.post(path, "k"), 500, "idempotency_misconfigured")
	if err := r.guard.Run(r.Context()); err == nil {
		r.Error("Run of a faulty guard ended without an error")
	}
	_, get := r.guard.Get(r.Context(), idempotency.Key{Scope: "s", Value: "k"})
	_, purge := r.guard.Purge(r.Context(), 1)
	del := r.guard.Delete(r.Context(), idempotency.Key{Scope: "s", Value: "k"})
	for name, err := range map[string]error{"Get": get, "Purge": purge, "Delete": del} {
		if err == nil || !strings.Contains(err.Error(), "Schema") {
			r.Errorf("%s of a faulty guard = %v, want the faults", name, err)
		}
	}
	r.wantCalls(0, 0)
}

func TestDefaultMethods(t *testing.T) { // C7
	t.Parallel()
	r := newRig(t)
	for _, tt := range []struct {
		name  string
		route idempotency.Route
		want  map[string]int // without a key: 400 is required, 201 is not
	}{
		{"by default", idempotency.Route{}, map[string]int{"POST": 400, "PATCH": 400, "PUT": 201, "DELETE": 201, "GET": 201}},
		{"more that may", idempotency.Route{Optional: []string{"DELETE"}}, map[string]int{"POST": 400, "PATCH": 400, "DELETE": 201}},
		{"one that must", idempotency.Route{Required: []string{"PUT"}}, map[string]int{"POST": 201, "PUT": 400}},
		{"one that need not", idempotency.Route{Optional: []string{"POST"}}, map[string]int{"POST": 201, "PATCH": 400}},
		{"none that must", idempotency.Route{Required: []string{}}, map[string]int{"POST": 201, "PUT": 201}},
	} {
		path := r.mount(tt.route, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })
		for method, want := range tt.want {
			if w := r.send(path, sending{method: method}); w.Code != want {
				t.Errorf("%s: %s without a key is answered %d, want %d", tt.name, method, w.Code, want)
			}
		}
	}
}

// If the policy keeps an error, the error is repeated unchanged. No reference is kept for it,
// because the reference is about effects that were rolled back.
func TestKeptErrorIsRepeatedAsItWas(t *testing.T) { // C20
	t.Parallel()
	for _, mode := range []idempotency.Mode{idempotency.TxMode, idempotency.LeaseMode} {
		r := newRig(t)
		render := func(context.Context, string) (idempotency.Response, error) {
			t.Error("a reference of an error was rendered")
			return idempotency.Response{Status: 201, Body: []byte("refund 7 of another request")}, nil
		}
		path := r.mount(idempotency.Route{Mode: mode, Store: idempotency.StoreFinal, Render: render}, func(w http.ResponseWriter, req *http.Request) {
			idempotency.KeepRef(req.Context(), "refund 7")
			http.Error(w, "more than was paid", http.StatusUnprocessableEntity)
		})
		first := r.post(path, "k")
		r.want(first, 422, "")
		r.wantReplay(first, r.post(path, "k"))
	}
}

// The largest durations of a route overflow nothing.
func TestLargestDurations(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	gate := newGate(r.refund)
	rt := idempotency.Route{
		TTL: math.MaxInt64, RetryAfter: math.MaxInt64, Timeout: math.MaxInt64, Lease: math.MaxInt64, MaxBody: math.MaxInt64, MaxResponse: math.MaxInt64,
	}
	path := r.mount(rt, gate.serve)
	if err := r.guard.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	answer := r.inside(gate, path, sending{key: "k"})
	w := r.post(path, "k")
	if after, err := strconv.Atoi(w.Header().Get("Retry-After")); err != nil || after < 9_000_000_000 {
		t.Errorf("Retry-After is %q, want the largest duration in seconds", w.Header().Get("Retry-After"))
	}
	r.wantReplay(answer(), r.post(path, "k"))
	r.wantCalls(1, 1)

	rt.RetryWindow = math.MaxInt64
	r.mount(rt, r.refund)
	if err := r.guard.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "twice RetryWindow") {
		t.Errorf("Check = %v, want that TTL is too short", err)
	}
}

// Check refuses settings that no database, message or client could keep.
func TestSettingsThatCannotBeKeptAreFaults(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	for want, rt := range map[string]idempotency.Route{
		"Isolation is \"snapshot\"":                 {Isolation: "snapshot"},
		"TTL is 24ns, want at least 1ms":            {TTL: 24},
		"Timeout is 30ns, want at least 1ms":        {Timeout: 30},
		"Lease is 60ns, want at least 1ms":          {Lease: 60},
		"Wait is 5ns, want 0, or at least 1ms":      {Wait: 5},
		"RetryAfter is 1ns, want at least 1ms":      {RetryAfter: 1},
		"RetryWindow is 12ns, want 0, or at least":  {RetryWindow: 12},
		"\"host\" is a header of the message":       {Headers: []string{"host"}},
		"\"Connection\" is a header of the message": {TimeoutHeader: "Connection"},
		"TimeoutHeader \"X-Key\" has the key":       {Headers: []string{"X-Key"}, TimeoutHeader: "X-Key"},
	} {
		guard := idempotency.New(pool, idempotency.Config{Principal: customer})
		guard.Handler(rt, http.NotFoundHandler())
		if err := guard.Check(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Check = %v, want %s", err, want)
		}
	}
	for want, cfg := range map[string]idempotency.Config{
		"StoreTimeout is 5ns, want at least 1ms":        {StoreTimeout: 5},
		"PurgeEvery is 1ns, want at least 1ms":          {PurgeEvery: 1},
		"\"Content-Length\" is a header of the message": {StatusHeader: "Content-Length"},
		"\"Trailer\" is a header of the message":        {ReplayedHeader: "Trailer"},
		"ReplayedHeader are both \"x-status\"":          {StatusHeader: "X-Status", ReplayedHeader: "x-status"},
	} {
		cfg.Principal = customer
		if err := idempotency.New(pool, cfg).Check(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Check = %v, want %s", err, want)
		}
	}
	guard := idempotency.New(pool, idempotency.Config{Principal: customer, StatusHeader: idempotency.Omit, ReplayedHeader: idempotency.Omit})
	for _, level := range []pgx.TxIsoLevel{"", pgx.Serializable, pgx.RepeatableRead, pgx.ReadCommitted, pgx.ReadUncommitted} {
		guard.Handler(idempotency.Route{Isolation: level}, http.NotFoundHandler())
	}
	if err := guard.Check(t.Context()); err != nil {
		t.Error(err)
	}
	op := idempotency.Operation{Scope: "s", Key: "k", Isolation: "snapshot"}
	if _, _, err := idempotency.Do(t.Context(), guard, op, func(context.Context, pgx.Tx) (int, error) { return 1, nil }); err == nil || !strings.Contains(err.Error(), "Isolation") {
		t.Errorf("Do = %v, want the fault", err)
	}
}
