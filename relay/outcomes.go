package relay

import (
	"sync"

	"github.com/postroom/postroom/broker"
	"github.com/postroom/postroom/internal/guard"
	"github.com/postroom/postroom/relay/internal/schedule"
)

// landing is an event whose outcome is known.
type landing struct {
	*schedule.Entry
	broker.Outcome
}

// outcomes are on their way from the publisher to conduct.
type outcomes struct {
	mu     sync.Mutex
	list   []landing
	enough int           // so many of them are news
	news   chan struct{} // there are enough

	spare []landing // conduct's, for reuse
}

func newOutcomes() *outcomes { return &outcomes{enough: 1, news: make(chan struct{}, 1)} }

// settle takes an outcome from the publisher.
func (l *outcomes) settle(m *broker.Message, o broker.Outcome) {
	o.Err = guard.Seal(o.Err) // which a publisher of a user's has made
	l.mu.Lock()
	l.list = append(l.list, landing{schedule.EntryOf(m), o})
	tell := len(l.list) == l.enough
	l.mu.Unlock()
	if tell {
		signal(l.news)
	}
}

// await has settle wake conduct as soon as there are n outcomes.
func (l *outcomes) await(n int) {
	l.mu.Lock()
	l.enough = n
	tell := len(l.list) >= n
	l.mu.Unlock()
	if tell {
		signal(l.news)
	}
}

// take returns what there is. giveBack takes its memory back.
func (l *outcomes) take() []landing {
	l.mu.Lock()
	defer l.mu.Unlock()
	taken := l.list
	l.list = l.spare[:0]
	return taken
}

func (l *outcomes) giveBack(taken []landing) {
	clear(taken)
	l.spare = taken
}
