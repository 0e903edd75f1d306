package outbound_test

import (
	"context"
	"errors"
	"io"
	"math"
	"math/big"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/outbound"
)

func TestExponential(t *testing.T) {
	ms := time.Millisecond
	tests := []struct {
		name     string
		schedule outbound.Exponential
		attempt  int
		low, up  time.Duration
	}{
		{"first", outbound.Exponential{}, 1, 0, 200 * ms},
		{"second", outbound.Exponential{}, 2, 0, 400 * ms},
		{"third", outbound.Exponential{}, 3, 0, 800 * ms},
		{"fourth", outbound.Exponential{}, 4, 0, 1600 * ms},
		{"fifth, by the cap", outbound.Exponential{}, 5, 0, 2 * time.Second},
		{"no attempt counts as the first", outbound.Exponential{}, 0, 0, 200 * ms},
		{"the last of all", outbound.Exponential{}, math.MaxInt, 0, 2 * time.Second},
		{"range, first", outbound.Exponential{Jitter: outbound.RangeJitter}, 1, 100 * ms, 200 * ms},
		{"range, fourth", outbound.Exponential{Jitter: outbound.RangeJitter}, 4, 800 * ms, 1600 * ms},
		{"none", outbound.Exponential{Jitter: outbound.NoJitter}, 3, 800 * ms, 800 * ms},
		{"without overflow", outbound.Exponential{Base: math.MaxInt64 / 3, Cap: math.MaxInt64, Jitter: outbound.NoJitter}, 9, math.MaxInt64, math.MaxInt64},
		{"a base above the cap", outbound.Exponential{Base: time.Hour, Jitter: outbound.NoJitter}, 1, 2 * time.Second, 2 * time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			least, most := time.Duration(math.MaxInt64), time.Duration(0)
			for range 2000 {
				d := tt.schedule.Delay(tt.attempt)
				least, most = min(least, d), max(most, d)
			}
			if least < tt.low || most > tt.up {
				t.Errorf("waits of %s to %s, want %s to %s", least, most, tt.low, tt.up)
			}
			if spread := tt.up - tt.low; least > tt.low+spread/20 || most < tt.up-spread/20 {
				t.Errorf("waits of %s to %s do not reach from %s to %s", least, most, tt.low, tt.up)
			}
		})
	}
}

// waits returns the times between attempts.
func (v *vendor) waits() []time.Duration {
	var d []time.Duration
	for i := 1; i < len(v.calls); i++ {
		d = append(d, v.calls[i].Sub(v.calls[i-1]))
	}
	return d
}

func TestWaitsFollowTheSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := always(503)
		_, err := client(v, outbound.Config{Schedule: outbound.Exponential{Jitter: outbound.NoJitter}}).Do(request(t.Context(), t, "GET", ""))
		if !errors.Is(err, outbound.ErrAttempts) {
			t.Fatal(err)
		}
		want := []time.Duration{200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond, 1600 * time.Millisecond}
		for i, w := range v.waits() {
			if w != want[i] {
				t.Errorf("wait %d was %s, want %s", i+1, w, want[i])
			}
		}
	})
}

func TestBackgroundWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := always(503)
		if _, err := client(v, outbound.Background()).Do(request(t.Context(), t, "GET", "")); !errors.Is(err, outbound.ErrAttempts) {
			t.Fatal(err)
		}
		for i, w := range v.waits() {
			if least := postroom.FastBackoff()[i]; w < least || w > least+least/5 {
				t.Errorf("wait %d was %s, want %s and up to a fifth more", i+1, w, least)
			}
		}
	})
}

func TestRetryAfterIsTheLeast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 20 {
			v := always(503, "Retry-After", "2")
			if _, err := client(v, outbound.Config{Attempts: 2}).Do(request(t.Context(), t, "GET", "")); err == nil || v.count() != 2 {
				t.Fatalf("%v after %d attempts", err, v.count())
			}
			if w := v.waits()[0]; w < 2*time.Second || w > 3*time.Second {
				t.Errorf("waited %s, want 2s and a little more", w)
			}
		}
	})
}

func TestNoWaitBeyondTheTime(t *testing.T) {
	tests := []struct {
		name   string
		cfg    outbound.Config
		within time.Duration // the time limit of the caller's context
		header string
		want   outbound.Reason
	}{
		{"of the operation", outbound.Config{Total: time.Second}, time.Hour, "1", outbound.ReasonDeadline},
		{"of the caller", outbound.Config{}, time.Second, "1", outbound.ReasonDeadline},
		{"that is waited for", outbound.Config{Total: time.Hour}, time.Hour, "31", outbound.ReasonWait},
		{"that is waited for, where it is said", outbound.Config{Total: time.Hour, MaxRetryAfter: time.Minute, Attempts: 2}, time.Hour, "31", outbound.ReasonAttempts},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), tt.within)
				defer cancel()
				v, begun := always(503, "Retry-After", tt.header), time.Now()
				resp, err := client(v, tt.cfg).HTTP().Do(request(ctx, t, "GET", ""))
				if err != nil {
					t.Fatal(err)
				}
				if took := time.Since(begun); tt.want != outbound.ReasonAttempts && took != 0 {
					t.Errorf("waited %s without a result", took)
				}
				var e *outbound.Error
				if err := outbound.CheckResponse(resp); !errors.As(err, &e) || e.Reason != tt.want {
					t.Fatalf("CheckResponse = %v, want reason %s", err, tt.want)
				}
				if string(e.Last.Body) != "answer" || e.Last.Truncated || e.Last.Status != 503 {
					t.Errorf("kept %+v", e.Last)
				}
				if v.open.Load() != 0 {
					t.Error("the body is open after CheckResponse")
				}
			})
		})
	}
}

func TestAttemptsTimeOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &vendor{answer: func(n int, req *http.Request) (*http.Response, error) {
			if n == 1 {
				return hangs(n, req)
			}
			return status(200), nil
		}}
		begun := time.Now()
		if _, err := client(v, outbound.Config{AttemptTimeout: time.Second}).Fetch(request(t.Context(), t, "GET", "")); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took < time.Second || took > 1200*time.Millisecond {
			t.Errorf("took %s, want the first attempt's second and a first wait", took)
		}
	})
}

func TestTotalBoundsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, begun := &vendor{answer: hangs}, time.Now()
		_, err := client(v, outbound.Config{}).Do(request(t.Context(), t, "GET", ""))
		if took := time.Since(begun); took > 10*time.Second {
			t.Errorf("took %s, want no more than 10s", took)
		}
		var e *outbound.Error
		if !errors.As(err, &e) || !e.Timeout() || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v: a timeout of ours is none of the caller's context", err)
		}
	})
}

// TestEndOfTheContextEndsTheOperation ends the caller's context at each point of an operation.
func TestEndOfTheContextEndsTheOperation(t *testing.T) {
	cause := errors.New("went home")
	at := map[string]time.Duration{"before": 0, "in an attempt": 500 * time.Millisecond, "in a wait": 1500 * time.Millisecond}
	for name, after := range at {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				if after == 0 {
					cancel(cause)
				}
				go func() {
					time.Sleep(after)
					cancel(cause)
				}()
				v := &vendor{answer: func(_ int, req *http.Request) (*http.Response, error) {
					select {
					case <-time.After(time.Second):
						return status(503, "Retry-After", "3"), nil
					case <-req.Context().Done():
						return nil, req.Context().Err()
					}
				}}
				begun := time.Now()
				_, err := client(v, outbound.Config{}).Do(request(ctx, t, "PUT", "x"))
				if took := time.Since(begun); took != after {
					t.Errorf("took %s, want %s", took, after)
				}
				if !errors.Is(err, context.Canceled) || !errors.Is(err, cause) {
					t.Errorf("error %v, want the context's and its cause", err)
				}
				if got := errors.Is(err, outbound.ErrNotSent); got != (after == 0) {
					t.Errorf("is ErrNotSent: %v", got)
				}
				if v.open.Load() != 0 {
					t.Error("a body is open")
				}
				var e *outbound.Error
				if name == "in a wait" && (!errors.As(err, &e) || e.Last == nil || e.Last.Status != 503) {
					t.Errorf("%v has lost the last response", err)
				}
			})
		})
	}
}

// The time limit also ends a response that never ends.
func TestReadingIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &vendor{answer: func(_ int, req *http.Request) (*http.Response, error) {
			resp := status(200)
			r, w := io.Pipe()
			go func() {
				<-req.Context().Done()
				w.CloseWithError(context.Cause(req.Context()))
			}()
			resp.Body = r
			return resp, nil
		}}
		begun := time.Now()
		_, err := client(v, outbound.Config{}).Fetch(request(outbound.WithKey(t.Context(), "k"), t, "POST", "x"))
		var e *outbound.Error
		if !errors.As(err, &e) || e.Class != outbound.ClassTimeout || errors.Is(err, postroom.ErrNotApplied) {
			t.Errorf("Fetch = %v, want a timeout with an unknown outcome", err)
		}
		if took := time.Since(begun); took != 5*time.Second || v.count() != 1 {
			t.Errorf("took %s and %d attempts, want 5s and 1", took, v.count())
		}
	})
}

// A failed response that never ends delays the next attempt by only half a second.
func TestDrainingIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &vendor{answer: func(n int, req *http.Request) (*http.Response, error) {
			if n == 2 {
				return status(200), nil
			}
			resp := status(503)
			r, w := io.Pipe()
			go func() {
				<-req.Context().Done()
				w.CloseWithError(context.Cause(req.Context()))
			}()
			resp.Body = r
			return resp, nil
		}}
		begun := time.Now()
		if _, err := client(v, outbound.Config{}).Fetch(request(t.Context(), t, "GET", "")); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took > 700*time.Millisecond {
			t.Errorf("took %s", took)
		}
	})
}

// slowly is a body that is read slowly.
type slowly time.Duration

func (s slowly) Read([]byte) (int, error) {
	time.Sleep(time.Duration(s))
	return 0, io.EOF
}

// If the caller itself uses up the time, nothing is sent, and that does not count against the host.
func TestTheCallerUsesUpTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &vendor{answer: func(_ int, req *http.Request) (*http.Response, error) { return status(401), req.Context().Err() }}
		c := fragile(v, outbound.Config{GenerateKeys: true, Attempts: 2})
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				req, err := http.NewRequestWithContext(t.Context(), "POST", "https://api.vendor.example/", slowly(11*time.Second))
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := c.Do(req); !errors.Is(err, outbound.ErrNotSent) || !errors.Is(err, outbound.ErrDeadline) {
					t.Errorf("%v, want that no request was sent, because the time was too short", err)
				}
			})
		}
		all.Wait()
		if _, err := c.Do(request(t.Context(), t, "GET", "")); errors.Is(err, outbound.ErrBreakerOpen) || v.count() != 1 {
			t.Errorf("%v after %d calls", err, v.count())
		}
		c = client(v, outbound.Config{Refresh: func(*http.Request) (string, error) { time.Sleep(11 * time.Second); return "new", nil }})
		if _, err := c.Do(request(t.Context(), t, "POST", "x")); !errors.Is(err, outbound.ErrRejected) || v.count() != 2 {
			t.Errorf("%v after %d calls, want the one that was refused", err, v.count())
		}
	})
}

// Redirects share the time of the operation.
func TestRedirectsShareTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &vendor{answer: func(_ int, req *http.Request) (*http.Response, error) {
			select {
			case <-time.After(3 * time.Second):
				return status(302, "Location", "/again"), nil
			case <-req.Context().Done():
				return nil, req.Context().Err()
			}
		}}
		begun := time.Now()
		_, err := client(v, outbound.Config{}).Do(request(t.Context(), t, "GET", ""))
		if took := time.Since(begun); err == nil || took > 10*time.Second {
			t.Errorf("%v after %s, want no more than 10s", err, took)
		}
	})
}

// However large the numbers are, a wait is within the bounds of its jitter. The test computes these
// bounds with numbers of any size.
func TestExponentialKeepsToItsBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := outbound.Exponential{
			Base: time.Duration(rapid.Int64Min(1).Draw(t, "base")), Cap: time.Duration(rapid.Int64Min(1).Draw(t, "cap")),
			Jitter: rapid.SampledFrom([]outbound.Jitter{outbound.FullJitter, outbound.RangeJitter, outbound.NoJitter}).Draw(t, "jitter"),
		}
		attempt := rapid.OneOf(rapid.IntRange(0, 70), rapid.Int()).Draw(t, "attempt")
		upper := new(big.Int).Lsh(big.NewInt(int64(e.Base)), uint(min(max(attempt, 1), 64))) //nolint:gosec // 1 to 64
		if limit := big.NewInt(int64(e.Cap)); upper.Cmp(limit) > 0 {
			upper = limit
		}
		most := time.Duration(upper.Int64())
		least := map[outbound.Jitter]time.Duration{outbound.FullJitter: 0, outbound.RangeJitter: most / 2, outbound.NoJitter: most}[e.Jitter]
		for range 10 {
			if got := e.Delay(attempt); got < least || got > most {
				t.Fatalf("Delay(%d) of %+v = %d, want %d to %d", attempt, e, got, least, most)
			}
		}
	})
}
