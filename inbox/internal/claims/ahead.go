package claims

import (
	"sync"
	"time"
)

// How long a claim may wait for a worker, so that its event does not wait here while another
// process has a worker for it.
const (
	soon = 100 * time.Millisecond // a worker took it so soon that one more may wait
	late = 500 * time.Millisecond // it could have waited in the database
)

// ahead is how many claims of a handler may wait for a worker. It follows how soon the workers
// take them: claims ahead save statements if handlers are quick, and do harm if they are slow.
type ahead struct {
	most int

	mu    sync.Mutex
	n     int
	moved time.Time // when a worker took a claim, or the first began to wait
}

func newAhead(most int) *ahead { return &ahead{most: most, n: most} }

// room returns how many claims may wait.
func (a *ahead) room() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.n
}

// put notes that a claim begins to wait, behind others or not.
func (a *ahead) put(now time.Time, behind int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if behind == 0 {
		a.moved = now
	}
}

// taken notes that a worker took a claim that began to wait at a time.
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

// isStuck reports whether claims wait, and no worker has taken one for long. Then none may wait
// until a worker takes one.
func (a *ahead) isStuck(now time.Time, waiting int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if waiting == 0 || now.Sub(a.moved) < late {
		return false
	}
	a.n = 0
	return true
}
