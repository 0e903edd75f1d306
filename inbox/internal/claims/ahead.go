package claims

import (
	"sync"
	"time"
)

// The time for which a claim waited for a worker changes how many claims may wait. A claim should
// not wait for long, because another process may have a free worker for its event.
const (
	soon = 100 * time.Millisecond // after a shorter wait, one more claim may wait
	late = 500 * time.Millisecond // after a longer wait, only half as many claims may wait
)

// ahead decides how many claims of a handler may wait for a worker. The number rises while workers
// take claims soon, and falls if claims wait for long. For a quick handler, waiting claims are
// good: one statement claims many events. For a slow handler they are bad: other processes cannot
// run the claimed events meanwhile.
type ahead struct {
	most int

	mu    sync.Mutex
	n     int
	moved time.Time // when a worker last took a claim, or a claim began to wait while no other waited
}

func newAhead(most int) *ahead { return &ahead{most: most, n: most} }

// room returns how many claims may wait.
func (a *ahead) room() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.n
}

// put notes that a claim begins to wait. behind is the number of claims that wait already.
func (a *ahead) put(now time.Time, behind int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if behind == 0 {
		a.moved = now
	}
}

// taken notes that a worker took a claim. since is when the claim began to wait.
func (a *ahead) taken(now, since time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.moved = now
	switch waited := now.Sub(since); {
	case waited < soon:
		a.n = min(a.n+1, a.most)
	case waited > late:
		a.n /= 2
	}
}

// isStuck reports whether claims wait, and no worker has taken a claim for longer than late. If so,
// no claim may wait from now on, until a worker takes a claim that waited for less than soon.
func (a *ahead) isStuck(now time.Time, waiting int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if waiting == 0 || now.Sub(a.moved) < late {
		return false
	}
	a.n = 0
	return true
}
