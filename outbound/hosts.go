package outbound

import (
	"container/list"
	"errors"
	"net/url"
	"sync"
	"time"

	"github.com/sony/gobreaker/v2"
)

// Hosts has the budgets and circuit breakers of the hosts that transports call. By default a
// [Transport] has its own Hosts. If several transports have the same Hosts in Config.Hosts, the
// limits apply to their calls together. Hosts is safe for concurrent use.
type Hosts struct {
	budget  Budget
	breaker Breaker
	err     error // the fault of the settings, if there is one

	mu     sync.Mutex
	known  map[string]*list.Element // the values are *host
	byUse  *list.List               // all known hosts, the least recently used first
	total  time.Duration            // the longest time of an operation
	looked int                      // how many hosts the method forget has examined
}

// host is the state of one host.
type host struct {
	name    string
	budget  *account
	breaker *breaker
	used    time.Time // guarded by Hosts.mu
}

// NewHosts returns budgets and breakers for several transports in this process. Use it, for
// instance, if two transports call one vendor with different protocols or time limits. Set the
// result as Config.Hosts of each transport. NewHosts cannot fail: [Transport.Check] returns the
// faults of the settings. The transport that first calls a host logs the changes of the host's
// breaker, and records them in its metrics.
func NewHosts(budget Budget, breaker Breaker) *Hosts {
	h := &Hosts{budget: budget.defaults(), breaker: breaker.defaults(), known: make(map[string]*list.Element), byUse: list.New()}
	h.err = errors.Join(h.budget.validate(), h.breaker.validate())
	return h
}

// manyHosts is how many hosts Hosts remembers in any case. If there are more, Hosts forgets hosts
// that have been idle for so long that their budget and breaker have no state.
const manyHosts = 1000

// of returns the state of u's host. t is the transport that calls this host.
func (hs *Hosts) of(u *url.URL, t *Transport) *host {
	name, now := hostOf(u), time.Now()
	hs.mu.Lock()
	defer hs.mu.Unlock()
	hs.total = max(hs.total, t.cfg.Total)
	if known := hs.known[name]; known != nil {
		//guard:a-host-in-use-is-not-forgotten remove
		hs.byUse.MoveToBack(known)
		h := hostIn(known)
		h.used = now
		return h
	}
	//guard:idle-hosts-are-forgotten remove
	hs.forget(now)
	h := &host{name: name, budget: newAccount(hs.budget, now), used: now}
	h.breaker = newBreaker(hs.breaker, func(to gobreaker.State) { t.breakerIs(h, to) })
	hs.known[name] = hs.byUse.PushBack(h)
	if h.breaker != nil {
		t.metrics.breakerIs(h.name, gobreaker.StateClosed)
	}
	return h
}

func hostIn(e *list.Element) *host { return e.Value.(*host) } //nolint:forcetypeassert // the list has only hosts

// forget removes hosts that have been idle for a long time, if there are many hosts. The list
// begins with the host that has been idle for longest, so forget examines only the hosts that it
// removes, and one more.
func (hs *Hosts) forget(now time.Time) {
	idle := max(hs.budget.Window, hs.breaker.Window, hs.breaker.OpenFor) + hs.total
	//guard:an-idle-time-does-not-overflow 2 false
	if len(hs.known) < manyHosts || idle < 0 { // idle is longer than a Duration can be
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
