package outbound_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/outbound"
)

// fragile is a client with a breaker, which tries each call once.
func fragile(next http.RoundTripper, cfg outbound.Config) *outbound.Client {
	cfg.Next, cfg.Logger, cfg.Attempts = next, quiet, max(cfg.Attempts, 1)
	return outbound.NewClient(cfg)
}

func TestTheBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var works atomic.Bool
		v := &vendor{answer: func(int, *http.Request) (*http.Response, error) {
			if works.Load() {
				return status(200), nil
			}
			return status(503), nil
		}}
		c := fragile(v, outbound.Config{})
		call := func() error {
			_, err := c.Fetch(request(outbound.WithKey(t.Context(), "k"), t, "POST", "x"))
			return err
		}
		for i := range 10 {
			if err := call(); errors.Is(err, outbound.ErrBreakerOpen) {
				t.Fatalf("open after %d failures", i)
			}
		}
		time.Sleep(4 * time.Second)
		err := call()
		var e *outbound.Error
		if !errors.As(err, &e) || !errors.Is(err, outbound.ErrBreakerOpen) || e.Attempts != 0 || v.count() != 10 {
			t.Fatalf("%v after %d calls, want an open breaker after 10", err, v.count())
		}
		if !errors.Is(err, postroom.ErrNotApplied) || !errors.Is(err, outbound.ErrNotSent) {
			t.Errorf("%v: no request was sent", err)
		}
		if d, ok := postroom.SnoozeDelay(outbound.ForHandler(err)); !ok || d != 6*time.Second {
			t.Errorf("the event is snoozed for %s, want 6s", d)
		}
		if _, err := c.Fetch(requestTo(t.Context(), t, "GET", "https://other.example/", "")); errors.Is(err, outbound.ErrBreakerOpen) {
			t.Error("another host's breaker is open, too")
		}
		// The breaker is half open: it lets one probe through, and a failure of the probe opens it
		// again.
		time.Sleep(6*time.Second + 1)
		if err := call(); errors.Is(err, outbound.ErrBreakerOpen) || v.count() != 12 {
			t.Fatalf("%v: the probe was not made", err)
		}
		if err := call(); !errors.Is(err, outbound.ErrBreakerOpen) {
			t.Fatalf("%v: a failed probe did not open it again", err)
		}
		works.Store(true)
		time.Sleep(10*time.Second + 1)
		for range 3 {
			if err := call(); err != nil {
				t.Fatalf("%v: a good probe did not close it", err)
			}
		}
	})
}

func TestOneProbeAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &vendor{answer: func(n int, req *http.Request) (*http.Response, error) {
			if n > 10 {
				return hangs(n, req)
			}
			return nil, errReset
		}}
		c := fragile(v, outbound.Config{})
		for range 10 {
			_, _ = c.Do(request(t.Context(), t, "GET", ""))
		}
		time.Sleep(10*time.Second + 1)
		done := make(chan error)
		go func() {
			_, err := c.Do(request(t.Context(), t, "GET", ""))
			done <- err
		}()
		synctest.Wait()
		if _, err := c.Do(request(t.Context(), t, "GET", "")); !errors.Is(err, outbound.ErrBreakerOpen) {
			t.Errorf("%v: a second probe was made", err)
		}
		if err := <-done; errors.Is(err, outbound.ErrBreakerOpen) {
			t.Errorf("%v: no probe was made", err)
		}
	})
}

func TestFailuresOpenTheBreaker(t *testing.T) {
	tests := []struct {
		name   string
		answer func(n int, req *http.Request) (*http.Response, error)
		gone   bool // the caller gives up
		opens  bool
	}{
		{"500", always(500).answer, false, true},
		{"503", always(503).answer, false, true},
		{"timeouts", hangs, false, true},
		{"connections refused", func(int, *http.Request) (*http.Response, error) { return nil, errRefused }, false, true},
		{"connections reset", func(int, *http.Request) (*http.Response, error) { return nil, errReset }, false, true},
		{"501", always(501).answer, false, false},
		{"429", always(429).answer, false, false},
		{"404", always(404).answer, false, false},
		{"callers who give up", hangs, true, false},
		{"one of three", func(n int, _ *http.Request) (*http.Response, error) {
			if n%3 == 0 {
				return status(503), nil
			}
			return status(200), nil
		}, false, false},
		{"two of three", func(n int, _ *http.Request) (*http.Response, error) {
			if n%3 == 0 {
				return status(200), nil
			}
			return status(503), nil
		}, false, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := &vendor{answer: tt.answer}
				c := fragile(v, outbound.Config{AttemptTimeout: 100 * time.Millisecond})
				opened := false
				for range 60 {
					ctx, cancel := context.WithCancel(t.Context())
					if tt.gone {
						go func() {
							time.Sleep(50 * time.Millisecond)
							cancel()
						}()
					}
					_, err := c.Fetch(request(ctx, t, "GET", ""))
					opened = opened || errors.Is(err, outbound.ErrBreakerOpen)
					cancel()
				}
				if opened != tt.opens {
					t.Errorf("opened: %v, want %v", opened, tt.opens)
				}
			})
		})
	}
}

// If the breaker opens, there are no more retries, and the last response is kept.
func TestABreakerEndsRetrying(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := always(503)
		c := fragile(v, outbound.Config{Attempts: 5, Breaker: outbound.Breaker{Failures: 3}})
		_, err := c.Do(request(t.Context(), t, "GET", ""))
		var e *outbound.Error
		if !errors.As(err, &e) || !errors.Is(err, outbound.ErrBreakerOpen) || e.Attempts != 3 || e.Last == nil || e.RetryAfter != 10*time.Second {
			t.Errorf("%v, %+v", err, e)
		}
		if errors.Is(err, outbound.ErrNotSent) || errors.Is(err, postroom.ErrNotApplied) {
			t.Errorf("%v: a request was sent", err)
		}
	})
}

// If Next panics, that is not an answer. The breaker must then let another probe through.
func TestAPanicGivesTheProbeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &vendor{answer: func(n int, _ *http.Request) (*http.Response, error) {
			switch {
			case n <= 10:
				return nil, errReset
			case n == 11:
				panic("oh")
			case n == 12:
				return nil, errReset
			}
			return status(200), nil
		}}
		c := fragile(v, outbound.Config{})
		for range 10 {
			_, _ = c.Do(request(t.Context(), t, "GET", ""))
		}
		time.Sleep(10*time.Second + 1)
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic was swallowed")
				}
			}()
			_, _ = c.Do(request(t.Context(), t, "GET", ""))
		}()
		if _, err := c.Do(request(t.Context(), t, "GET", "")); !errors.Is(err, errReset) {
			t.Errorf("after the panic: %v, want the next probe", err)
		}
		if _, err := c.Do(request(t.Context(), t, "GET", "")); !errors.Is(err, outbound.ErrBreakerOpen) || v.count() != 12 {
			t.Errorf("%v after %d calls: the panic was taken for an answer, which closed the breaker", err, v.count())
		}
		time.Sleep(10*time.Second + 1)
		if _, err := c.Fetch(request(t.Context(), t, "GET", "")); err != nil {
			t.Errorf("when the host works again: %v", err)
		}
	})
}

// The window moves with the time. So failures count together even if a fixed window of the same
// length would have ended between them.
func TestTheBreakersWindowMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := always(503)
		c := fragile(v, outbound.Config{})
		fail := func(n int) {
			for range n {
				_, _ = c.Do(request(t.Context(), t, "GET", ""))
			}
		}
		fail(1)
		time.Sleep(26 * time.Second)
		fail(5)
		time.Sleep(8 * time.Second) // the first failure is forgotten
		fail(5)
		if _, err := c.Do(request(t.Context(), t, "GET", "")); !errors.Is(err, outbound.ErrBreakerOpen) || v.count() != 11 {
			t.Errorf("%v after %d calls, want an open breaker after ten within 30s", err, v.count())
		}
	})
}

// Hosts without any state are forgotten, so that the memory of a caller of many hosts does not grow
// without end.
func TestIdleHostsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := outbound.NewTransport(outbound.Config{Next: always(200), Logger: quiet})
		call := func(host string) {
			resp, err := tr.RoundTrip(requestTo(t.Context(), t, "GET", "https://"+host+"/", ""))
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
		}
		call("recent.example")
		for i := range 1000 {
			call(fmt.Sprintf("h%d.example", i))
		}
		if got := tr.Hosts(); got != 1001 {
			t.Errorf("%d hosts while none is idle, want 1001", got)
		}
		time.Sleep(time.Minute)
		call("recent.example")
		call("new.example")
		if got := tr.Hosts(); got != 2 {
			t.Errorf("%d hosts after a minute, want 2", got)
		}
	})
}

// A call examines only the hosts that it forgets and one more, however many hosts are known and
// however many calls come.
func TestManyHostsCostNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := outbound.NewTransport(outbound.Config{Next: always(200), Logger: quiet})
		const n = 2000
		for round := range 2 {
			for i := range n {
				resp, err := tr.RoundTrip(requestTo(t.Context(), t, "GET", fmt.Sprintf("https://h%d-%d.example/", round, i), ""))
				if err != nil {
					t.Fatal(err)
				}
				_ = resp.Body.Close()
			}
			if got := tr.Hosts(); got != n {
				t.Errorf("%d hosts are known, want %d", got, n)
			}
			time.Sleep(time.Minute) // all are forgotten in the next round
		}
		if got := tr.Looked(); got > 3*n {
			t.Errorf("looked at %d hosts in %d calls", got, 2*n)
		}
	})
}

// A request that Next refuses for good is made once, and does not open the host's breaker.
func TestARefusalOfNextIsNotTheHostsFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocked := errors.New("the address is not allowed")
		v := &vendor{answer: func(int, *http.Request) (*http.Response, error) {
			return nil, postroom.Permanent(blocked)
		}}
		c := fragile(v, outbound.Config{Attempts: 3})
		for i := range 30 {
			_, err := c.Fetch(request(outbound.WithKey(t.Context(), "k"), t, "POST", "x"))
			if errors.Is(err, outbound.ErrBreakerOpen) || !errors.Is(err, blocked) || v.count() != i+1 {
				t.Fatalf("after %d calls: %v", v.count(), err)
			}
		}
	})
}
