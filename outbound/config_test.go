package outbound_test

import (
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/outbound"
)

func TestTheZeroConfigWorks(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }))
	t.Cleanup(s.Close)
	c := outbound.NewClient(outbound.Config{})
	t.Cleanup(c.HTTP().CloseIdleConnections)
	if err := c.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := c.Fetch(requestTo(t.Context(), t, "GET", s.URL, "")); err != nil || string(got) != "hello" {
		t.Errorf("Fetch = %q, %v", got, err)
	}
	if err := outbound.NewTransport(outbound.Background()).Check(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestAllFaultsAreReported(t *testing.T) {
	cfg := outbound.Config{
		Attempts: -1, AttemptTimeout: -1, Total: -1, MaxRetryAfter: -1, MaxBody: -1, TimeoutHeader: "X Timeout",
		Schedule: outbound.Exponential{Base: -1, Cap: -1, Jitter: 9},
		Protocol: outbound.Protocol{Header: "no header", Field: "f", Keyless: true, MaxLen: -1},
		Budget:   outbound.Budget{Ratio: math.NaN(), Window: time.Millisecond, Floor: -1},
		Breaker:  outbound.Breaker{Window: 1, Failures: -1, Ratio: 2, OpenFor: -1, Probes: -1},
	}
	body := &closing{Reader: strings.NewReader("x")}
	tr := outbound.NewTransport(cfg)
	err := tr.Check(t.Context())
	for _, name := range []string{
		"Attempts is", "AttemptTimeout is", "Total is", "MaxRetryAfter is", "MaxBody is", "TimeoutHeader",
		"Base is", "Cap is", "jitter 9", "Header \"no header\"", "Header and Field", "Keyless is set together", "MaxLen is",
		"Budget: Ratio", "Budget: Window", "Budget: Floor",
		"Breaker: Window", "Breaker: Failures", "Breaker: Ratio", "Breaker: OpenFor", "Breaker: Probes",
	} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("Check does not mention %s: %v", name, err)
		}
	}
	if !errors.Is(err, postroom.ErrUnrecoverable) {
		t.Errorf("Check = %v, want an error that a person must correct", err)
	}
	req, _ := http.NewRequestWithContext(t.Context(), "POST", "http://127.0.0.1:1/", body)
	if _, got := tr.RoundTrip(req); got == nil || !errors.Is(err, got) || !body.closed.Load() {
		t.Errorf("RoundTrip = %v, body closed: %v", got, body.closed.Load())
	}
}
