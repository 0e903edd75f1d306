package relay

import (
	"sync"

	"github.com/postroom/postroom/broker"
	"github.com/postroom/postroom/internal/guard"
	"github.com/postroom/postroom/relay/internal/schedule"
)

// result is an event whose outcome is known.
type result struct {
	*schedule.Entry
	broker.Outcome
}

// results are on their way from the publisher to the dispatcher.
type results struct {
	mu        sync.Mutex
	pending   []result
	threshold int           // so many of them are news
	news      chan struct{} // there are enough

	reuse []result // the dispatcher's, for reuse
}

func newResults() *results { return &results{threshold: 1, news: make(chan struct{}, 1)} }

// report takes an outcome from the publisher.
func (l *results) report(m *broker.Message, o broker.Outcome) {
	o.Err = guard.Seal(o.Err) // which a publisher of a user's has made
	l.mu.Lock()
	l.pending = append(l.pending, result{schedule.EntryOf(m), o})
	tell := len(l.pending) == l.threshold
	l.mu.Unlock()
	if tell {
		signal(l.news)
	}
}

// wakeAt has report wake the dispatcher as soon as there are n outcomes.
func (l *results) wakeAt(n int) {
	l.mu.Lock()
	l.threshold = n
	tell := len(l.pending) >= n
	l.mu.Unlock()
	if tell {
		signal(l.news)
	}
}

// take returns what there is. giveBack takes its memory back.
func (l *results) take() []result {
	l.mu.Lock()
	defer l.mu.Unlock()
	taken := l.pending
	l.pending = l.reuse[:0]
	return taken
}

func (l *results) recycle(taken []result) {
	clear(taken)
	l.reuse = taken
}
