package inbox

import (
	"context"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/inbox/internal/ledger"
)

// maxRounds is how often one delivery is run again, at once, after a fault that
// is nobody's: a serialization failure, a deadlock, a commit whose answer was
// lost.
const maxRounds = 10

// persist runs one transaction again where what went wrong was no fault of the
// event's: contention up to maxRounds times, an outage for as long as it lasts,
// unless the process is to stop. ctx ends when that is so, work when it may not
// wait any longer.
func (c *loop) persist(ctx, work context.Context, apply func() error) error {
	rounds, failures := 0, 0
	for {
		err := apply()
		switch {
		case delivery.IsOutage(err) && ctx.Err() == nil:
			failures++
			c.inbox.lines.Warn(work, c.log, "database out of reach, waiting", c.inbox.advise(err), "failures", failures)
			sleep(ctx, outage.Delay(failures))
		case delivery.IsContention(err) && work.Err() == nil && rounds+1 < maxRounds:
			rounds++
		default:
			return err
		}
	}
}

// apply is one transaction: the ledger row, the handler, the commit or rollback,
// which begins that of the next delivery where there is one. A failed attempt is a
// failedError.
func (c *loop) apply(ctx, work context.Context, d *delivery.Delivery, ahead *ahead) error {
	if !c.inbox.alone.TryRLock() {
		ahead.drop(work) // a transaction does not wait for an event that runs alone
		c.inbox.alone.RLock()
	}
	defer c.inbox.alone.RUnlock()
	tx, tag, err := ahead.take()
	if tx == nil {
		tx, tag, err = c.ledger.Decide(work, c.decision(d))
	}
	if tx == nil {
		return err
	}
	if err == nil && tag.RowsAffected() == 0 {
		return c.ledger.End(work, tx, c.ledger.Undecided(work, tx, d, c.keyOf(d)))
	}
	if tx.ID != "" {
		d.Began = tx.ID
	}
	if err == nil {
		err = c.call(work, tx, d.Task)
	}
	switch {
	case err == nil:
		return unlessEnded(&d.Began, c.commit(ctx, work, tx, ahead))
	case !isAttempt(ctx, tx, err):
		return c.ledger.End(work, tx, err)
	}
	return c.leave(ctx, work, tx, err, ahead)
}

// decision is the statement that decides a delivery.
func (c *loop) decision(d *delivery.Delivery) *ledger.Statement {
	key := c.keyOf(d)
	_, maybe := c.keys.Has(key)
	return c.ledger.Decision(d, key, maybe)
}

// commit commits, and begins the transaction of the next delivery in the same round
// trip where one waits.
func (c *loop) commit(ctx, work context.Context, tx *ledger.Tx, ahead *ahead) error {
	following, err := c.ledger.Commit(work, tx, c.peek(ctx, ahead))
	if following != nil {
		ahead.opened = following
	}
	return err
}

// unlessEnded forgets the id of a transaction that the inbox has committed, or may have,
// and returns err. It is kept if a handler ended the transaction.
func unlessEnded(began *string, err error) error {
	if !delivery.IsEnded(err) {
		*began = ""
	}
	return err
}

// leave rolls back a failed attempt, and begins the transaction of the next
// delivery in the same round trip where one waits.
func (c *loop) leave(ctx, work context.Context, tx *ledger.Tx, failed error, ahead *ahead) error {
	if following := c.ledger.Leave(work, tx, c.peek(ctx, ahead)); following != nil {
		ahead.opened = following
	}
	return &failedError{failed}
}

// mostAhead is how many deliveries follow each other while a claim waits for a worker.
const mostAhead = 8

// ahead is what a worker has of the delivery after the one that it is at.
type ahead struct {
	lane   <-chan *delivery.Delivery
	n      int                // of deliveries that this one follows
	d      *delivery.Delivery // nil where none waited
	opened *ledger.Opened     // its transaction, where that was begun with the end of the one before
}

// pop returns the delivery, which then is the one at hand; or nil.
func (a *ahead) pop() *delivery.Delivery {
	d := a.d
	a.d = nil
	a.n++
	return d
}

// take returns the transaction that was begun for the delivery that is at hand now.
func (a *ahead) take() (*ledger.Tx, pgconn.CommandTag, error) {
	if a == nil || a.d != nil || a.opened == nil {
		return nil, pgconn.CommandTag{}, nil
	}
	o := a.opened
	a.opened = nil
	return o.Tx, o.Tag, o.Err
}

// drop ends the transaction that was begun for the delivery at hand: it has to wait,
// or took another way than it seemed to.
func (a *ahead) drop(ctx context.Context) {
	if tx, _, _ := a.take(); tx != nil {
		tx.Abort(ctx)
	}
}

// peek returns what decides the delivery that is next for this worker, where one
// waits and nothing else has to come before.
func (c *loop) peek(ctx context.Context, ahead *ahead) *ledger.Statement {
	if ahead == nil || ctx.Err() != nil || len(c.retries.claims) > 0 && ahead.n >= mostAhead {
		return nil
	}
	if ahead.d == nil {
		select {
		case ahead.d = <-ahead.lane:
		default:
			return nil
		}
	}
	if !c.isStraight(ahead.d) || ahead.d.IsOver() || c.keys.isHeld(c.keyOf(ahead.d)) {
		return nil
	}
	return c.decision(ahead.d)
}

// isAttempt reports whether err is a failure of the handler, on a connection that
// can still tell of it: no contention, no outage and no shutdown.
func isAttempt(ctx context.Context, tx *ledger.Tx, err error) bool {
	return err != nil && !delivery.IsAbandoned(err) && !tx.Tx.Conn().IsClosed() && !delivery.IsContention(err) && !delivery.IsOutage(err) && ctx.Err() == nil
}

// failedError is a failed attempt, which is rolled back and still to be held.
type failedError struct{ err error }

func (e *failedError) Error() string { return e.err.Error() }

// notedError is a failed attempt at a held event.
type notedError struct {
	err     error
	holding delivery.Holding
	stored  bool // it is written down; otherwise that is still to be done

	committed bool // the handler committed its transaction
}

func (e *notedError) Error() string { return e.err.Error() }

// call runs the handler, in another goroutine: one that ends with runtime.Goexit
// takes no worker with it, and one that does not return holds none for ever. A
// panic is an error like any other, with its stack.
func (c *loop) call(ctx context.Context, tx *ledger.Tx, t delivery.Task) error {
	return c.observe(ctx, t, func(ctx context.Context) error {
		return c.invoker.Run(ctx, tx, func(ctx context.Context) error { return c.handler.apply.Handle(ctx, tx, t.Event) })
	})
}

// isStraight reports whether a delivery takes the straight path, as far as can be
// told without the database.
func (c *loop) isStraight(d *delivery.Delivery) bool {
	_, aside := c.aside(d)
	return !aside && c.takes(d.Event)
}
