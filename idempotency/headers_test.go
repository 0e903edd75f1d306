package idempotency_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/postroom/postroom/idempotency"
)

func TestHeadersOfAReplay(t *testing.T) { // E24, E25
	t.Parallel()
	r := newRig(t)
	path := r.mount(idempotency.Route{OmitHeaders: []string{"x-secret"}}, func(w http.ResponseWriter, req *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Content-Security-Policy", "default-src 'none'")
		h.Set("X-Secret", "hush")
		h.Add("X-Many", "2")
		h.Add("X-Many", "1")
		for _, name := range once {
			h.Set(name, "1")
		}
		r.refund(w, req)
	})
	first, second := r.post(path, "k"), r.post(path, "k")
	r.wantReplay(first, second)
	r.wantSameHeaders(first, second, append(once, "X-Secret")...)
	for _, name := range append(once, "X-Secret") {
		if first.Header().Get(name) == "" || second.Header().Get(name) != "" {
			r.Errorf("%s was %q and is repeated as %q", name, first.Header().Get(name), second.Header().Get(name))
		}
	}
}

// once are headers that are not repeated: the list of docs/reference/idempotency.md.
var once = []string{
	"Set-Cookie", "Date", "Age", "Authorization", "Www-Authenticate", "Authentication-Info", "Proxy-Authenticate", "X-Csrf-Token", "X-Xsrf-Token", "X-Auth-Token",
	"Retry-After", "Ratelimit-Limit", "X-Ratelimit-Remaining", "Server-Timing", "X-Request-Id", "X-Correlation-Id", "X-Trace-Id", "Request-Id", "Traceparent",
	"Tracestate", "Access-Control-Allow-Origin",
}

// wantSameHeaders checks that a replay has the headers of the first answer, except the replay's
// marks and the named headers.
func (r *rig) wantSameHeaders(first, second *httptest.ResponseRecorder, but ...string) {
	r.Helper()
	one, other := first.Result().Header, second.Result().Header
	for _, h := range []http.Header{one, other} {
		for _, name := range append(but, "Idempotency-Status", "Idempotent-Replayed") {
			h.Del(name)
		}
		maps.DeleteFunc(h, func(_ string, values []string) bool { return len(values) == 0 }) // which is not sent
	}
	if !maps.EqualFunc(one, other, slices.Equal[[]string]) {
		r.Errorf("headers were\n%v and are repeated as\n%v", one, other)
	}
}

// A handler writes names in lower case into the map of headers. They count as the usual names.
func TestHeadersInAnyLetterCase(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	path := r.mount(idempotency.Route{OmitHeaders: []string{"X-Ticket"}}, func(w http.ResponseWriter, req *http.Request) {
		for _, name := range []string{"set-cookie", "x-ticket", "connection", "x-kept"} {
			w.Header()[name] = []string{"secret"}
		}
		r.insert(req.Context())
		w.WriteHeader(http.StatusCreated)
	})
	r.post(path, "k")
	if text := one[string](r, "SELECT headers::text FROM postroom.idempotency"); text != `{"x-kept": ["secret"]}` {
		t.Errorf("stored headers: %s", text)
	}
}

// Middleware outside of the guard has set headers. The handler adds to them, as it would
// without a guard, and a Content-Type that is set is not guessed again.
func TestHandlerAddsToHeadersOfItsMiddleware(t *testing.T) { // E20
	t.Parallel()
	r := newRig(t)
	guarded := r.guard.Handler(idempotency.Route{}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.SetCookie(w, &http.Cookie{Name: "flash", Value: "2"})
		w.Header().Add("Vary", "Accept")
		_, _ = w.Write([]byte(`{"a":1}`))
	}))
	r.mux.HandleFunc("/outside", func(w http.ResponseWriter, req *http.Request) {
		http.SetCookie(w, &http.Cookie{Name: "session", Value: "1"})
		w.Header().Add("Vary", "Origin")
		w.Header().Set("Content-Type", "application/json")
		guarded.ServeHTTP(w, req)
	})
	first, second := r.post("/outside", "k"), r.post("/outside", "k")
	r.wantReplay(first, second)
	for _, h := range []http.Header{first.Header(), second.Header()} {
		if !slices.Equal(h["Vary"], []string{"Origin", "Accept"}) || h.Get("Content-Type") != "application/json" {
			t.Errorf("headers are %v", h)
		}
	}
	if got := first.Header()["Set-Cookie"]; !slices.Equal(got, []string{"session=1", "flash=2"}) {
		t.Errorf("cookies are %v", got)
	}
	if got := second.Header()["Set-Cookie"]; !slices.Equal(got, []string{"session=1"}) {
		t.Errorf("cookies of the replay are %v", got)
	}
}

// Header bytes that are not text are repeated unchanged.
func TestHeadersThatAreNoTextAreRepeated(t *testing.T) { // E24
	t.Parallel()
	r := newRig(t)
	path := r.mount(idempotency.Route{}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Disposition", "attachment; filename=\"f\xfcr \\\"\u00fc\\\".pdf\"")
		w.Header()["Link"] = []string{"</a>; rel=up", "</\xe4>; rel=next"}
		w.Header().Set("Location", "/ü")
		w.WriteHeader(http.StatusCreated)
	})
	first, second := r.post(path, "k"), r.post(path, "k")
	r.wantReplay(first, second)
	for _, name := range []string{"Content-Disposition", "Link", "Location"} {
		if a, b := first.Header()[name], second.Header()[name]; !slices.Equal(a, b) {
			t.Errorf("%s was %q and is repeated as %q", name, a, b)
		}
	}
}

// If a handler removes a header that its middleware set, the header is in no answer. Headers
// that it leaves come from the middleware again, for each answer anew.
func TestHeadersThatAHandlerRemovesAreNotRepeated(t *testing.T) {
	t.Parallel()
	for _, mode := range []idempotency.Mode{idempotency.TxMode, idempotency.LeaseMode} {
		r := newRig(t)
		n := 0
		guarded := r.guard.Handler(idempotency.Route{Mode: mode, Optional: []string{"PUT"}}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Del("X-Frame-Options")
			w.Header().Set("X-Robots-Tag", "none")
			w.Header().Set("X-Nonce", w.Header().Get("X-Nonce")+"+")
			w.Header()["Content-Type"] = nil // so that net/http does not guess it
			_, _ = w.Write([]byte("<html>"))
		}))
		r.mux.HandleFunc("/outside", func(w http.ResponseWriter, req *http.Request) {
			n++
			w.Header().Set("X-Frame-Options", "DENY")
			w.Header().Set("X-Robots-Tag", "all")
			w.Header().Set("X-Nonce", fmt.Sprint(n))
			w.Header().Set("X-Id", fmt.Sprint(n))
			guarded.ServeHTTP(w, req)
		})
		unkeyed := r.send("/outside", sending{method: "PUT"})
		first, second := r.post("/outside", "k"), r.post("/outside", "k")
		r.wantReplay(first, second)
		r.wantSameHeaders(first, second, "X-Id")
		for i, w := range []*httptest.ResponseRecorder{unkeyed, first, second} {
			h := w.Header()
			if h.Get("X-Frame-Options") != "" || h.Get("X-Robots-Tag") != "none" || h.Get("Content-Type") != "" || h.Get("X-Id") != fmt.Sprint(i+1) {
				t.Errorf("headers of answer %d are %v", i, h)
			}
		}
		if first.Header().Get("X-Nonce") != "2+" {
			t.Errorf("X-Nonce is %q", first.Header().Get("X-Nonce"))
		}
	}
}
