package relay

import (
	"errors"
	"sync"

	"github.com/postroom/postroom/internal/guard"
	"github.com/postroom/postroom/relay/broker"
	"github.com/postroom/postroom/relay/internal/schedule"
)

// result is an event with its outcome.
type result struct {
	*schedule.Entry
	broker.Outcome
}

// results passes results from the publisher to the dispatcher.
type results struct {
	mu        sync.Mutex
	pending   []result
	threshold int           // the number of results that wakes the dispatcher
	news      chan struct{} // signals that len(pending) has reached threshold

	reuse []result // memory for reuse
}

// errUntold is the error of an event that was not stored, if the publisher gave none.
var errUntold = errors.New("the publisher did not say why")

func newResults() *results { return &results{threshold: 1, news: make(chan struct{}, 1)} }

// report adds an outcome. The publisher calls it. It never blocks.
func (l *results) report(m *broker.Message, o broker.Outcome) {
	switch { // a user may have written the publisher
	//guard:an-error-is-never-stored false
	case o.Class == broker.Stored && o.Err != nil:
		o.Class = broker.Unknown
	case o.Class != broker.Stored && o.Err == nil:
		o.Err = errUntold
	}
	o.Err = guard.Seal(o.Err)
	l.mu.Lock()
	l.pending = append(l.pending, result{schedule.EntryOf(m), o})
	tell := len(l.pending) == l.threshold
	l.mu.Unlock()
	if tell {
		signal(l.news)
	}
}

// wakeAt wakes the dispatcher as soon as there are n results.
func (l *results) wakeAt(n int) {
	l.mu.Lock()
	l.threshold = n
	tell := len(l.pending) >= n
	l.mu.Unlock()
	if tell {
		signal(l.news)
	}
}

// take returns the results so far. Pass the slice to the method recycle after use.
func (l *results) take() []result {
	l.mu.Lock()
	defer l.mu.Unlock()
	taken := l.pending
	l.pending = l.reuse[:0]
	return taken
}

// recycle takes back the memory of a slice that the method take returned.
func (l *results) recycle(taken []result) {
	clear(taken)
	l.reuse = taken
}
