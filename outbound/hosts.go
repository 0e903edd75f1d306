package outbound

import (
	"container/list"
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

	mu     sync.Mutex
	known  map[string]*list.Element // of a *host
	byUse  *list.List               // of all known hosts, the one that was used least lately first
	total  time.Duration            // the longest that an operation takes
	looked int                      // at so many hosts, in order to forget some
}

// host is what is known of one host.
type host struct {
	name    string
	budget  *account
	breaker *breaker
	used    time.Time // guarded by Hosts.mu
}

// NewHosts returns budgets and breakers for several transports in this process, for
// instance if two of them call one vendor with different protocols or times: give
// it to each as Config.Hosts. It cannot fail: what is wrong with the settings is
// returned by [Transport.Check]. What a host's breaker does is logged and counted by the
// transport that called the host first.
func NewHosts(budget Budget, breaker Breaker) *Hosts {
	h := &Hosts{budget: budget.defaults(), breaker: breaker.defaults(), known: make(map[string]*list.Element), byUse: list.New()}
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
	if known := hs.known[name]; known != nil {
		hs.byUse.MoveToBack(known)
		h := hostIn(known)
		h.used = now
		return h
	}
	hs.forget(now)
	h := &host{name: name, budget: newAccount(hs.budget, now), used: now}
	h.breaker = newBreaker(hs.breaker, func(to gobreaker.State) { t.breakerIs(h, to) })
	hs.known[name] = hs.byUse.PushBack(h)
	if h.breaker != nil {
		t.metrics.breakerIs(h.name, gobreaker.StateClosed)
	}
	return h
}

func hostIn(e *list.Element) *host { return e.Value.(*host) } //nolint:forcetypeassert // nothing else is in there

// forget forgets hosts that have been idle for long, if there are many. They are in front: it
// looks at those that it forgets, and at one more.
func (hs *Hosts) forget(now time.Time) {
	idle := max(hs.budget.Window, hs.breaker.Window, hs.breaker.OpenFor) + hs.total
	if len(hs.known) < manyHosts {
		return
	}
	for len(hs.known) > 0 {
		hs.looked++
		h := hostIn(hs.byUse.Front())
		if now.Sub(h.used) <= idle {
			return
		}
		hs.byUse.Remove(hs.byUse.Front())
		delete(hs.known, h.name)
	}
}
