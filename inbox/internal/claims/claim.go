// Package claims has the held events that this process may run: it claims them when they
// are due, hands them to the workers of their handlers, renews the claims of those that run
// for long, and gives back what is not begun. It runs no handler.
package claims

import (
	"encoding/json"
	"sync"
	"time"

	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/internal/guard"
	"github.com/postroom/postroom/internal/wire"
)

// Claim is a held event that this process may run until its lease ends.
type Claim struct {
	delivery.HeldEvent

	Ends  time.Time         // by this process's clock, no later than by the database's
	Fault *delivery.Failure // it is still no event

	queue *Queue
	size  int64 // in bytes

	mu     sync.Mutex
	lost   bool // another process has claimed the event since
	onLoss func()
}

// Lose notes that the claim is another's now, and tells whoever runs the event.
func (cl *Claim) Lose() {
	cl.mu.Lock()
	cl.lost = true
	tell := cl.onLoss
	cl.mu.Unlock()
	if tell != nil {
		tell()
	}
}

// OnLoss has f called when the claim is lost, or at once if it is.
func (cl *Claim) OnLoss(f func()) {
	cl.mu.Lock()
	cl.onLoss = f
	lost := cl.lost
	cl.mu.Unlock()
	if lost {
		f()
	}
}

// IsLost reports whether the claim is another's now.
func (cl *Claim) IsLost() bool {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	return cl.lost
}

// Attempts is how many attempts the event has in all.
func (cl *Claim) Attempts() int {
	if cl.Last > 0 {
		return cl.Last
	}
	return cl.queue.Attempts
}

// IsSpent reports whether the attempt before was the last, and never came to its end.
// One that an operator released has another then: it was not the handler that failed.
func (cl *Claim) IsSpent() bool {
	if cl.Last > 0 {
		return cl.Attempt > cl.Last+1
	}
	return cl.Attempt > cl.queue.Attempts
}

// readEvent reads the parts of the event that somebody else may have written. What is
// wrong there is the event's fault, and no other's that is claimed with it.
func (cl *Claim) readEvent() {
	if cl.Headers != nil {
		cl.readHeaders(cl.Headers)
	}
	if cl.Raw != nil {
		cl.decode(cl.Raw)
	}
}

// readHeaders reads the event's headers. What somebody else wrote there, and is no object
// of texts, is the event's fault, and no other's that is claimed with it.
func (cl *Claim) readHeaders(object []byte) {
	if err := json.Unmarshal(object, &cl.Event.Headers); err != nil {
		cl.Fault = &delivery.Failure{Class: delivery.ClassUndecodable, Text: guard.Clean("headers: "+err.Error(), guard.MaxText), Permanent: true}
	}
}

// decode reads an event that was undecodable when it came: this version may be
// able to.
func (cl *Claim) decode(raw []byte) {
	ev, err := wire.Decode(cl.Event.Subject, delivery.ParseHeaders(raw), cl.Event.Data)
	if err != nil {
		cl.Fault = &delivery.Failure{Class: delivery.ClassUndecodable, Text: guard.Clean(err.Error(), guard.MaxText), Permanent: true}
		return
	}
	if ev.ID == "" {
		ev.ID = cl.Event.ID
	}
	if ev.LoggedAt.IsZero() {
		ev.LoggedAt = cl.Event.LoggedAt
	}
	cl.Event = ev
}
