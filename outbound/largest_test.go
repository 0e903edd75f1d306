package outbound_test

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postroom/postroom/outbound"
)

// The largest values of settings mean that there is no limit.
func TestLargestSettings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := inTurn(503, 201)
		c := outbound.NewClient(outbound.Config{
			Next: v, Logger: quiet, MaxBody: math.MaxInt64, Attempts: math.MaxInt, AttemptTimeout: math.MaxInt64, Total: math.MaxInt64,
			MaxRetryAfter: math.MaxInt64, Schedule: outbound.Exponential{Base: math.MaxInt64 / 3, Cap: math.MaxInt64 / 2, Jitter: outbound.NoJitter},
			Breaker: outbound.Breaker{Window: 24 * time.Hour, Failures: math.MaxInt, OpenFor: math.MaxInt64, Probes: math.MaxInt32},
			Budget:  outbound.Budget{Ratio: 1, Window: time.Hour, Floor: 1e6}, TimeoutHeader: "X-Timeout", Protocol: outbound.Protocol{MaxLen: math.MaxInt},
		})
		if err := c.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
		req := request(outbound.WithKey(t.Context(), "k"), t, "POST", "")
		req.Body, req.GetBody, req.ContentLength = io.NopCloser(strings.NewReader("amount=7")), nil, -1
		if _, err := c.Fetch(req); err != nil {
			t.Error(err)
		}
		if got := fmt.Sprint(v.bodies); got != "[amount=7 amount=7]" {
			t.Errorf("the vendor got the bodies %s, want the caller's twice", got)
		}
	})
}

// The breaker has no arithmetic for a longer window.
func TestALongerWindowOfABreakerIsAFault(t *testing.T) {
	for _, window := range []time.Duration{24*time.Hour + 1, math.MaxInt64} {
		if err := outbound.NewTransport(outbound.Config{Breaker: outbound.Breaker{Window: window}}).Check(t.Context()); err == nil {
			t.Errorf("a breaker accepts a window of %s", window)
		}
	}
}

// Hosts are forgotten after they have been idle for long. With the largest settings that is never.
func TestLargestSettingsForgetNoHost(t *testing.T) {
	for name, cfg := range map[string]outbound.Config{
		"Total":   {Total: math.MaxInt64},
		"OpenFor": {Breaker: outbound.Breaker{OpenFor: math.MaxInt64}},
	} {
		cfg.Next, cfg.Logger = always(200), quiet
		transport := outbound.NewTransport(cfg)
		c := &http.Client{Transport: transport}
		const hosts = 1010
		for i := range hosts {
			resp, err := c.Do(requestTo(t.Context(), t, "GET", fmt.Sprintf("https://h%d.example/", i), ""))
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
		}
		if n := transport.Hosts(); n != hosts {
			t.Errorf("%s: %d hosts are remembered, want %d", name, n, hosts)
		}
	}
}

// Settings that no attempt could keep are faults, and are not changed without a word.
func TestSettingsThatCannotBeKeptAreFaults(t *testing.T) {
	for name, tt := range map[string]struct {
		cfg  outbound.Config
		want string
	}{
		"an attempt longer than the operation":   {outbound.Config{AttemptTimeout: time.Minute, Total: time.Second}, "AttemptTimeout is 1m0s, want at most Total, which is 1s"},
		"hosts that NewHosts did not make":       {outbound.Config{Hosts: new(outbound.Hosts)}, "Hosts: make it with NewHosts"},
		"a timeout of nanoseconds":               {outbound.Config{AttemptTimeout: 5}, "AttemptTimeout is 5ns, want at least 1ms"},
		"an operation of nanoseconds":            {outbound.Config{Total: 30}, "Total is 30ns, want at least 1ms"},
		"a key in the name of the host":          {outbound.Config{Protocol: outbound.Protocol{Header: "Host"}}, "Header \"Host\" cannot carry a key"},
		"a key in the length":                    {outbound.Config{Protocol: outbound.Protocol{Header: "content-length"}}, "Header \"content-length\" cannot carry a key"},
		"a time in the header of the connection": {outbound.Config{TimeoutHeader: "Connection"}, "TimeoutHeader \"Connection\" is no header of a caller"},
		"a time in the header of the key":        {outbound.Config{TimeoutHeader: "idempotency-key"}, "TimeoutHeader \"idempotency-key\" is the header of the key"},
	} {
		if err := outbound.NewTransport(tt.cfg).Check(t.Context()); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: Check = %v, want %s", name, err, tt.want)
		}
	}
	for name, cfg := range map[string]outbound.Config{
		"only AttemptTimeout is set": {AttemptTimeout: time.Minute},
		"only Total is set":          {Total: time.Second},
	} {
		if err := outbound.NewTransport(cfg).Check(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// If only the time of an attempt is set, the operation has at least this time.
func TestAnAttemptHasItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &vendor{answer: func(_ int, req *http.Request) (*http.Response, error) {
			timer := time.NewTimer(50 * time.Second)
			defer timer.Stop()
			select {
			case <-timer.C:
				return status(200), nil
			case <-req.Context().Done():
				return nil, req.Context().Err()
			}
		}}
		if _, err := client(v, outbound.Config{AttemptTimeout: time.Minute}).Fetch(request(t.Context(), t, "GET", "")); err != nil {
			t.Errorf("an attempt of 50 s, of a minute: %v", err)
		}
	})
}
