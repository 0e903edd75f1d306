package idempotency_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/postroom/postroom/idempotency"
)

// These tests are about requirements that contradict each other. Each has a default and an option.

func TestReplayStatus(t *testing.T) { // C1
	t.Parallel()
	r := newRig(t)
	path := r.mount(idempotency.Route{}, r.refund)
	first := r.post(path, "k")
	r.want(first, 201, "")
	r.wantReplay(first, r.post(path, "k"))
	r.wantCalls(1, 1)

	path = r.mount(idempotency.Route{ReplayStatus: idempotency.CreatedAs200}, r.refund)
	r.want(r.post(path, "k"), 201, "")
	r.want(r.post(path, "k"), 200, "")
	path = r.mount(idempotency.Route{ReplayStatus: idempotency.CreatedAs200}, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) })
	r.post(path, "k")
	r.want(r.post(path, "k"), 202, "")
}

func TestMismatch(t *testing.T) { // C2
	t.Parallel()
	r := newRig(t)
	for _, tt := range []struct{ status, want int }{{0, 422}, {409, 409}, {400, 400}} {
		r.calls.Store(0)
		path := r.mount(idempotency.Route{MismatchStatus: tt.status}, r.refund)
		first := r.post(path, "k")
		w := r.send(path, sending{key: "k", body: `{"amount":1001}`})
		r.want(w, tt.want, "idempotency_key_payload_mismatch")
		if w.Header().Get("Retry-After") != "" || strings.Contains(w.Body.String(), "1000") || strings.Contains(w.Body.String(), `"k"`) {
			r.Errorf("mismatch is answered with %v %s", w.Header(), w.Body)
		}
		r.wantReplay(first, r.send(path, sending{key: "k", body: ` { "amount" : 1e3 } `}))
		if n := r.calls.Load(); n != 1 {
			r.Errorf("%d calls", n)
		}
	}
}

func TestInProgress(t *testing.T) { // C3
	t.Parallel()
	statusURL := func(_ *http.Request, k idempotency.Key) string { return "/status/" + k.Principal + "/" + k.Value }
	tests := []struct {
		name  string
		route idempotency.Route
		check func(r *rig, path string, g *gate, finish func() bool)
	}{
		{"409", idempotency.Route{}, func(r *rig, path string, _ *gate, _ func() bool) {
			w := r.post(path, "k")
			r.want(w, 409, "idempotency_in_progress")
			if w.Header().Get("Retry-After") != "1" {
				r.Errorf("Retry-After is %q", w.Header().Get("Retry-After"))
			}
		}},
		{"waits and replays", idempotency.Route{Wait: patience}, func(r *rig, path string, g *gate, _ func() bool) {
			time.AfterFunc(20*time.Millisecond, g.release)
			w := r.post(path, "k")
			r.want(w, 201, "")
			if w.Header().Get("Idempotent-Replayed") != "true" {
				r.Error("no replay after the wait")
			}
		}},
		{"waits in vain", idempotency.Route{Wait: 30 * time.Millisecond}, func(r *rig, path string, _ *gate, _ func() bool) {
			r.want(r.post(path, "k"), 409, "idempotency_in_progress")
		}},
		{"202", idempotency.Route{StatusURL: statusURL}, func(r *rig, path string, _ *gate, _ func() bool) {
			w := r.post(path, "k")
			r.want(w, 202, "idempotency_in_progress")
			if w.Header().Get("Location") != "/status/ann/k" {
				r.Errorf("Location is %q", w.Header().Get("Location"))
			}
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			g := newGate(r.refund)
			path := r.mount(tt.route, g.serve)
			answer := r.inside(g, path, sending{key: "k"})
			tt.check(r, path, g, nil)
			r.want(answer(), 201, "")
			r.wantCalls(1, 1)
		})
	}
}

func TestStorePolicy(t *testing.T) { // C4
	t.Parallel()
	r := newRig(t)
	tests := []struct {
		name    string
		policy  idempotency.StorePolicy
		status  int
		kept    bool
		effects int
	}{
		{"success keeps 303", idempotency.StoreSuccess, 303, true, 1},
		{"success keeps no 400", idempotency.StoreSuccess, 400, false, 0},
		{"success keeps no 500", idempotency.StoreSuccess, 500, false, 0},
		{"final keeps 400", idempotency.StoreFinal, 400, true, 0},
		{"final keeps 404", idempotency.StoreFinal, 404, true, 0},
		{"final keeps no 401", idempotency.StoreFinal, 401, false, 0},
		{"final keeps no 403", idempotency.StoreFinal, 403, false, 0},
		{"final keeps no 408", idempotency.StoreFinal, 408, false, 0},
		{"final keeps no 409", idempotency.StoreFinal, 409, false, 0},
		{"final keeps no 421", idempotency.StoreFinal, 421, false, 0},
		{"final keeps no 423", idempotency.StoreFinal, 423, false, 0},
		{"final keeps no 425", idempotency.StoreFinal, 425, false, 0},
		{"final keeps no 429", idempotency.StoreFinal, 429, false, 0},
		{"final keeps no 500", idempotency.StoreFinal, 500, false, 0},
		{"final keeps 201", idempotency.StoreFinal, 201, true, 1},
		{"all keeps 500", idempotency.StoreAll, 500, true, 0},
		{"all keeps 429", idempotency.StoreAll, 429, true, 0},
		{"all keeps 200", idempotency.StoreAll, 200, true, 1},
	}
	for _, tt := range tests {
		r.calls.Store(0)
		r.exec("TRUNCATE ledger")
		path := r.mount(idempotency.Route{Store: tt.policy}, r.failing(tt.status))
		first := r.post(path, "k")
		r.want(first, tt.status, "")
		second := r.post(path, "k")
		if kept := first.Header().Get("Idempotency-Status") == "stored"; kept != tt.kept {
			r.Errorf("%s: said to be stored: %t", tt.name, kept)
		}
		if tt.kept {
			r.wantReplay(first, second)
		} else if second.Body.String() != "call 2" {
			r.Errorf("%s: the second answer is %s", tt.name, second.Body)
		}
		if got := r.effects(); got != tt.effects {
			r.Errorf("%s: %d effects, want %d", tt.name, got, tt.effects)
		}
	}
}

func TestTTL(t *testing.T) { // C5
	t.Parallel()
	r := newRig(t)
	for want, ttl := range map[int]time.Duration{24 * 60: 0, 30 * 24 * 60: idempotency.TTLPayments, 5: 5 * time.Minute} {
		path := r.mount(idempotency.Route{TTL: ttl}, r.refund)
		r.post(path, "k")
		if got := one[int](r, "SELECT round(extract(epoch FROM expires_at - completed_at) / 60)::int FROM postroom.idempotency WHERE scope = $1", "POST "+path); got != want {
			r.Errorf("the key is stored for %d minutes, want %d", got, want)
		}
	}
	// A client that repeats for longer than half the time is a fault.
	for window, ok := range map[time.Duration]bool{12 * time.Hour: true, 13 * time.Hour: false} {
		r.reset()
		r.mount(idempotency.Route{RetryWindow: window}, r.refund)
		if err := r.guard.Check(r.Context()); (err == nil) != ok {
			r.Errorf("a retry window of %s: %v", window, err)
		}
	}
}

func TestTTLBasis(t *testing.T) { // C6
	t.Parallel()
	r := newRig(t)
	for _, tt := range []struct {
		name    string
		from    idempotency.TTLBasis
		column  string
		touched bool
	}{
		{"completion", idempotency.FromCompletion, "completed_at", false},
		{"creation", idempotency.FromCreation, "created_at", false},
		{"last use", idempotency.FromLastUse, "completed_at", true},
	} {
		for _, mode := range []idempotency.Mode{idempotency.TxMode, idempotency.LeaseMode} {
			path := r.mount(idempotency.Route{From: tt.from, Mode: mode}, func(w http.ResponseWriter, req *http.Request) {
				r.exec("UPDATE postroom.idempotency SET created_at = created_at - interval '1 h' WHERE scope = $1", "POST "+req.URL.Path) // as if the operation took long
				w.WriteHeader(http.StatusCreated)
			})
			r.post(path, "k")
			const of = " FROM postroom.idempotency WHERE scope = $1"
			if !one[bool](r, "SELECT abs(extract(epoch FROM expires_at - "+tt.column+" - interval '24 h')) < 0.001 AND completed_at > created_at"+of, "POST "+path) {
				r.Errorf("%s: expires %s", tt.name, one[string](r, "SELECT (expires_at - completed_at)::text || ' ' || (expires_at - created_at)::text"+of, "POST "+path))
			}
			r.exec("UPDATE postroom.idempotency SET expires_at = expires_at - interval '12 h' WHERE scope = $1", "POST "+path)
			r.post(path, "k")
			if got := one[bool](r, "SELECT expires_at > now() + interval '23 h'"+of, "POST "+path); got != tt.touched {
				r.Errorf("%s: a replay extends it: %t", tt.name, got)
			}
		}
	}
}

func TestMethods(t *testing.T) { // C7
	t.Parallel()
	r := newRig(t)
	count := func(w http.ResponseWriter, _ *http.Request) { r.calls.Add(1); w.WriteHeader(http.StatusOK) }
	def := r.mount(idempotency.Route{}, count)
	all := r.mount(idempotency.Route{Required: []string{"POST", "PUT", "PATCH", "DELETE"}}, count)
	tests := []struct {
		path, method string
		bare         int   // status without a key
		calls        int64 // how many of two requests with a key call the handler
	}{
		{def, "POST", 400, 1},
		{def, "PATCH", 400, 1},
		{def, "PUT", 200, 1},
		{def, "DELETE", 200, 1},
		{def, "GET", 200, 2},
		{def, "HEAD", 200, 2},
		{def, "OPTIONS", 200, 2},
		{def, "TRACE", 200, 2},
		{all, "POST", 400, 1},
		{all, "PUT", 400, 1},
		{all, "PATCH", 400, 1},
		{all, "DELETE", 400, 1},
		{all, "GET", 200, 2},
	}
	for _, tt := range tests {
		w := r.send(tt.path, sending{method: tt.method})
		r.want(w, tt.bare, map[int]string{400: "missing_idempotency_key"}[tt.bare])
		r.calls.Store(0)
		r.send(tt.path, sending{method: tt.method, key: tt.method})
		r.send(tt.path, sending{method: tt.method, key: tt.method})
		if n := r.calls.Load(); n != tt.calls {
			r.Errorf("%s %s: %d calls with a key, want %d", tt.method, tt.path, n, tt.calls)
		}
	}
	// A request without its optional key has a transaction too.
	path := r.mount(idempotency.Route{}, r.refund)
	r.want(r.send(path, sending{method: "PUT"}), 201, "")
	r.want(r.send(path, sending{method: "PUT"}), 201, "")
	if n := r.effects(); n != 2 {
		r.Errorf("%d effects without a key", n)
	}
	path = r.mount(idempotency.Route{Store: idempotency.StoreAll}, r.failing(400))
	r.want(r.send(path, sending{method: "PUT"}), 400, "")
	if n := r.effects(); n != 2 {
		r.Errorf("%d effects after a failure without a key", n)
	}
}

func TestKeyFormats(t *testing.T) { // C8
	t.Parallel()
	r := newRig(t)
	def, long := r.mount(idempotency.Route{}, r.refund), strings.Repeat("k", 200)
	strict := r.mount(idempotency.Route{Key: idempotency.KeyFormat{Strict: true, MaxLen: 255, Match: regexp.MustCompile("^k").MatchString}}, r.refund)
	r.want(r.post(def, "bare"), 201, "")
	r.wantReplay(r.post(def, "bare"), r.post(def, `"bare"`))
	r.want(r.post(def, long), 400, "invalid_idempotency_key")
	r.want(r.post(strict, "kbare"), 400, "invalid_idempotency_key")
	r.want(r.post(strict, `"`+long+`"`), 201, "")
	r.want(r.post(strict, `"other"`), 400, "invalid_idempotency_key")
	w := r.post(def, `"secret`)
	r.want(w, 400, "invalid_idempotency_key")
	if strings.Contains(w.Body.String(), "secret") {
		r.Errorf("the key is repeated: %s", w.Body)
	}
}

func TestScope(t *testing.T) { // C9
	t.Parallel()
	r := newRig(t)
	one, other := r.mount(idempotency.Route{}, r.refund), r.mount(idempotency.Route{}, r.refund)
	r.post(one, "k")
	r.post(other, "k")                              // another route
	r.send(one, sending{key: "k", as: "bob"})       // another caller
	r.send(one, sending{key: "k", method: "PATCH"}) // another method
	r.wantCalls(4, 4)
	shared := func(*http.Request) string { return "refunds" }
	one, other = r.mount(idempotency.Route{Scope: shared, Print: idempotency.PrintBody}, r.refund), r.mount(idempotency.Route{Scope: shared, Print: idempotency.PrintBody}, r.refund)
	r.wantReplay(r.post(one, "k"), r.post(other, "k"))

	r.reset(func(c *idempotency.Config) { c.Principal = nil })
	path := r.mount(idempotency.Route{}, r.refund)
	if err := r.guard.Check(r.Context()); err == nil || !strings.Contains(err.Error(), "Principal") {
		r.Errorf("Check without a principal = %v", err)
	}
	r.want(r.post(path, "k"), 500, "idempotency_misconfigured")
	r.reset(func(c *idempotency.Config) { c.Principal = idempotency.Anonymous })
	path = r.mount(idempotency.Route{}, r.refund)
	r.wantReplay(r.post(path, "k"), r.send(path, sending{key: "k", as: "bob"}))
}

func TestRequestsAreComparedByTheirFingerprint(t *testing.T) { // C10
	t.Parallel()
	r := newRig(t)
	spelled := sending{key: "k", body: `{"amount" : 1000}`}
	versioned := sending{key: "k", header: map[string]string{"Api-Version": "2"}}
	own := func(_ *http.Request, body []byte) []byte { return body[:3] }
	for _, tt := range []struct {
		name  string
		route idempotency.Route
		again sending
		query string
		same  bool
	}{
		{"canonical body", idempotency.Route{}, spelled, "", true},
		{"raw body", idempotency.Route{Print: idempotency.PrintRaw}, spelled, "", false},
		{"query", idempotency.Route{}, sending{key: "k"}, "?a=1", false},
		{"body only", idempotency.Route{Print: idempotency.PrintBody}, spelled, "?a=1", true},
		{"headers do not count", idempotency.Route{}, versioned, "", true},
		{"headers", idempotency.Route{PrintHeaders: []string{"Api-Version"}}, versioned, "", false},
		{"own", idempotency.Route{PrintFunc: own}, sending{key: "k", body: `{"a different thing": 1}`}, "", true},
		{"own, other", idempotency.Route{PrintFunc: own}, sending{key: "k", body: `[1,2]`}, "", false},
	} {
		path := r.mount(tt.route, r.refund)
		r.post(path, "k")
		w := r.send(path+tt.query, tt.again)
		if got := w.Code == 201; got != tt.same {
			r.Errorf("%s: %d %s", tt.name, w.Code, w.Body)
		}
	}
}

// Amounts that differ are two requests, and spellings of one amount are one, unless the
// route compares numbers as doubles.
func TestAmountsAreExact(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	exact, doubles := r.mount(idempotency.Route{}, r.refund), r.mount(idempotency.Route{Print: idempotency.PrintJCS}, r.refund)
	for i, tt := range []struct {
		first, then    string
		exact, doubles int // the status of the second request
	}{
		{"9007199254740.993", "9007199254740.992", 422, 201},
		{"123456789012345.68", "123456789012345.69", 422, 201},
		{"9007199254740993", "9007199254740992", 422, 201},
		{"1000", "1000.0", 201, 201},
		{"1000.00", "1e3", 201, 201},
		{"-0", "0", 201, 201},
		{"0.1", "0.2", 422, 422},
	} {
		for path, want := range map[string]int{exact: tt.exact, doubles: tt.doubles} {
			key := fmt.Sprint("k", i)
			r.want(r.send(path, sending{key: key, body: `{"amount":` + tt.first + `}`}), 201, "")
			calls := r.calls.Load()
			r.want(r.send(path, sending{key: key, body: `{"amount":` + tt.then + `}`}), want, "")
			if r.calls.Load() != calls {
				t.Errorf("%s after %s was carried out", tt.then, tt.first)
			}
		}
	}
}

// Attempts of an operation failed for longer than its TTL, and then one succeeded. Its answer
// is kept all the same, for half of that time: a client that repeats it has no second effect.
func TestLateAnswersAreKept(t *testing.T) { // C6
	t.Parallel()
	r := newRig(t)
	status := http.StatusBadGateway
	path := r.mount(idempotency.Route{Mode: idempotency.LeaseMode, From: idempotency.FromCreation, RetryWindow: 12 * time.Hour}, func(w http.ResponseWriter, _ *http.Request) {
		r.calls.Add(1)
		w.WriteHeader(status)
	})
	for range 2 { // twenty hours apart
		r.want(r.post(path, "k"), 502, "")
		r.exec("UPDATE postroom.idempotency SET created_at = created_at - interval '20 h', expires_at = expires_at - interval '20 h'")
	}
	status = http.StatusCreated
	first := r.post(path, "k")
	r.want(first, 201, "")
	r.wantReplay(first, r.post(path, "k"))
	r.wantCalls(3, 0)
	if !one[bool](r, "SELECT abs(extract(epoch FROM expires_at - completed_at - interval '12 h')) < 0.001 FROM postroom.idempotency") {
		t.Errorf("the answer is kept for %s, want 12 hours", one[string](r, "SELECT (expires_at - completed_at)::text FROM postroom.idempotency"))
	}
}
