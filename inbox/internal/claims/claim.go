// Package claims looks for held events that are due, claims them for this process, and hands them
// to the workers of their handlers. It renews the claims of long runs, and gives back claims that
// no worker has begun. It runs no handler.
package claims

import (
	"encoding/json"
	"sync"
	"time"

	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/internal/guard"
	"github.com/postroom/postroom/internal/wire"
)

// Claim is a held event that this process may run until the claim ends.
type Claim struct {
	delivery.HeldEvent

	Ends  time.Time         // when the claim ends, by this process's clock; never later than the end in the database
	Fault *delivery.Failure // set if the row cannot be read as an event

	queue *Queue
	size  int64     // the event's size in bytes
	since time.Time // when the claim began to wait for a worker; zero if it does not wait
	late  bool      // it could not be decoded when it came, so its dedupe key is its place in the stream

	mu     sync.Mutex
	lost   bool // another process has claimed the event meanwhile
	onLoss func()
}

// Lose records that another process has the claim now, and calls the function of OnLoss.
func (cl *Claim) Lose() {
	cl.mu.Lock()
	cl.lost = true
	tell := cl.onLoss
	cl.mu.Unlock()
	if tell != nil {
		tell()
	}
}

// OnLoss registers the function f, which is called when the claim is lost, or at once if that has
// happened.
func (cl *Claim) OnLoss(f func()) {
	cl.mu.Lock()
	cl.onLoss = f
	lost := cl.lost
	cl.mu.Unlock()
	if lost {
		f()
	}
}

// IsLost reports whether another process has the claim now.
func (cl *Claim) IsLost() bool {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	return cl.lost
}

// Attempts returns how many attempts the event may have in all.
func (cl *Claim) Attempts() int {
	if cl.Last > 0 {
		return cl.Last
	}
	return cl.queue.Attempts
}

// IsSpent reports whether the event has had all its attempts, and the last of them did not settle it.
// Perhaps no worker had begun the last attempt, or the process failed, and not the handler. So an event
// gets one more attempt if it never failed, if a replay set the number of attempts, or if more events
// of its handler are claimed than can run.
func (cl *Claim) IsSpent() bool {
	//guard:an-event-that-no-worker-began-is-not-dead 3.1 false
	//guard:an-event-that-never-failed-has-one-more-attempt 2 false
	if cl.Last > 0 || cl.Class == "" || cl.queue.Running > 0 && !cl.Solitary {
		return cl.Attempt > cl.Attempts()+1
	}
	return cl.Attempt > cl.queue.Attempts
}

// EndsProcesses reports whether processes ended again and again after the last attempt, when they
// recorded that the event is dead. So perhaps Config.OnDead ends them.
func (cl *Claim) EndsProcesses() bool { return cl.Attempt > cl.Attempts()+1+deathsToTell }

// deathsToTell is how many processes may end while they call Config.OnDead for an event.
const deathsToTell = 3

// IsPlain reports whether the event can run in one transaction with other events: it can be read,
// has an attempt left, does not run alone, and no later event of its key has to wait for it.
func (cl *Claim) IsPlain() bool {
	return cl.Fault == nil && !cl.IsSpent() && !cl.Solitary && cl.Blocking == ""
}

// IsBare reports whether the dedupe key of the event may still have to be made: the event was held
// before its handler could make a key, or before the event could be decoded.
func (cl *Claim) IsBare() bool {
	return cl.late || cl.Key == delivery.DefaultKey(cl.Event)
}

// Together returns the earliest end of the claims, and reports whether their events can be run in
// one transaction.
func Together(all []*Claim) (until time.Time, can bool) {
	until, can = all[0].Ends, true
	for _, cl := range all {
		if cl.Ends.Before(until) {
			until = cl.Ends
		}
		can = can && cl.IsPlain()
	}
	return until, can
}

// Held returns the held events of the claims.
func Held(all []*Claim) []*delivery.HeldEvent {
	held := make([]*delivery.HeldEvent, len(all))
	for i, cl := range all {
		held[i] = &cl.HeldEvent
	}
	return held
}

// readEvent reads the parts of the event that another program may have written. An error in these
// parts is a fault of this event, and does not affect other events that were claimed with it.
func (cl *Claim) readEvent() {
	if cl.Headers != nil {
		cl.readHeaders(cl.Headers)
	}
	if cl.Raw != nil {
		cl.decode(cl.Raw)
	}
}

// readHeaders reads the event's headers. If the headers are not a JSON object of texts, because
// another program wrote them, the claim gets a fault.
func (cl *Claim) readHeaders(object []byte) {
	if err := json.Unmarshal(object, &cl.Event.Headers); err != nil {
		cl.Fault = &delivery.Failure{Class: delivery.ClassUndecodable, Text: guard.Clean("headers: "+err.Error(), guard.MaxText), Permanent: true}
	}
}

// decode tries again to read an event that could not be decoded when it came, because this version
// of Postroom may understand it.
func (cl *Claim) decode(raw []byte) {
	ev, err := wire.Decode(cl.Event.Subject, delivery.ParseHeaders(raw), cl.Event.Data)
	if err != nil {
		cl.Fault = &delivery.Failure{Class: delivery.ClassUndecodable, Text: guard.Clean(err.Error(), guard.MaxText), Permanent: true}
		return
	}
	//guard:an-event-that-is-decoded-late-has-its-key-made remove
	cl.late = cl.Key == delivery.DefaultKey(cl.Event)
	if ev.ID == "" {
		ev.ID = cl.Event.ID
	}
	if ev.LoggedAt.IsZero() {
		ev.LoggedAt = cl.Event.LoggedAt
	}
	cl.Event = ev
}
