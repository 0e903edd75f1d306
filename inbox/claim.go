package inbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
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
		cl := &claim{Held: row, c: r.inbox.byName(row.Handler)}
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

// retries run the events of a handler that are held, when they are due.
type retries struct {
	*loop

	claims   chan *claim   // to be run
	claimed  atomic.Int32  // of them, those that are not answered
	settling chan struct{} // has one for each transaction in which an external handler settles
}

// open makes what a run needs.
func (c *retries) open() {
	room := max(1, c.workers/4)
	if c.isOrdered() || c.external != nil { // what is held holds up more than itself, or is all there is
		room = c.workers
	}
	c.claims = make(chan *claim, room)
	if c.external != nil {
		c.settling = make(chan struct{}, c.connections())
	}
	c.claimed.Store(0)
}

// retry runs a held event and notes what became of it.
func (c *retries) retry(ctx, work context.Context, cl *claim) {
	defer func() {
		c.inbox.runner.ended(cl)
		c.inbox.runner.wake(0) // there is room
	}()
	switch {
	case cl.fault != nil:
		c.fail(ctx, work, cl, *cl.fault, cl.Attempt)
		return
	case cl.isSpent(): // its last attempt has no end
		c.fail(ctx, work, cl, delivery.Failure{Class: delivery.ClassCrash, Permanent: true, Text: fmt.Sprintf(
			"the process that made attempt %d ended or stood still, and it was the last", cl.attempts())}, cl.attempts())
		return
	case ctx.Err() != nil || c.external == nil && !cl.Solitary && time.Until(cl.ends) < c.sub.Timeout+c.grace(): // it waited for too long
		c.release(ctx, work, cl)
		return
	}
	before := c.keys.Version(cl.Blocking)
	err := c.runClaim(ctx, work, cl)
	var attempt *notedError
	switch {
	case errors.As(err, &attempt):
		c.report(work, cl.Task, attempt.err)
		switch {
		case attempt.committed:
			c.fail(ctx, work, cl, delivery.FailureOf(&delivery.EndedError{Committed: true}), cl.Attempt)
		case attempt.stored:
			c.noted(work, cl, attempt.holding)
		default:
			c.fail(ctx, work, cl, *attempt.holding.Failure, cl.Attempt)
		}
	case err == nil:
		if cl.next == nil {
			c.freed(cl, before)
		}
		c.metrics.ended(work, delivery.Done, cl.Event.LoggedAt)
		for _, other := range cl.along {
			c.metrics.ended(work, delivery.Done, other.Event.LoggedAt)
		}
	case errors.Is(err, delivery.ErrSettled):
		c.metrics.leaseLost.Add(work, 1, c.metrics.handler)
		c.log.WarnContext(work, "another process has the event, or it is settled", "event_id", cl.Event.ID, "dedupe_key", cl.Key, "attempt", cl.Attempt)
	case work.Err() != nil || ctx.Err() != nil && delivery.IsOutage(err) || delivery.IsUnsettled(err):
		c.release(ctx, work, cl)
	default:
		c.report(work, cl.Task, err)
		if ended := c.persist(ctx, work, func() error { return c.endedBefore(work, cl) }); ended != nil {
			err = ended
		}
		c.fail(ctx, work, cl, delivery.FailureOf(err), cl.Attempt)
	}
}

// endedBefore returns an endedError if a handler committed the claim's last transaction: what
// it did must not be done again.
func (c *retries) endedBefore(ctx context.Context, cl *claim) error {
	committed, err := c.inbox.db.WasCommitted(ctx, cl.began)
	if committed {
		return &delivery.EndedError{Committed: true}
	}
	return delivery.Written(err)
}

// fail notes a failed attempt, and when the next is due.
func (c *retries) fail(ctx, work context.Context, cl *claim, f delivery.Failure, attempts int) {
	h := c.failed(attempts, cl.attempts(), f)
	noted := false
	err := c.persist(ctx, work, func() (err error) {
		noted, err = c.ledger.Fail(work, c.failure(cl, h))
		return err
	})
	switch {
	case err != nil:
		c.log.ErrorContext(work, "failure could not be noted; its claim will run out", "event_id", cl.Event.ID, "dedupe_key", cl.Key, "error", err)
	case !noted:
		c.metrics.leaseLost.Add(work, 1, c.metrics.handler)
	default:
		c.noted(work, cl, h)
	}
}

// noted tells of a failed attempt that is written down.
func (c *retries) noted(ctx context.Context, cl *claim, h delivery.Holding) {
	o := delivery.Held
	if h.After == nil {
		o = delivery.Dead
	}
	c.moved(ctx, cl.Task, "claimed", o, h)
	c.metrics.ended(ctx, o, cl.Event.LoggedAt)
}

// release gives a claim back. Where that does not succeed it runs out.
func (c *retries) release(ctx, work context.Context, cl *claim) {
	err := c.persist(ctx, work, func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(work), ledger.RollbackPatience)
		defer cancel()
		return c.inbox.db.Release(ctx, cl.ID, cl.Epoch)
	})
	if err != nil {
		c.log.WarnContext(work, "claim could not be given back and will run out", "event_id", cl.Event.ID, "dedupe_key", cl.Key, "error", err)
	}
	c.metrics.ended(work, delivery.Released, cl.Event.LoggedAt)
}

// freed notes that an event of a key was settled, and nothing of it is claimed any
// more: what waits here may go on, or looks for itself whether it may. before is what
// was known of the key when the event began to run.
func (c *retries) freed(cl *claim, before uint64) {
	if cl.Blocking == "" || !c.isOrdered() {
		return
	}
	if cl.more || !c.keys.Free(cl.Blocking, before) {
		c.keys.Doubt(cl.Blocking)
	}
	c.unpark(cl.Blocking)
}
