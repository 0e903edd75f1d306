package inbox

import (
	"context"
	"errors"
	"time"

	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/inbox/internal/ledger"
)

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
		if err = c.call(work, tx, cl.Task); err != nil && c.isAttempt(ctx, tx, err) && !delivery.IsEnded(err) {
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
	tx, along, err := c.ledger.BeginAlong(ctx, &cl.Held, cl.reach, types, subjects)
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
