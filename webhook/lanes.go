package webhook

import (
	"math/rand/v2"
	"sync"
	"time"
)

// lanes limit how many requests to one endpoint run at the same time in this process, so that an
// endpoint that does not answer occupies only few workers. The limit of an endpoint begins at one.
// Each success raises it by one, up to most. A failure sets it to one again.
type lanes struct {
	most int

	mu sync.Mutex
	of map[string]*lane
}

// lane is the limit of one endpoint.
type lane struct {
	running, limit int
	since          time.Time // when the oldest running request began, or earlier
	refused        int       // how many events in a row were refused
}

// wait says how an event waits that was refused.
type wait struct {
	busy time.Duration // how long the oldest request has been running
	pace time.Duration // how long the endpoint needs for one event
	many bool          // many events were refused: the due events behind this one wait as well
}

// manyRefused is how many events of an endpoint are refused until the events behind them wait too.
const manyRefused = 16

// The least and the greatest time between two events of an endpoint that wait together. Each event
// that is refused again costs the database a little. An endpoint that works again gets one event
// after each slowPace.
const (
	quickPace = 2 * time.Millisecond
	slowPace  = 10 * time.Millisecond
)

// manyLanes is how many endpoints are remembered. If there are more, those without running requests
// are forgotten.
const manyLanes = 10_000

// enter begins a request, if the limit allows it. Otherwise it returns how the event waits.
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

// spread adds up to a half at random, so that events that waited together do not all return at the
// same moment.
func spread(d time.Duration) time.Duration { return d + rand.N(d/2+time.Millisecond) }
