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
}

// manyLanes is the number of endpoints from which endpoints without running requests are forgotten.
const manyLanes = 10_000

// enter begins a request, if the limit allows it. Otherwise it returns how long the oldest request
// has been running.
func (l *lanes) enter(id string, fails bool) (busy time.Duration, ok bool) {
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
		return time.Since(of.since), false
	}
	if of.running == 0 {
		of.since = time.Now()
	}
	of.running++
	return 0, true
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
