package outbound_test

import (
	"errors"
	"math"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postroom/postroom/outbound"
)

const (
	stormRate  = 200              // requests a second
	stormFor   = 10 * time.Second // how long the vendor fails
	stormAfter = 25 * time.Second // how long requests continue after that
)

// storm has what callers and a vendor saw while the vendor failed.
type storm struct {
	calls  []time.Duration // when the vendor was called
	failed map[error]int   // callers that failed, by the reason why there was no further attempt
	last   time.Duration   // when the last failed caller began
	begin  time.Duration   // when the vendor began to fail
}

// runStorm makes callers send 200 requests a second to a vendor. The vendor works for the time healthyFor,
// fails for ten seconds, and then works again. asks is the Retry-After of its refusals.
func runStorm(t *testing.T, cfg outbound.Config, healthyFor time.Duration, asks func(at time.Duration) string) *storm {
	t.Helper()
	s := &storm{failed: make(map[error]int), begin: healthyFor}
	begun, end := time.Now(), healthyFor+stormFor
	var mu sync.Mutex
	cfg.Next = &vendor{answer: func(int, *http.Request) (*http.Response, error) {
		at := time.Since(begun)
		mu.Lock()
		s.calls = append(s.calls, at)
		mu.Unlock()
		time.Sleep(20 * time.Millisecond)
		switch {
		case at < healthyFor || at >= end:
			return status(200), nil
		case asks == nil:
			return status(503), nil
		}
		return status(503, "Retry-After", asks(at)), nil
	}}
	cfg.Logger = quiet
	c := outbound.NewClient(cfg)
	var all sync.WaitGroup
	for range int((end + stormAfter) / (time.Second / stormRate)) {
		at := time.Since(begun)
		all.Go(func() {
			_, err := c.Fetch(request(t.Context(), t, "GET", ""))
			if err == nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			s.last = max(s.last, at)
			for _, why := range []error{outbound.ErrBudget, outbound.ErrBreakerOpen, outbound.ErrAttempts, outbound.ErrDeadline} {
				if errors.Is(err, why) {
					s.failed[why]++
				}
			}
			var e *outbound.Error
			if errors.Is(err, outbound.ErrBudget) && (!errors.As(err, &e) || e.Last == nil || e.Last.Status != 503) {
				t.Errorf("%v has lost the last response", err)
			}
		})
		time.Sleep(time.Second / stormRate)
	}
	all.Wait()
	slices.Sort(s.calls)
	return s
}

// most returns the largest number of calls in any time of the given length.
func (s *storm) most(window time.Duration) (most int) {
	from := 0
	for to := range s.calls {
		for s.calls[from] <= s.calls[to]-window {
			from++
		}
		most = max(most, to-from+1)
	}
	return most
}

// during returns the number of calls while the vendor failed.
func (s *storm) during() (n int) {
	for _, at := range s.calls {
		if at >= s.begin && at < s.begin+stormFor {
			n++
		}
	}
	return n
}

// recovers checks that no caller fails that begins after the vendor works again and patience has
// passed.
func (s *storm) recovers(t *testing.T, patience time.Duration) {
	t.Helper()
	if after := s.last - s.begin - stormFor; after > patience {
		t.Errorf("a request that began %s after the vendor worked again failed", after)
	}
}

func (s *storm) log(t *testing.T) {
	t.Helper()
	t.Logf("%d calls in the busiest second, %d in the busiest ten, %d while the vendor was out of order; failed: %v; the last began %s after its start",
		s.most(time.Second), s.most(10*time.Second), s.during(), s.failed, s.last-s.begin)
}

var noBreaker = outbound.Breaker{Off: true}

// With the budget alone, the load in any second, and in any ten seconds, is never more than 1.1
// times the rate of requests plus the floor. That also holds at the start, after a healthy time with
// an unused budget, if the waits are not spread, and if the vendor asks all callers to come back at
// one moment.
func TestTheBudgetKeepsAStormDown(t *testing.T) {
	t.Parallel()
	// The whole floor of ten seconds may be used in one second.
	const second, ten = 1.1*stormRate + 10, 1.1*stormRate*10 + 10
	for name, tt := range map[string]struct {
		healthyFor time.Duration
		schedule   outbound.Schedule
		asks       func(at time.Duration) string
		least      int // the least number of retries during the storm; fewer would leave the budget unused
	}{
		"from the start":    {0, nil, nil, 150},
		"after a calm time": {20 * time.Second, nil, nil, 190},
		"without jitter":    {20 * time.Second, outbound.Exponential{Jitter: outbound.NoJitter}, nil, 190},
		"Retry-After": {20 * time.Second, nil, func(at time.Duration) string { // the next of 5, 10, 15, … seconds
			return strconv.Itoa(int(math.Ceil((5*time.Second - at%(5*time.Second)).Seconds())))
		}, 40},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := runStorm(t, outbound.Config{Breaker: noBreaker, Schedule: tt.schedule}, tt.healthyFor, tt.asks)
				s.log(t)
				if most := s.most(time.Second); most > second {
					t.Errorf("%d calls within a second, want no more than 1.1 × 200 and 10", most)
				}
				if most := s.most(10 * time.Second); most > ten {
					t.Errorf("%d calls within ten seconds, want no more than 1.1 × 2,000 and 10", most)
				}
				if n := s.during(); n < 2000+tt.least {
					t.Errorf("%d calls while the vendor was out of order: the budget was hardly used", n)
				}
				if n := s.failed[outbound.ErrBudget]; n < 1000 {
					t.Errorf("%d callers got the error that the budget is spent, want most of 2,000", n)
				}
				s.recovers(t, 0)
			})
		})
	}
}

// Without a budget the same storm multiplies the load. That shows what the budget prevents.
func TestWithoutABudgetAStormMultiplies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := runStorm(t, outbound.Config{Budget: outbound.Budget{Off: true}, Breaker: noBreaker}, 20*time.Second, nil)
		s.log(t)
		if most := s.most(time.Second); most < 4*stormRate {
			t.Errorf("%d calls within a second, want more than four times as many as requests", most)
		}
		if most := s.most(10 * time.Second); most < 4*stormRate*10 {
			t.Errorf("%d calls within ten seconds, want more than four times as many as requests", most)
		}
		if n := s.failed[outbound.ErrAttempts]; n < 1000 || len(s.failed) != 1 {
			t.Errorf("callers failed with %v, want only used-up attempts", s.failed)
		}
		s.recovers(t, 0)
	})
}

// The breaker stops the load when most calls in its window have failed. A probe brings the load
// back, at the latest after the breaker was open once more since the vendor works again. After a
// long healthy time, too few calls fail within ten seconds, so with a budget the breaker does nothing.
// Until the breaker opens, the budget limits the calls.
func TestTheBreakerInAStorm(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		healthyFor    time.Duration
		budget        outbound.Budget
		opens         bool
		during        int // the most calls
		least, second int // bounds for the calls in the busiest second
	}{
		"with the budget":               {2 * time.Second, outbound.Budget{}, true, 500, 200, 230},
		"without it":                    {2 * time.Second, outbound.Budget{Off: true}, true, 600, 400, 800},
		"with the budget, after a calm": {20 * time.Second, outbound.Budget{}, false, 2210, 200, 230},
		"without it, after a calm":      {20 * time.Second, outbound.Budget{Off: true}, true, 5000, 800, 1200},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := runStorm(t, outbound.Config{Budget: tt.budget}, tt.healthyFor, nil)
				s.log(t)
				if most := s.most(time.Second); most < tt.least || most > tt.second {
					t.Errorf("%d calls within a second, want %d to %d", most, tt.least, tt.second)
				}
				if n := s.during(); n > tt.during {
					t.Errorf("%d calls while the vendor was out of order, want no more than %d", n, tt.during)
				}
				if n := s.failed[outbound.ErrBreakerOpen]; n > 500 != tt.opens {
					t.Errorf("%d callers found the breaker open", n)
				}
				s.recovers(t, 10*time.Second)
			})
		})
	}
}
