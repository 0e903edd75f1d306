// Package lanes limits how many requests to one endpoint run at the same time. It sends nothing.
package lanes

import (
	"maps"
	"sync"
	"time"
)

// Lanes limits how many requests to one endpoint run at the same time in this process, so that an
// endpoint that does not answer occupies few workers. An endpoint's limit begins at one. Each
// success raises the limit by one, up to the field most. A failure sets it to one again.
//
// Lanes also limits the requests of one account. An account begins another request only if it has
// fewer running requests than there are free workers: one account occupies at most half of the
// workers, two of them two thirds, and others still find a free worker. A request may hang, so a
// worker that an account occupies cannot be taken back. The same holds for the memory that the events
// of the requests need. An account without a running request may always begin one, with an event of any
// size: the inbox has a worker for it, even if more requests run than there are workers, because the
// inbox abandoned some of them. The empty account has no limit.
type Lanes struct {
	most, workers int
	memory        func() int // how many bytes the events of all requests may have; it is asked when requests run

	mu       sync.Mutex
	running  int // requests to all endpoints
	bytes    int // of their events
	of       map[string]*lane
	accounts map[string]*account
}

// New returns lanes for a number of workers. The limit of each endpoint rises up to most.
func New(workers, most int, memory func() int) *Lanes {
	return &Lanes{most: most, workers: workers, memory: sync.OnceValue(memory), of: make(map[string]*lane), accounts: make(map[string]*account)}
}

// counter counts the requests of an endpoint or an account.
type counter struct {
	running int
	since   time.Time // the later of two times: when a request last ended, and when a request last began while no other request was running
	refused int       // how many events in a row were refused by the method Enter
}

// lane is the limit of one endpoint.
type lane struct {
	counter

	limit int
}

// account has the requests of one account. It exists while a request of the account runs.
type account struct {
	counter

	bytes   int
	waiting map[string]time.Time // the endpoints whose last event was refused, and when
}

// Wait says how an event waits if the method Enter refused it.
type Wait struct {
	Busy time.Duration // for how long at least one request has been running while none has ended
	Pace time.Duration // about how long the endpoint or its account needs for one event
	Many bool          // Enter refused many events: the due events behind this event wait too
}

// manyRefused is how many events in a row Enter must refuse to make events behind them wait too.
const manyRefused = 16

// SlowPace is the greatest pace of the events of an account. If events of an endpoint wait together,
// a pace is the time from each event to the next; see postroom.SnoozeKey. Each event that Enter
// refuses again costs the database a little. When the pause of an endpoint ends, its events come back
// at SlowPace.
const SlowPace = 10 * time.Millisecond

// quickPace is the least pace.
const quickPace = 2 * time.Millisecond

// longestWait is the time after which an event that was refused has come back. An endpoint without
// an event in that time has none: it was removed or disabled, or an operator discarded its events.
const longestWait = 2 * time.Minute

// manyLanes is how many endpoints the type Lanes remembers. At this number, the method Enter
// forgets the endpoints without running requests.
const manyLanes = 10_000

// Enter begins a request to an endpoint of an account if the limits allow it. If not, it returns how
// the event waits. The parameter size is the size of the event in bytes.
func (l *Lanes) Enter(id, owner string, size int, fails bool) (_ Wait, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of, a := l.lane(id), l.account(owner)
	//guard:webhook-an-endpoint-that-fails-gets-one-request false
	if fails {
		of.limit = 1
	}
	//guard:webhook-in-flight = @1 >= 1000*@2
	if of.running >= of.limit {
		return a.refuse(id, &of.counter, of.limit), false
	}
	//guard:webhook-an-account-without-a-request-begins-one 2 true
	//guard:webhook-one-account-leaves-workers-to-others 3 false
	if owner != "" && a.running > 0 && (a.running >= l.workers-l.running || l.isLarge(a, size)) {
		w := a.refuse(id, &a.counter, a.running)
		//guard:webhook-endpoints-of-an-account-share-its-pace remove
		w.Pace *= time.Duration(len(a.waiting))
		return w, false
	}
	of.begin()
	a.begin()
	l.running++
	l.bytes, a.bytes = l.bytes+size, a.bytes+size
	delete(a.waiting, id)
	return Wait{}, true
}

// isLarge reports whether an account would have more of the memory with another event than it leaves
// free.
func (l *Lanes) isLarge(a *account, size int) bool {
	//guard:webhook-one-account-leaves-memory-to-others = false
	return a.bytes+size > l.memory()-l.bytes-size
}

// lane returns the limit of an endpoint.
func (l *Lanes) lane(id string) *lane {
	if len(l.of) >= manyLanes {
		for other, of := range l.of {
			if of.running == 0 {
				delete(l.of, other)
			}
		}
	}
	of := l.of[id]
	if of == nil {
		of = &lane{limit: 1}
		l.of[id] = of
	}
	return of
}

// account returns the requests of an account.
func (l *Lanes) account(name string) *account {
	a := l.accounts[name]
	if a == nil {
		a = &account{waiting: make(map[string]time.Time)}
		l.accounts[name] = a
	}
	return a
}

// begin counts a request that begins.
func (c *counter) begin() {
	if c.running == 0 {
		c.since = time.Now()
	}
	c.running++
	c.refused = 0
}

// end counts a request that has ended.
func (c *counter) end() {
	c.running--
	c.since = time.Now()
}

// refuse returns how an event for an endpoint waits for a limit of running requests.
func (a *account) refuse(id string, c *counter, limit int) Wait {
	a.waiting[id] = time.Now()
	//guard:webhook-endpoints-that-are-gone-slow-no-account remove
	maps.DeleteFunc(a.waiting, func(_ string, at time.Time) bool { return time.Since(at) > longestWait })
	c.refused++
	w := Wait{Busy: time.Since(c.since), Many: c.refused >= manyRefused}
	w.Pace = min(max(w.Busy*3/4/time.Duration(limit), quickPace), SlowPace)
	return w
}

// Leave ends a request.
func (l *Lanes) Leave(id, owner string, size int, success bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of, a := l.of[id], l.accounts[owner]
	of.end()
	a.end()
	l.running--
	l.bytes, a.bytes = l.bytes-size, a.bytes-size
	if a.running == 0 {
		delete(l.accounts, owner)
	}
	if success {
		//guard:webhook-in-flight-at-most do @1.1++
		of.limit = min(of.limit+1, l.most)
	} else {
		of.limit = 1
	}
}
