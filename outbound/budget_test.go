package outbound_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postroom/postroom/outbound"
)

// A client with few requests may make ten retries at once, and ten more when the window has passed.
// Each host has its own budget.
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

// The budget does not remember an outage of hours, because it forgets everything that is older than
// a window.
func TestTheBudgetForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := always(503)
		tr := outbound.NewTransport(outbound.Config{Next: v, Logger: quiet, Breaker: outbound.Breaker{Off: true}})
		for range 600 {
			resp, err := tr.RoundTrip(request(t.Context(), t, "GET", ""))
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			time.Sleep(time.Second)
		}
		if n := tr.Parts(); n == 0 || n > 100 || v.count() < 1100 {
			t.Errorf("%d parts are stored after %d calls, want those of a window", n, v.count())
		}
	})
}
