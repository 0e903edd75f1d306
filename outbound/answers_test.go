package outbound_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/outbound"
)

// The transport gets a new authorization only after a 401, and only if it can make another attempt.
func TestOnly401IsRefreshed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range []struct {
			name   string
			answer func(int, *http.Request) (*http.Response, error)
			cfg    outbound.Config
			want   int
		}{
			{"a success", always(200).answer, outbound.Config{}, 0},
			{"another refusal", always(403).answer, outbound.Config{}, 0},
			{"an outage", always(503).answer, outbound.Config{}, 0},
			{"no answer", fails(errReset), outbound.Config{}, 0},
			{"a refusal without attempts left", always(401).answer, outbound.Config{Attempts: 1}, 0},
			{"a refusal", always(401).answer, outbound.Config{}, 1},
		} {
			calls := 0
			tt.cfg.Refresh = func(*http.Request) (string, error) { calls++; return "Bearer new", nil }
			resp, err := client(&vendor{answer: tt.answer}, tt.cfg).HTTP().Do(request(t.Context(), t, "GET", ""))
			if err == nil {
				_ = resp.Body.Close()
			}
			if calls != tt.want {
				t.Errorf("%s: %d new authorizations, want %d", tt.name, calls, tt.want)
			}
		}
	})
}

// redirected returns a request that a redirect led from one URL to another, with a secret.
func redirected(t *testing.T, from, to string) *http.Request {
	t.Helper()
	req := requestTo(t.Context(), t, "GET", to, "")
	req.Header.Set("Authorization", "Bearer mine")
	req.Response = status(307)
	req.Response.Request = requestTo(t.Context(), t, "GET", from, "")
	return req
}

// A secret for one host and port is sent to no other host or port, and not without TLS.
func TestSecretIsSentToItsHostOnly(t *testing.T) {
	for _, tt := range []struct {
		from, to string
		sent     bool
	}{
		{"https://api.example/a", "https://api.example/b", true},
		{"https://api.example/a", "https://API.example:443/b", true},
		{"http://api.example/a", "https://api.example/b", true},
		{"http://api.example/a", "https://api.example:8443/b", false},
		{"http://api.example:8080/a", "https://api.example/b", false},
		{"https://api.example:8443/a", "http://api.example:8443/b", false},
		{"https://api.example/a", "http://api.example/b", false},
		{"http://api.example:80/a", "http://api.example:443/b", false},
		{"https://api.example/a", "https://api.example:8443/b", false},
		{"https://api.example/a", "https://other.example/b", false},
	} {
		var got string
		v := &vendor{answer: func(_ int, req *http.Request) (*http.Response, error) {
			got = req.Header.Get("Authorization")
			return status(200), nil
		}}
		resp, err := outbound.NewTransport(outbound.Config{Next: v, Logger: quiet}).RoundTrip(redirected(t, tt.from, tt.to))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if (got != "") != tt.sent {
			t.Errorf("from %s to %s: Authorization %q, want it sent: %t", tt.from, tt.to, got, tt.sent)
		}
	}
}

// A new authorization is not for another host.
func TestARefreshStaysAtItsHost(t *testing.T) {
	calls := 0
	cfg := outbound.Config{Next: always(401), Logger: quiet, Refresh: func(*http.Request) (string, error) { calls++; return "Bearer new", nil }}
	resp, err := outbound.NewTransport(cfg).RoundTrip(redirected(t, "https://api.example/", "https://other.example/"))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if calls != 0 {
		t.Errorf("asked %d times for a new authorization, which another host would get", calls)
	}
}

// If the connection breaks after a request with Upgrade was sent, the vendor may have acted. If there
// was no connection, it has not.
func TestAnUpgradeThatBreaks(t *testing.T) {
	var acts atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		acts.Add(1)
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_ = conn.Close()
	}))
	defer server.Close()
	for _, want := range []int64{1, 0} {
		req := requestTo(outbound.WithKey(t.Context(), "k"), t, "POST", server.URL, "x")
		req.Header.Set("Upgrade", "h2c")
		_, err := client(http.DefaultTransport, outbound.Config{}).Fetch(req)
		var e *outbound.Error
		acted := acts.Swap(0)
		if !errors.As(err, &e) || e.Class != outbound.ClassConnection || acted != want || errors.Is(err, postroom.ErrNotApplied) != (want == 0) {
			t.Errorf("%v, NotApplied is %t, and the vendor acted %d times", err, errors.Is(err, postroom.ErrNotApplied), acted)
		}
		if errors.Is(outbound.ForHandler(err), postroom.ErrPermanent) {
			t.Errorf("%v is permanent", err)
		}
		server.Close()
	}
}

// No limit applies to an upgraded connection. Its request is passed on, once.
func TestAnUpgradeIsPassedOn(t *testing.T) {
	v := always(503)
	req := request(t.Context(), t, "GET", "")
	req.Header.Set("Upgrade", "h2c")
	resp, err := outbound.NewTransport(outbound.Config{Next: v, Logger: quiet, Schedule: soon}).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if v.count() != 1 {
		t.Errorf("%d attempts, want one", v.count())
	}
	for code, notApplied := range map[int]bool{http.StatusBadRequest: true, http.StatusTeapot: false} {
		req := request(t.Context(), t, "POST", "x")
		req.Header.Set("Upgrade", "h2c")
		_, err := client(always(code), outbound.Config{Protocol: outbound.Protocol{Busy: []int{http.StatusTeapot}}}).Fetch(req)
		if err == nil || errors.Is(err, postroom.ErrNotApplied) != notApplied {
			t.Errorf("%v, NotApplied is %t", err, errors.Is(err, postroom.ErrNotApplied))
		}
	}
	switched := status(101)
	if switched.Request = req; outbound.CheckResponse(switched) != nil {
		t.Errorf("an upgrade is no success: %v", outbound.CheckResponse(switched))
	}
}

// Each status and each error has its class, which also says whether it is tried again.
func TestClassesOfAnswers(t *testing.T) {
	json := func(code int, media, body string) func(int, *http.Request) (*http.Response, error) {
		return func(int, *http.Request) (*http.Response, error) {
			resp := status(code, "Content-Type", media)
			resp.Body = io.NopCloser(strings.NewReader(body))
			return resp, nil
		}
	}
	const underWay = `{"code":"idempotency_in_progress"}`
	for name, tt := range map[string]struct {
		answer   func(int, *http.Request) (*http.Response, error)
		class    outbound.Class
		attempts int
	}{
		"101 that was not wanted":  {always(101).answer, outbound.ClassUnavailable, 1},
		"99":                       {always(99).answer, outbound.ClassUnavailable, 1},
		"401":                      {always(401).answer, outbound.ClassAuth, 1},
		"403":                      {always(403).answer, outbound.ClassAuth, 1},
		"407":                      {always(407).answer, outbound.ClassAuth, 1},
		"409 of a call under way":  {json(409, "application/json", underWay), outbound.ClassBusy, 5},
		"409 of another code":      {json(409, "application/json", `{"code":"already_charged"}`), outbound.ClassConflict, 1},
		"409 of no code":           {json(409, "application/problem+json", `[]`), outbound.ClassConflict, 1},
		"409 of text":              {json(409, "text/plain", underWay), outbound.ClassConflict, 1},
		"a time-out of the net":    {fails(os.ErrDeadlineExceeded), outbound.ClassTimeout, 5},
		"a broken connection":      {fails(errReset), outbound.ClassConnection, 5},
		"no such protocol":         {fails(http.ErrNotSupported), outbound.ClassInvalid, 1},
		"no such scheme":           {fails(http.ErrSchemeMismatch), outbound.ClassInvalid, 1},
		"a redirect that is kept":  {fails(http.ErrUseLastResponse), outbound.ClassInvalid, 1},
		"a transport's invalid":    {fails(&outbound.Error{Class: outbound.ClassInvalid}), outbound.ClassInvalid, 1},
		"a transport's time-out":   {fails(&outbound.Error{Class: outbound.ClassTimeout}), outbound.ClassTimeout, 5},
		"a transport's connection": {fails(&outbound.Error{Class: outbound.ClassConnection}), outbound.ClassConnection, 5},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := &vendor{answer: tt.answer}
				_, err := client(v, outbound.Config{}).Fetch(request(outbound.WithKey(t.Context(), "k"), t, "POST", "x"))
				var e *outbound.Error
				if !errors.As(err, &e) || e.Class != tt.class || v.count() != tt.attempts {
					t.Errorf("%v after %d attempts; want class %s after %d", err, v.count(), tt.class, tt.attempts)
				}
				if e != nil && e.Class == outbound.ClassUnavailable && (errors.Is(err, postroom.ErrNotApplied) || errors.Is(outbound.ForHandler(err), postroom.ErrPermanent)) {
					t.Errorf("%v: want a doubt, and another attempt of the handler", err)
				}
			})
		})
	}
}

// If the body of a conflict breaks off, the caller sees that it is not whole.
func TestBrokenConflictStaysBroken(t *testing.T) {
	v := &vendor{answer: func(int, *http.Request) (*http.Response, error) {
		resp := status(409, "Content-Type", "application/json")
		resp.Body = io.NopCloser(io.MultiReader(strings.NewReader(`{"code":`), new(breaking)))
		return resp, nil
	}}
	resp, err := client(v, outbound.Config{}).HTTP().Do(request(t.Context(), t, "POST", "x"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if got, err := io.ReadAll(resp.Body); string(got) != `{"code":` || !errors.Is(err, errReset) {
		t.Errorf("read %q, %v; want the received part, and the error that ended it", got, err)
	}
}

// breaking is a body that breaks off once, and then ends.
type breaking struct{ broke bool }

func (b *breaking) Read([]byte) (int, error) {
	if b.broke {
		return 0, io.EOF
	}
	b.broke = true
	return 0, errReset
}

// If a status says that the vendor is busy with a call, the vendor may have acted on the call.
func TestBusyVendorMayHaveActed(t *testing.T) {
	for name, tt := range map[string]struct {
		protocol outbound.Protocol
		notDone  bool
	}{"Adyen": {outbound.Adyen(), false}, "another": {outbound.Protocol{}, true}} {
		_, err := client(always(422), outbound.Config{Protocol: tt.protocol}).Fetch(request(outbound.WithKey(t.Context(), "k"), t, "POST", "x"))
		if errors.Is(err, postroom.ErrNotApplied) != tt.notDone {
			t.Errorf("%s: %v, reports that the vendor did nothing: %t, want %t", name, err, !tt.notDone, tt.notDone)
		}
	}
}

// A response that was made by hand may have neither a body nor its request.
func TestCheckOfAResponseWithoutABody(t *testing.T) {
	for _, code := range []int{409, 500} {
		var e *outbound.Error
		err := outbound.CheckResponse(&http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Request: &http.Request{Method: "POST"}})
		if !errors.As(err, &e) || e.Last.Status != code {
			t.Errorf("%d: %v", code, err)
		}
	}
}
