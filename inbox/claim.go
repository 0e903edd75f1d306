package inbox

import (
	"encoding/json"
	"sync"
	"time"

	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/inbox/internal/ledger"
	"github.com/postroom/postroom/internal/guard"
	"github.com/postroom/postroom/internal/wire"
)

// claim is a held event that this process may run until its lease ends.
type claim struct {
	ledger.Held

	c     *loop
	size  int64             // in bytes
	ahead *ahead            // what its commit is to begin, or nil
	began string            // the id of its last transaction, if the inbox did not commit that
	ends  time.Time         // by this process's clock, no later than by the database's
	fault *delivery.Failure // it is still no event

	chain
	loss
}

// chain is what is run together with a claim, in its key.
type chain struct {
	reach int      // how many of that key may run along
	along []*claim // those that did; none is claimed by itself
	leads bool     // the next of the key is claimed when this one is settled
	next  *claim   // which then was claimed
	more  bool     // others of the key are held
}

// loss is told when another process has claimed the event since.
type loss struct {
	mu     sync.Mutex
	lost   bool
	onLoss func()
}

// lose notes that the claim is another's now, and tells whoever runs the event.
func (cl *loss) lose() {
	cl.mu.Lock()
	cl.lost = true
	tell := cl.onLoss
	cl.mu.Unlock()
	if tell != nil {
		tell()
	}
}

// onLost has f called when the claim is lost, or at once where it is.
func (cl *loss) onLost(f func()) {
	cl.mu.Lock()
	cl.onLoss = f
	lost := cl.lost
	cl.mu.Unlock()
	if lost {
		f()
	}
}

func (cl *loss) isLost() bool {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	return cl.lost
}

// attempts is how many attempts the event has in all.
func (cl *claim) attempts() int {
	if cl.Last > 0 {
		return cl.Last
	}
	return cl.c.sub.Attempts
}

// isSpent reports whether the attempt before was the last, and never came to its end.
// One that an operator released has another then: it was not the handler that failed.
func (cl *claim) isSpent() bool {
	if cl.Last > 0 {
		return cl.Attempt > cl.Last+1
	}
	return cl.Attempt > cl.c.sub.Attempts
}

// claims returns what was claimed. The lease is counted from before the statement was
// sent.
func (r *runner) claims(rows []ledger.Held, began time.Time) []*claim {
	claims := make([]*claim, len(rows))
	for i, row := range rows {
		cl := &claim{Held: row, c: r.inbox.byName(row.Handler), size: row.Size()}
		cl.ends = began.Add(cl.c.lease(r.inbox.cfg.AckWait))
		cl.readEvent()
		claims[i] = cl
	}
	return claims
}

// readEvent reads the parts of the event that somebody else may have written. What is
// wrong there is the event's fault, and no other's that is claimed with it.
func (cl *claim) readEvent() {
	if cl.Headers != nil {
		cl.readHeaders(cl.Headers)
	}
	if cl.Raw != nil {
		cl.decode(cl.Raw)
	}
}

// readHeaders reads the event's headers. What somebody else wrote there, and is no object
// of texts, is the event's fault, and no other's that is claimed with it.
func (cl *claim) readHeaders(object []byte) {
	if err := json.Unmarshal(object, &cl.Event.Headers); err != nil {
		cl.fault = &delivery.Failure{Class: delivery.ClassUndecodable, Text: guard.Clean("headers: "+err.Error(), guard.MaxText), Permanent: true}
	}
}

// decode reads an event that was undecodable when it came: this version may be
// able to.
func (cl *claim) decode(raw []byte) {
	ev, err := wire.Decode(cl.Event.Subject, delivery.ParseHeaders(raw), cl.Event.Data)
	if err != nil {
		cl.fault = &delivery.Failure{Class: delivery.ClassUndecodable, Text: guard.Clean(err.Error(), guard.MaxText), Permanent: true}
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
