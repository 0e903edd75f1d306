package inbox

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/inbox/internal/ledger"
)

// deliver processes and finishes one delivery.
func (c *loop) deliver(life delivery.Lifetime, d *delivery.Delivery) {
	c.finish(life.Work, d, c.process(life, d, nil))
}

// finish ends a delivery. If the event is decided, or no process asked for it, finish acknowledges
// the message. Otherwise finish gives the message back to the broker. An exception is an event of
// an ordered handler that could not be held: if there is room, its delivery stays in memory and has
// not ended. finish counts a delivery and, if it has ended, starts the next one that waited for it.
func (c *loop) finish(ctx context.Context, d *delivery.Delivery, r delivery.Result) {
	if r.Outcome == "" { // another worker may already have the delivery
		return
	}
	task := d.Task // after the call of later, another worker may have the delivery
	switch {
	case r.Outcome != delivery.Released:
		d.Source.Ack(ctx, d)
	//guard:an-ordered-reader-gets-beyond-what-it-cannot-hold false
	case r.Err != nil && c.isOrdered() && c.later(d, r.Unheld):
		c.signals.Ended(ctx, r.Outcome, task)
		return
	case r.Err != nil:
		d.Source.Delay(ctx, d, r.Err)
	default:
		d.Source.HandBack(ctx, d)
	}
	if r.Held != nil {
		c.keys.NoteHeld(c.blocks(r.As, *r.Held), *r.Held)
		d.Source.Held(*r.Held)
		c.holds.moved(ctx, r.As.Task, "new", r.Outcome, *r.Held)
	}
	c.signals.Ended(ctx, r.Outcome, task)
	if next := c.flights.End(d); next != nil {
		c.lanes.Put(next)
	}
}

// process processes a delivery and returns the result. If the parameter ahead is not nil, it may
// contain a transaction that was begun for this delivery. process stores the next delivery and its
// transaction in ahead.
func (c *loop) process(life delivery.Lifetime, d *delivery.Delivery, ahead *ledger.Ahead) delivery.Result {
	d.Start = time.Now()
	known := c.keys.Version(c.keyOf(d)) // read this before IsOver: see Keys.Free
	h, aside := c.aside(d)
	switch {
	case d.IsOver(): // the next term reads the event again
		return delivery.HandedBack
	//guard:what-could-not-be-held-is-held-and-does-not-run false
	case d.Unheld != nil:
		return c.holds.hold(life, d.Unheld.As, d.Unheld.H)
	case aside && c.external != nil && c.isOrdered(): // the holder stores this delivery after the deliveries that the holder already has
		return c.holds.holdWithOthers(d, h)
	case aside:
		return c.holds.hold(life, d, h)
	case !c.takes().Takes(d.Event):
		return c.holds.leaveToOthers(life, d)
	case c.external != nil:
		return c.holds.holdWithOthers(d, delivery.Holding{After: delivery.AtOnce})
	case c.keys.IsHeld(c.keyOf(d)):
		return c.holds.waitBehind(d)
	default:
		return c.decide(life, d, ahead, known)
	}
}

// decide runs the handler for a delivery and returns the result. The parameter known is the version
// of the delivery's key, which the caller read earlier.
func (c *loop) decide(life delivery.Lifetime, d *delivery.Delivery, ahead *ledger.Ahead, known uint64) delivery.Result {
	//guard:ack-after-commit do d.Source.Ack(life.Work, d); @
	//planted:ack-before-commit do d.Source.Ack(life.Work, d); @
	err := c.persist(life, func() error { return c.apply(life, d, ahead) })
	var attempt *delivery.AttemptError
	switch {
	case errors.As(err, &attempt):
		c.signals.Report(life.Work, d.Task, attempt.Err)
		h := c.failed(d.Task, delivery.FailureOf(attempt.Err))
		//guard:workers-call-on-dead-at-the-same-time false
		if c.inbox.tells(h) { // OnDead may take long, so each worker calls it for its own events
			if ahead != nil {
				ahead.Opened.Drop(life.Work)
				ahead.Opened = nil
			}
			return c.holds.hold(life, d, h)
		}
		return c.holds.holdWithOthers(d, h)
	case err == nil:
		c.keys.Free(c.keyOf(d), known)
		c.gate.Succeeded(d.Key)
		return delivery.Result{Outcome: delivery.Done}
	case errors.Is(err, delivery.ErrDuplicate):
		//guard:a-delivery-knows-its-own-commit remove
		if r, own := c.holds.own(life, d); own {
			return r
		}
		c.keys.Doubt(c.keyOf(d))
		//guard:a-duplicate-that-the-handler-committed-is-held remove
		if r, held := c.holds.holdCommitted(life, d); held {
			return r
		}
		return delivery.Result{Outcome: delivery.Duplicate}
	case errors.Is(err, delivery.ErrConflict):
		c.keys.Doubt(c.keyOf(d))
		return c.holds.hold(life, delivery.Conflicting(d), delivery.AsConflict)
	case errors.Is(err, delivery.ErrBlocked):
		c.keys.Hold(delivery.Bounded(d.Event.Key), time.Time{})
		return c.holds.holdBehind(d)
	case life.Ends(err):
		return delivery.HandedBack // this does not count as an attempt, because the process stops
	default:
		c.signals.Report(life.Work, d.Task, err)
		return c.holds.hold(life, d, c.failed(d.Task, delivery.FailureOf(err)))
	}
}

// aside reports whether a delivery must be held instead of handled at once, and how. If an event
// was delivered so often that it may have ended processes, it is held as solitary, and
// [claims.Runner] runs it alone, now or after a replay.
func (c *loop) aside(d *delivery.Delivery) (h delivery.Holding, aside bool) {
	suspect := d.Bare || d.IsSuspect() // the event may have ended the processes, or may only have been in them when they ended
	switch {
	case d.Fault != nil:
		return delivery.Holding{Failure: d.Fault, Raw: d.Fault.Class == delivery.ClassUndecodable}, true
	case d.Place.Republished && c.isOrdered():
		h = delivery.AsLate
	case c.isTooOld(d):
		h = delivery.TooOld(d.Event.LoggedAt, c.window.Keep)
	case suspect:
		h = delivery.Holding{After: delivery.AtOnce}
	default:
		return h, false
	}
	//guard:a-suspect-stays-one-when-it-is-replayed false
	h.Solitary = suspect
	return h, true
}

// isTooOld reports whether the event may have had an inbox row that has expired. An event that was
// in the stream before the handler existed has no row until it is decided.
func (c *loop) isTooOld(d *delivery.Delivery) bool {
	//guard:age-gate false
	return !d.Place.Ageless && c.isOld(d)
}

// isOld reports whether the event is older than the inbox rows of this handler.
func (c *loop) isOld(d *delivery.Delivery) bool {
	return d.Since().Before(c.inbox.node.TrustsFrom(c.window))
}

// maxRounds is how often one transaction is run in a row if it conflicts with another transaction,
// if its connection breaks, or if its commit is not answered. It does not limit runs in an outage.
const maxRounds = 10

// persist runs one transaction. If it conflicts with another transaction, or if its connection
// breaks, persist runs it at most maxRounds times in all. In an outage, persist runs it again until
// the outage ends or the process stops. See delivery.IsShort for a server that lacks resources.
func (c *loop) persist(life delivery.Lifetime, apply func() error) error {
	return c.persistClaimed(life, time.Time{}, apply)
}

// persistClaimed is persist for a transaction that runs claimed events. It begins no further round
// if the claim could end before the round: another process would take that for a crash, and run the
// event alone. The parameter ends is the end of the claim; the zero time means that there is none.
func (c *loop) persistClaimed(life delivery.Lifetime, ends time.Time, apply func() error) error {
	rounds, failures := 0, 0
	for {
		err := apply()
		switch {
		//guard:no-worker-waits-for-resources false
		case delivery.IsShort(err) && failures+1 >= delivery.ShortRounds:
			return err
		case delivery.IsOutage(err) && !life.IsStopping():
			failures++
			c.inbox.outage(life, c.log, err, failures)
		//guard:rounds-end-before-the-claim 4 true
		case delivery.IsContention(err) && !life.IsOver() && rounds+1 < maxRounds && (ends.IsZero() || c.canRunUntil(ends)):
			rounds++
		default:
			return err
		}
	}
}

// canRunUntil reports whether a handler that begins now has returned or is abandoned at the given
// time.
func (c *loop) canRunUntil(ends time.Time) bool { return time.Until(ends) >= c.sub.Timeout+c.grace() }

// apply runs one transaction: it inserts the inbox row, runs the handler, and commits or rolls
// back. If there is a next delivery, the last round trip also begins its transaction. apply returns
// a failed attempt as a delivery.AttemptError.
func (c *loop) apply(life delivery.Lifetime, d *delivery.Delivery, ahead *ledger.Ahead) error {
	if !c.inbox.alone.TryRLock() {
		ahead.Drop(life.Work) // an open transaction must not wait for an event that runs alone
		c.inbox.alone.RLock()
	}
	defer c.inbox.alone.RUnlock()
	tx, tag, err := ahead.Take()
	if tx == nil {
		tx, tag, err = c.ledger.Decide(life.Work, c.decision(d))
	}
	if tx == nil {
		return err
	}
	//guard:insert-before-handler false
	//planted:inbox-insert-ignored false
	if err == nil && tag.RowsAffected() == 0 {
		return c.ledger.End(life.Work, tx, c.ledger.Undecided(life.Work, tx, d, c.keyOf(d)))
	}
	if tx.ID != "" {
		d.Began = tx.ID
		defer forget(&d.Began, tx)
	}
	if err == nil {
		err = c.call(life.Work, tx, d.Task)
	}
	switch {
	case err == nil:
		err = c.commit(life, tx, ahead)
		if delivery.InDoubt(err) {
			d.Doubts = append(d.Doubts, delivery.Doubt{ID: tx.ID})
		}
		return unlessEnded(&d.Began, nil, err)
	case !ledger.IsAttempt(life.Take, tx, err):
		return c.ledger.End(life.Work, tx, err)
	}
	return c.leave(life, tx, err, ahead)
}

// decision returns the statement that decides a delivery.
func (c *loop) decision(d *delivery.Delivery) *ledger.Statement {
	key := c.keyOf(d)
	_, maybe := c.keys.Has(key)
	return c.ledger.Decision(d, key, maybe)
}

// commit commits. If another delivery waits, the same round trip begins its transaction.
func (c *loop) commit(life delivery.Lifetime, tx *ledger.Tx, ahead *ledger.Ahead) error {
	following, err := c.ledger.Commit(life.Work, tx, c.peek(life.Take, ahead))
	if following != nil {
		ahead.Opened = following
	}
	return err
}

// unlessEnded clears the id of a transaction that the inbox committed, or may have committed, and
// returns err. If the commit was not answered, unlessEnded adds the id to *doubts. If a handler
// itself ended the transaction, unlessEnded keeps the id.
func unlessEnded(began *string, doubts *[]string, err error) error {
	if delivery.InDoubt(err) && doubts != nil {
		*doubts = append(*doubts, *began)
	}
	if !delivery.IsEnded(err) {
		*began = ""
	}
	return err
}

// leave rolls back a failed attempt. The same round trip begins a waiting delivery's transaction.
func (c *loop) leave(life delivery.Lifetime, tx *ledger.Tx, failed error, ahead *ledger.Ahead) error {
	if following := c.ledger.Leave(life.Work, tx, c.peek(life.Take, ahead)); following != nil {
		ahead.Opened = following
	}
	return &delivery.AttemptError{Err: failed}
}

// mostAhead is the largest number of deliveries that a worker decides in a row while a claim
// waits for a worker.
const mostAhead = 8

// peek returns the statement that decides this worker's next delivery. It returns nil if no
// delivery waits, or if that delivery cannot be decided at once.
func (c *loop) peek(ctx context.Context, ahead *ledger.Ahead) *ledger.Statement {
	if ahead == nil || ctx.Err() != nil || !c.gate.IsOpen() || c.retries.queue.Waiting() > 0 && ahead.Run() >= mostAhead {
		return nil
	}
	d := ahead.Peek()
	if d == nil || !c.isStraight(d) || d.IsOver() || c.keys.IsHeld(c.keyOf(d)) {
		return nil
	}
	return c.decision(d)
}

// call runs the handler in another goroutine. So a handler that calls runtime.Goexit does not end
// the worker, and a handler that never returns does not block the worker. A panic becomes an error
// with its stack.
func (c *loop) call(ctx context.Context, tx *ledger.Tx, t delivery.Task) error {
	return c.signals.Observe(ctx, t, func(ctx context.Context) error {
		return c.invoker.RunNoting(ctx, tx, func(ctx context.Context, tx pgx.Tx) error { return c.handler.apply.Handle(ctx, tx, t.Event) },
			func(text string) error { return c.ledger.NoteResult(ctx, tx, t.Key, text) })
	})
}

// isStraight reports whether a delivery can be handled directly, as far as that is known
// without the database.
func (c *loop) isStraight(d *delivery.Delivery) bool {
	_, aside := c.aside(d)
	return !aside && c.takes().Takes(d.Event)
}

// takes returns the selection of events that this process handles.
func (h *handler) takes() delivery.Selection {
	return delivery.Selection{Types: h.sub.Types, Subjects: h.sub.Subjects}
}

// isKeyed reports whether a delivery must wait for earlier deliveries of its key.
func (h *handler) isKeyed(d *delivery.Delivery) bool { return h.isOrdered() && d.Event.Key != "" }

// keyOf returns the key for which a delivery must wait, or "" if there is none.
func (h *handler) keyOf(d *delivery.Delivery) string {
	if !h.isKeyed(d) {
		return ""
	}
	return delivery.Bounded(d.Event.Key)
}
