package outbound

import (
	"errors"
	"net/url"
	"sync"
	"time"

	"github.com/sony/gobreaker/v2"
)

// Hosts are the budgets and circuit breakers of the hosts that are called. A
// [Transport] has its own, unless Config.Hosts gives several of them the same: then
// the bounds hold for what they call together. It is safe for concurrent use.
type Hosts struct {
	budget  Budget
	breaker Breaker
	err     error // what is wrong with them

	mu    sync.Mutex
	known map[string]*host
	total time.Duration // the longest that an operation takes
}

// host is what is known of one host.
type host struct {
	name    string
	budget  *account
	breaker *breaker
	used    time.Time // guarded by Hosts.mu
}

// NewHosts returns budgets and breakers for several transports in this process, for
// instance where two of them call one vendor with different protocols or times: give
// it to each as Config.Hosts. It cannot fail: what is wrong with the settings is
// returned by [Transport.Check]. What a host's breaker does is logged and counted by the
// transport that called the host first.
func NewHosts(budget Budget, breaker Breaker) *Hosts {
	h := &Hosts{budget: budget.defaults(), breaker: breaker.defaults(), known: make(map[string]*host)}
	h.err = errors.Join(h.budget.validate(), h.breaker.validate())
	return h
}

// manyHosts is from how many hosts on those are forgotten that have been idle for so
// long that nothing is known of them.
const manyHosts = 1000

// of returns what is known of the host of a URL that a transport calls.
func (hs *Hosts) of(u *url.URL, t *Transport) *host {
	name, now := hostOf(u), time.Now()
	hs.mu.Lock()
	defer hs.mu.Unlock()
	hs.total = max(hs.total, t.cfg.Total)
	h := hs.known[name]
	if h == nil {
		if len(hs.known) >= manyHosts {
			hs.forget(now)
		}
		h = &host{name: name, budget: newAccount(hs.budget, now)}
		h.breaker = newBreaker(hs.breaker, func(to gobreaker.State) { t.breakerIs(h, to) })
		hs.known[name] = h
		if h.breaker != nil {
			t.metrics.breakerIs(h.name, gobreaker.StateClosed)
		}
	}
	h.used = now
	return h
}

func (hs *Hosts) forget(now time.Time) {
	idle := max(hs.budget.Window, hs.breaker.Window, hs.breaker.OpenFor) + hs.total
	for name, h := range hs.known {
		if now.Sub(h.used) > idle {
			delete(hs.known, name)
		}
	}
}
