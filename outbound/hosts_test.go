package outbound_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postroom/postroom/outbound"
)

// pair returns two transports. Each has its own vendor, so that the test sees which of them calls.
func pair(hosts *outbound.Hosts, attempts int) (calls func() [2]int, clients [2]*outbound.Client) {
	var vendors [2]*vendor
	for i := range clients {
		vendors[i] = always(503)
		clients[i] = outbound.NewClient(outbound.Config{Next: vendors[i], Hosts: hosts, Attempts: attempts, Logger: quiet})
	}
	return func() [2]int { return [2]int{vendors[0].count(), vendors[1].count()} }, clients
}

func TestTransportsShareABudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls, clients := pair(outbound.NewHosts(outbound.Budget{}, noBreaker), 20)
		for i, host := range []string{"a.example", "b.example"} {
			for _, c := range clients {
				_, err := c.Do(requestTo(t.Context(), t, "GET", "https://"+host+"/", ""))
				if !errors.Is(err, outbound.ErrBudget) && !errors.Is(err, outbound.ErrDeadline) {
					t.Errorf("call of %s by %d: %v", host, i, err)
				}
			}
			n := calls()
			if n[0]+n[1] != (2+10)*(i+1) {
				t.Errorf("%v calls after %d hosts, want 2 and 10 retries for each", n, i+1)
			}
		}
	})
}

func TestTransportsShareABreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls, clients := pair(outbound.NewHosts(outbound.Budget{Off: true}, outbound.Breaker{Failures: 4, OpenFor: time.Minute}), 1)
		get := func(i int, host string) error {
			_, err := clients[i].Do(requestTo(t.Context(), t, "GET", "https://"+host+"/", ""))
			return err
		}
		for i := range 4 {
			if err := get(i%2, "a.example"); errors.Is(err, outbound.ErrBreakerOpen) {
				t.Fatalf("open after %d failures", i)
			}
		}
		for i := range clients {
			var e *outbound.Error
			if err := get(i, "a.example"); !errors.Is(err, outbound.ErrBreakerOpen) || !errors.As(err, &e) || e.RetryAfter != time.Minute {
				t.Errorf("client %d: %v, want an open breaker for a minute", i, err)
			}
			if err := get(i, "b.example"); errors.Is(err, outbound.ErrBreakerOpen) {
				t.Error("another host's breaker is open, too")
			}
		}
		if n := calls(); n != [2]int{3, 3} {
			t.Errorf("%v calls", n)
		}
	})
}

// Without Config.Hosts, each transport has its own budgets and breakers.
func TestTransportsShareNothingUnasked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls, clients := pair(nil, 1)
		for range 10 {
			_, _ = clients[0].Do(request(t.Context(), t, "GET", ""))
		}
		for i, open := range []bool{true, false} {
			if _, err := clients[i].Do(request(t.Context(), t, "GET", "")); errors.Is(err, outbound.ErrBreakerOpen) != open {
				t.Errorf("client %d: %v", i, err)
			}
		}
		if n := calls(); n != [2]int{10, 1} {
			t.Errorf("%v calls", n)
		}
	})
}

func TestFaultsOfHosts(t *testing.T) {
	t.Parallel()
	good := outbound.NewHosts(outbound.Budget{}, outbound.Breaker{})
	if err := outbound.NewTransport(outbound.Config{Hosts: good}).Check(t.Context()); err != nil {
		t.Error(err)
	}
	for want, cfg := range map[string]outbound.Config{
		"Budget must be empty if Hosts is set":  {Hosts: good, Budget: outbound.Budget{Off: true}},
		"Breaker must be empty if Hosts is set": {Hosts: good, Breaker: outbound.Breaker{Probes: 2}},
		"Budget: Ratio is 2":                    {Hosts: outbound.NewHosts(outbound.Budget{Ratio: 2}, outbound.Breaker{})},
		"Breaker: Probes is -1":                 {Hosts: outbound.NewHosts(outbound.Budget{}, outbound.Breaker{Probes: -1})},
	} {
		if err := outbound.NewTransport(cfg).Check(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Check = %v, want %s", err, want)
		}
	}
}
