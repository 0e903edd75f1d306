package outbound_test

import (
	"errors"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postroom/postroom/outbound"
)

// storm has callers make 200 requests a second at a vendor that works for calm, is
// out of order for ten seconds, and then works again. It returns the vendor's load
// in each tenth of a second, and how many callers were told that the budget was spent.
func storm(t *testing.T, budget outbound.Budget, calm time.Duration) (load []int, refused int) {
	const rate, failing, after = 200, 10 * time.Second, 5 * time.Second
	begun := time.Now()
	load = make([]int, (calm+failing+after)/(100*time.Millisecond)+200)
	var mu sync.Mutex
	v := &vendor{answer: func(int, *http.Request) (*http.Response, error) {
		at := time.Since(begun)
		mu.Lock()
		load[at/(100*time.Millisecond)]++
		mu.Unlock()
		if at >= calm && at < calm+failing {
			return status(503), nil
		}
		return status(200), nil
	}}
	c := outbound.NewClient(outbound.Config{Next: v, Logger: quiet, Budget: budget, Breaker: outbound.Breaker{Off: true}})
	var wg sync.WaitGroup
	for range int((calm + failing + after) / (time.Second / rate)) {
		wg.Go(func() {
			_, err := c.Fetch(request(t.Context(), t, "GET", ""))
			if errors.Is(err, outbound.ErrBudget) {
				mu.Lock()
				refused++
				mu.Unlock()
				var e *outbound.Error
				if !errors.As(err, &e) || e.Last == nil || e.Last.Status != 503 {
					t.Errorf("%v has lost the last response", err)
				}
			}
		})
		time.Sleep(time.Second / rate)
	}
	wg.Wait()
	return load, refused
}

// within returns the most load of any stretch of the given number of tenths.
func within(load []int, tenths int) (most int) {
	for i := range len(load) - tenths {
		sum := 0
		for _, n := range load[i : i+tenths] {
			sum += n
		}
		most = max(most, sum)
	}
	return most
}

func TestTheBudgetKeepsAStormDown(t *testing.T) {
	for name, calm := range map[string]time.Duration{"from the start": 0, "after a calm time": 20 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				load, refused := storm(t, outbound.Budget{}, calm)
				// A few more, as a retry counts when it is decided, and is made after its wait.
				if most := within(load, 10); most > 220+10+20 {
					t.Errorf("%d calls within a second, want no more than 1.1 × 200 and 10", most)
				}
				if most := within(load, 100); most > 2200+10+30 {
					t.Errorf("%d calls within ten seconds, want no more than 1.1 × 2,000 and 10", most)
				}
				if most := within(load, 100); most < 2100 {
					t.Errorf("%d calls within ten seconds: the budget was hardly used", most)
				}
				if refused < 1000 {
					t.Errorf("%d callers were told that the budget is spent, want most of 2,000", refused)
				}
			})
		})
	}
}

func TestWithoutABudgetAStormMultiplies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		load, refused := storm(t, outbound.Budget{Off: true}, 5*time.Second)
		if most := within(load, 10); most < 3*200 {
			t.Errorf("%d calls within a second: this test shows nothing", most)
		}
		if refused != 0 {
			t.Errorf("%d were refused without a budget", refused)
		}
	})
}

// Ten retries at once are there for a client with few requests, and again when the
// window has passed; each host has its own.
func TestTheBudgetsFloor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := always(503)
		c := outbound.NewClient(outbound.Config{Next: v, Logger: quiet, Breaker: outbound.Breaker{Off: true}})
		attempts := func(host string) (n int, last error) {
			before := v.count()
			for range 4 {
				_, last = c.Do(requestTo(t.Context(), t, "GET", "https://"+host+"/", ""))
			}
			return v.count() - before, last
		}
		if n, err := attempts("one.example"); n != 4+10 || !errors.Is(err, outbound.ErrBudget) {
			t.Errorf("%d attempts, %v; want 4 and 10 retries", n, err)
		}
		if n, err := attempts("one.example"); n != 4 || !errors.Is(err, outbound.ErrBudget) {
			t.Errorf("%d attempts, %v; want 4 and no retry", n, err)
		}
		if n, _ := attempts("two.example"); n != 4+10 {
			t.Errorf("%d attempts at another host, want 4 and 10 retries", n)
		}
		time.Sleep(11 * time.Second)
		if n, _ := attempts("one.example"); n != 4+10 {
			t.Errorf("%d attempts when the window has passed, want 4 and 10 retries", n)
		}
	})
}
