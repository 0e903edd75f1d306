package inbox

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/inbox/internal/ledger"
)

// retries run the events of a handler that are held, when they are due.
type retries struct {
	*loop

	claims   chan *claim   // to be run
	claimed  atomic.Int32  // of them, those that are not answered
	size     atomic.Int64  // of these, in bytes
	most     int64         // what that may be, as far as it is claimed at once
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
	c.size.Store(0)
	c.most = int64(c.inbox.heldShare())
}

// room is how many more events may be claimed, and of how many bytes. A claim that passes
// on to the next of its key counts twice for a moment.
func (c *retries) room() (events int32, bytes int64) {
	if bytes = c.most - c.size.Load(); bytes <= 0 {
		return 0, 0
	}
	return max(int32(cap(c.claims))-c.claimed.Load(), 0), bytes //nolint:gosec // a number of workers
}

// part is how many bytes may run together in one key: what each worker has of the
// handler's share.
func (c *retries) part() int64 { return c.most / int64(cap(c.claims)) }

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

// mostAlong is how many events of a key are run in one transaction behind its head,
// and mostRuns how many such transactions follow each other before others that are
// due have their turn.
const (
	mostAlong = 99
	mostRuns  = 10
)

// errShort says that an event failed that ran along with the head of its key: the
// transaction is to be repeated with those before it.
var errShort = errors.New("an event failed that ran along")

// run runs a held event, and those that waited behind it in its key; and then
// what waits for the worker, whose transaction the last of them has begun.
func (c *retries) run(ctx, work context.Context, cl *claim, lane <-chan *delivery.Delivery) {
	var next *ahead
	if c.external == nil && c.sub.Batch == 1 {
		next = &ahead{lane: lane}
	}
	for n := 1; cl != nil; n++ {
		cl.leads, cl.ahead = n < mostRuns && !cl.Solitary, next
		c.retry(ctx, work, cl)
		cl = cl.next
	}
	if next != nil {
		c.deliverRun(ctx, work, next)
	}
}

// runClaim runs a held event to its end.
func (c *retries) runClaim(ctx, work context.Context, cl *claim) error {
	if c.external != nil {
		return c.serve(ctx, work, cl)
	}
	if cl.Followed && !cl.Solitary {
		cl.reach = mostAlong
	}
	for {
		err := c.persist(ctx, work, func() error { return c.rerun(ctx, work, cl) })
		if !errors.Is(err, errShort) {
			return err
		}
	}
}

// rerun runs a held event whose claim this process has: the handler, the end of
// what is owed, the commit. Those that wait behind it in its key run along, in the
// same transaction. A failed attempt is noted in the round trip of its rollback, and
// returned as a notedError.
func (c *retries) rerun(ctx, work context.Context, cl *claim) error {
	if !cl.Solitary { // otherwise the runner holds it for writing
		c.inbox.alone.RLock()
		defer c.inbox.alone.RUnlock()
	}
	if err := c.endedBefore(work, cl); err != nil { // in the round before
		return err
	}
	tx, err := c.beginRerun(work, cl)
	if tx == nil {
		return err
	}
	cl.began = tx.ID
	if err == nil {
		if err = c.call(work, tx, cl.Task); err != nil && isAttempt(ctx, tx, err) && !delivery.IsEnded(err) {
			return c.failRerun(work, tx, cl, err)
		}
	}
	if err == nil {
		err = c.runAlong(ctx, work, tx, cl)
	}
	if err == nil {
		err = c.settleClaim(work, tx, cl)
	}
	return c.endClaim(ctx, work, tx, cl, err)
}

// beginRerun begins the transaction of a held event, and reads what is to run along.
func (c *retries) beginRerun(ctx context.Context, cl *claim) (*ledger.Tx, error) {
	cl.along = nil
	if cl.reach == 0 {
		return c.ledger.Begin(ctx)
	}
	began := time.Now()
	types, subjects := c.wished()
	tx, along, err := c.ledger.BeginAlong(ctx, &cl.Held, cl.reach, c.part()-cl.Size(), types, subjects)
	cl.along = c.inbox.runner.claims(along, began)
	return tx, err
}

// failRerun rolls back a failed attempt, and notes it.
func (c *retries) failRerun(ctx context.Context, tx *ledger.Tx, cl *claim, failed error) error {
	h := c.failed(cl.Attempt, cl.attempts(), delivery.FailureOf(failed))
	stored, committed, encoding := c.ledger.FailIn(ctx, tx, c.failure(cl, h))
	if encoding != nil {
		return c.ledger.End(ctx, tx, errors.Join(failed, encoding))
	}
	return &notedError{err: failed, holding: h, stored: stored, committed: committed}
}

// runAlong runs the events that wait behind the head of their key, until one fails, one
// changes the session for the next, or the claim could run out over them. One that fails
// fails as the head of its key, when it is that, with an attempt that is counted.
func (c *retries) runAlong(ctx, work context.Context, tx *ledger.Tx, cl *claim) error {
	until := cl.ends.Add(-2 * c.grace())
	for i, other := range cl.along {
		if ctx.Err() != nil || time.Until(until) < c.sub.Timeout*3/4 || tx.Differs() {
			cl.along = cl.along[:i]
			return nil
		}
		within, cancel := context.WithDeadlineCause(work, until, delivery.ErrTimeout)
		err := c.call(within, tx, other.Task)
		cancel()
		if err != nil {
			cl.reach = i
			return &shortError{err}
		}
	}
	return nil
}

// shortError is what an event failed with that ran along.
type shortError struct{ err error }

func (e *shortError) Error() string        { return errShort.Error() + ": " + e.err.Error() }
func (e *shortError) Is(target error) bool { return target == errShort }

// As finds that the transaction is gone, and nothing else: what went wrong is no
// failure of the head.
func (e *shortError) As(target any) bool {
	gone, wanted := target.(**delivery.AbandonedError)
	return wanted && errors.As(e.err, gone)
}

// settleClaim ends what is owed, in the transaction of the event's effects.
func (c *retries) settleClaim(ctx context.Context, tx *ledger.Tx, cl *claim) error {
	if cl.Blocking != "" {
		return c.settleKey(ctx, tx, cl)
	}
	return c.ledger.Settle(ctx, tx, &cl.Held)
}

// settleKey ends what is owed of an event that others of its key may wait for, and
// lets the next of them go on: at once, here, where the claim leads to it. What ran
// along is settled with it.
func (c *retries) settleKey(ctx context.Context, tx *ledger.Tx, cl *claim) error {
	cl.next = nil
	ids, last := make([]int64, len(cl.along)), cl.Pos
	for i, other := range cl.along {
		ids[i], last = other.ID, other.Pos
	}
	began := time.Now()
	s, err := c.ledger.SettleKey(ctx, tx, &cl.Held, ids, last, c.follower(cl.leads))
	switch {
	case err != nil:
		return err
	case !s.Whole: // somebody decided one of them meanwhile
		cl.reach = 0
		return &shortError{delivery.ErrSettled}
	}
	cl.more = s.More
	if len(s.Next) > 0 {
		cl.next = c.inbox.runner.claims(s.Next, began)[0]
	}
	return nil
}

// follower lets the next of a key go on, claimed or not.
func (c *retries) follower(claims bool) ledger.Follower {
	f := ledger.Follower{Lease: c.lease(c.inbox.cfg.AckWait), Bytes: c.part()}
	if claims {
		f.Process = &c.inbox.node.name
	}
	f.Types, f.Subjects = c.wished()
	return f
}

// endClaim ends the transaction of a held event. What was claimed in it is this
// process's from the commit on. Where nothing was, the commit begins the next delivery.
func (c *retries) endClaim(ctx, work context.Context, tx *ledger.Tx, cl *claim, err error) error {
	if cl.next == nil && err == nil {
		return c.alone(cl, unlessEnded(&cl.began, c.commit(ctx, work, tx, cl.ahead)))
	}
	if cl.next != nil {
		c.inbox.runner.begun(cl.next)
	}
	failed := err != nil
	if err = c.ledger.End(work, tx, err); !failed {
		err = c.alone(cl, unlessEnded(&cl.began, err))
	}
	if err != nil && cl.next != nil {
		var commit *delivery.CommitError
		if errors.As(err, &commit) { // it may have been claimed
			c.inbox.runner.unknown.Store(true)
		}
		c.inbox.runner.ended(cl.next)
		cl.next = nil
	}
	return err
}

// alone has a claim run without those behind it in its key if a handler ended their
// transaction: that may have been any of them.
func (c *retries) alone(cl *claim, err error) error {
	if delivery.IsEnded(err) && len(cl.along) > 0 {
		cl.reach = 0
		return &shortError{err}
	}
	return err
}

// skips reports whether an event dies of which later ones of its key do not wait.
func (c *retries) skips(cl *claim, h delivery.Holding) bool {
	return cl.Blocking != "" && h.After == nil && c.sub.Order == SkipKey
}

// failure is a failed attempt, as the ledger notes it. If the handler goes on without a dead
// event, the next of its key does.
func (c *retries) failure(cl *claim, h delivery.Holding) ledger.Failed {
	return ledger.Failed{Held: &cl.Held, Holding: h, Skipped: c.skips(cl, h), By: c.follower(false)}
}
