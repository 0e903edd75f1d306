package webhook

import (
	"math/rand/v2"
	"sync"
	"time"
)

// lanes limits how many requests to one endpoint run at the same time in this process, so that an
// endpoint that does not answer occupies few workers. An endpoint's limit begins at one. Each
// success raises the limit by one, up to the field most. A failure sets it to one again.
type lanes struct {
	most int

	mu sync.Mutex
	of map[string]*lane
}

// lane is the limit of one endpoint.
type lane struct {
	running, limit int
	since          time.Time // the later of two times: when a request last ended, and when a request last began while no other request was running
	refused        int       // how many events in a row were refused by the method enter
}

// wait says how an event waits if the method enter refused it.
type wait struct {
	busy time.Duration // for how long at least one request has been running while none has ended
	pace time.Duration // about how long the endpoint needs for one event, from quickPace to slowPace
	many bool          // enter refused many events: the due events behind this event wait too
}

// manyRefused is how many events in a row enter must refuse to make events behind them wait too.
const manyRefused = 16

// The least and the greatest pace. If events of an endpoint wait together, a pace is the time from
// each event to the next; see postroom.SnoozeKey. Each event that enter refuses again costs the
// database a little. When the pause of an endpoint ends, its events come back at slowPace.
const (
	quickPace = 2 * time.Millisecond
	slowPace  = 10 * time.Millisecond
)

// manyLanes is how many endpoints the type lanes remembers. At this number, the method enter
// forgets the endpoints without running requests.
const manyLanes = 10_000

// enter begins a request if the limit allows it. If not, it returns how the event waits.
func (l *lanes) enter(id string, fails bool) (_ wait, ok bool) {
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
	if of.running >= of.limit {
		of.refused++
		w := wait{busy: time.Since(of.since), many: of.refused >= manyRefused}
		w.pace = min(max(w.busy*3/4/time.Duration(of.limit), quickPace), slowPace)
		return w, false
	}
	if of.running == 0 {
		of.since = time.Now()
	}
	of.running++
	of.refused = 0
	return wait{}, true
}

// leave ends a request.
func (l *lanes) leave(id string, success bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.of[id]
	of.running--
	if of.since = time.Now(); success {
		of.limit = min(of.limit+1, l.most)
	} else {
		of.limit = 1
	}
}

// spread adds up to half of d, at random, so that events that waited together do not all come back
// at the same moment.
func spread(d time.Duration) time.Duration { return d + rand.N(d/2+time.Millisecond) }
