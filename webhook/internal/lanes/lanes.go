// Package lanes limits how many requests to one endpoint run at the same time. It sends nothing.
package lanes

import (
	"sync"
	"time"
)

// Lanes limits how many requests to one endpoint run at the same time in this process, so that an
// endpoint that does not answer occupies few workers. An endpoint's limit begins at one. Each
// success raises the limit by one, up to the field most. A failure sets it to one again.
type Lanes struct {
	most int

	mu sync.Mutex
	of map[string]*lane
}

// New returns lanes. The limit of each endpoint rises up to most.
func New(most int) *Lanes { return &Lanes{most: most, of: make(map[string]*lane)} }

// lane is the limit of one endpoint.
type lane struct {
	running, limit int
	since          time.Time // the later of two times: when a request last ended, and when a request last began while no other request was running
	refused        int       // how many events in a row were refused by the method Enter
}

// Wait says how an event waits if the method Enter refused it.
type Wait struct {
	Busy time.Duration // for how long at least one request has been running while none has ended
	Pace time.Duration // about how long the endpoint needs for one event, at most SlowPace
	Many bool          // Enter refused many events: the due events behind this event wait too
}

// manyRefused is how many events in a row Enter must refuse to make events behind them wait too.
const manyRefused = 16

// SlowPace is the greatest pace. If events of an endpoint wait together, a pace is the time from each
// event to the next; see postroom.SnoozeKey. Each event that Enter refuses again costs the database a
// little. When the pause of an endpoint ends, its events come back at SlowPace.
const SlowPace = 10 * time.Millisecond

// quickPace is the least pace.
const quickPace = 2 * time.Millisecond

// manyLanes is how many endpoints the type Lanes remembers. At this number, the method Enter
// forgets the endpoints without running requests.
const manyLanes = 10_000

// Enter begins a request if the limit allows it. If not, it returns how the event waits.
func (l *Lanes) Enter(id string, fails bool) (_ Wait, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
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
	if fails {
		of.limit = 1
	}
	//guard:webhook-in-flight = @1 >= 1000*@2
	if of.running >= of.limit {
		of.refused++
		w := Wait{Busy: time.Since(of.since), Many: of.refused >= manyRefused}
		w.Pace = min(max(w.Busy*3/4/time.Duration(of.limit), quickPace), SlowPace)
		return w, false
	}
	if of.running == 0 {
		of.since = time.Now()
	}
	of.running++
	of.refused = 0
	return Wait{}, true
}

// Leave ends a request.
func (l *Lanes) Leave(id string, success bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.of[id]
	of.running--
	if of.since = time.Now(); success {
		//guard:webhook-in-flight-at-most do @1.1++
		of.limit = min(of.limit+1, l.most)
	} else {
		of.limit = 1
	}
}
