package outbound_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/outbound"
)

// HTTP/2 has its own errors. If a stream is reset, the request was sent, and is repeated if that is
// safe.
func TestHTTP2(t *testing.T) {
	var calls atomic.Int64
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if calls.Add(1) < 3 || r.ProtoMajor != 2 {
			panic(http.ErrAbortHandler)
		}
		_, _ = w.Write(body)
	}))
	s.EnableHTTP2, s.Config.ErrorLog = true, nolog
	s.StartTLS()
	t.Cleanup(s.Close)
	c := real(t, outbound.Config{Next: s.Client().Transport})

	got, err := c.Fetch(requestTo(outbound.WithKey(t.Context(), "k"), t, "POST", s.URL, "body"))
	if err != nil || string(got) != "body" || calls.Load() != 3 {
		t.Errorf("Fetch = %q, %v after %d calls", got, err, calls.Load())
	}
	calls.Store(0)
	var e *outbound.Error
	if _, err := c.Fetch(requestTo(t.Context(), t, "POST", s.URL, "body")); !errors.As(err, &e) || errors.Is(err, postroom.ErrNotApplied) || e.Reason != outbound.ReasonUnsafe || calls.Load() != 1 {
		t.Errorf("Fetch without a key = %v after %d calls", err, calls.Load())
	}
}
