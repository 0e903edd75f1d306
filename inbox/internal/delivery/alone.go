package delivery

import (
	"sync"
	"time"
)

// Alone is the lock of running events. An event that may end the process takes it with Lock, so that
// it runs alone. All other events take it with RLock. Only one goroutine may call Lock and Unlock.
type Alone struct {
	mu      sync.Mutex
	running int           // how many events have the lock with RLock
	closed  chan struct{} // is closed when RLock may go on; nil if it may now
	empty   chan struct{} // is closed when no event runs any more; nil if Lock does not wait for that
}

// RLock takes the lock for an event that may run beside others.
func (a *Alone) RLock() {
	for !a.TryRLock() {
		a.mu.Lock()
		closed := a.closed
		a.mu.Unlock()
		if closed != nil {
			<-closed
		}
	}
}

// TryRLock does what RLock does if it need not wait, and reports whether it has the lock.
func (a *Alone) TryRLock() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed != nil {
		return false
	}
	a.running++
	return true
}

// RUnlock gives back what RLock took.
func (a *Alone) RUnlock() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.running--; a.running == 0 && a.empty != nil {
		close(a.empty)
		a.empty = nil
	}
}

// Lock lets no other event begin, and waits until the running events have ended, but no longer than
// the given time. If some still run then, Lock takes the lock beside them if the parameter beside is
// true. Otherwise it returns false, and other events may begin again.
func (a *Alone) Lock(within time.Duration, beside bool) bool {
	a.mu.Lock()
	a.closed = make(chan struct{})
	if a.running == 0 {
		a.mu.Unlock()
		return true
	}
	empty := make(chan struct{})
	a.empty = empty
	a.mu.Unlock()
	late := time.NewTimer(within)
	defer late.Stop()
	select {
	case <-empty:
		return true
	case <-late.C:
	}
	if !beside {
		a.Unlock()
	}
	return beside
}

// Unlock gives back what Lock took.
func (a *Alone) Unlock() {
	a.mu.Lock()
	defer a.mu.Unlock()
	close(a.closed)
	a.closed, a.empty = nil, nil
}
