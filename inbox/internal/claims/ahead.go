package claims

import (
	"sync"
	"time"
)

// If claims wait long for a worker, the handler gets a lower limit for waiting claims, because
// other processes may have free workers for these events.
const (
	shortWait = 100 * time.Millisecond // after a shorter wait, one more claim may wait
	longWait  = 500 * time.Millisecond // after a longer wait, only half as many claims may wait
)

// ahead limits how many claims of a handler may wait for a worker. For a quick handler, waiting
// claims are good, because one statement can claim many events. For a slow handler waiting claims
// are bad, because no other process can run the events meanwhile.
type ahead struct {
	most int

	mu    sync.Mutex
	n     int
	moved time.Time // the last time when a worker took a claim, or when the empty queue got one
}

func newAhead(most int) *ahead { return &ahead{most: most, n: most} }

// room returns how many claims may wait.
func (a *ahead) room() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.n
}

// put is called when a claim begins to wait, with the number of claims that wait already.
func (a *ahead) put(now time.Time, waiting int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if waiting == 0 {
		a.moved = now
	}
}

// taken is called when a worker takes a claim that began to wait at the time start.
func (a *ahead) taken(now, start time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.moved = now
	switch waited := now.Sub(start); {
	case waited < shortWait:
		a.n = min(a.n+1, a.most)
	case waited > longWait:
		a.n /= 2
	}
}

// isStuck reports whether claims wait although no worker took a claim for at least longWait. If so,
// isStuck sets the limit to 0. Then the handler claims only events for free workers, until a worker
// takes a claim that waited for less than shortWait.
func (a *ahead) isStuck(now time.Time, waiting int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if waiting == 0 || now.Sub(a.moved) < longWait {
		return false
	}
	a.n = 0
	return true
}
