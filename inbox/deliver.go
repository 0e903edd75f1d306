package inbox

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/internal/guard"
)

// deliver brings one message to its end: acknowledged, after its effect is
// committed, or was before, or the event is held; or returned to the broker, where
// the process stops. ctx ends when it is to stop, work when it may not wait any
// longer. ahead, if not nil, may have the delivery's transaction, and gets the next
// delivery with its own.
func (c *consumer) deliver(ctx, work context.Context, d *delivery.Delivery, ahead *ahead) {
	known := c.known(d) // before it is asked whether the term is over: see unblocked
	h, aside := c.aside(d)
	switch {
	case d.IsOver(): // it is read again
		c.handBack(work, d)
	case aside && c.external != nil && c.isOrdered(): // behind those that wait for the holder
		c.holdWithOthers(d, h)
	case aside:
		c.hold(ctx, work, d, h)
	case !c.takes(d.Event):
		c.leaveToOthers(ctx, work, d)
	case c.external != nil:
		c.holdWithOthers(d, delivery.Holding{After: delivery.AtOnce})
	case c.isBlocked(d):
		c.waitBehind(d)
	default:
		c.decide(ctx, work, d, ahead, known)
	}
}

// decide runs the handler for a delivery, and answers for what came of it. known is what
// was known of its key before.
func (c *consumer) decide(ctx, work context.Context, d *delivery.Delivery, ahead *ahead, known uint64) {
	err := c.persist(ctx, work, func() error { return c.apply(ctx, work, d, ahead) })
	var attempt *failedError
	switch {
	case errors.As(err, &attempt):
		c.report(work, d.Task, attempt.err)
		c.holdWithOthers(d, c.failed(1, c.sub.Attempts, delivery.FailureOf(attempt.err)))
	case err == nil && ahead != nil && ahead.opened != nil:
		c.unblocked(d, known)
		c.acks <- d // it has room for whatever is in hand
	case err == nil:
		c.unblocked(d, known)
		c.answer(work, d, delivery.Done)
	case errors.Is(err, delivery.ErrDuplicate):
		c.doubt(d)
		if !c.holdCommitted(ctx, work, d) {
			c.answer(work, d, delivery.Duplicate)
		}
	case errors.Is(err, delivery.ErrConflict):
		c.doubt(d)
		c.hold(ctx, work, delivery.Conflicting(d), delivery.AsConflict)
	case errors.Is(err, errBlocked):
		c.blocked.Hold(delivery.Bounded(d.Event.Key), time.Time{})
		c.holdBehind(d)
	case work.Err() != nil || ctx.Err() != nil && delivery.IsOutage(err):
		c.handBack(work, d) // no attempt: the process stops
	default:
		c.report(work, d.Task, err)
		c.hold(ctx, work, d, c.failed(1, c.sub.Attempts, delivery.FailureOf(err)))
	}
}

// holdWithOthers has the holder hold a delivery, and those that fly along with it.
func (c *consumer) holdWithOthers(d *delivery.Delivery, h delivery.Holding, along ...*delivery.Delivery) {
	c.owing.Add(1)
	c.inbox.holder.queue <- parcel{c, d, h, along} // it has room for whatever is in hand
}

// takes reports whether this process handles events of this kind.
func (c *consumer) takes(ev postroom.Event) bool {
	if len(c.sub.Types) > 0 {
		return slices.Contains(c.sub.Types, ev.Type)
	}
	return c.subjects.match(ev.Subject)
}

// leaveToOthers holds an event of a type that another process of this handler
// asked for, which will run it from there. One that nobody asked for, which can
// only be where type and subject differ, is nobody's.
func (c *consumer) leaveToOthers(ctx, work context.Context, d *delivery.Delivery) {
	asked := true
	err := c.persist(ctx, work, func() (err error) {
		asked, err = c.isAskedFor(work, d.Event)
		return err
	})
	switch {
	case err != nil:
		c.handBack(work, d)
	case asked && c.external != nil:
		c.holdWithOthers(d, delivery.Holding{After: delivery.AtOnce})
	case asked:
		c.hold(ctx, work, d, delivery.Holding{After: delivery.AtOnce})
	default:
		c.answer(work, d, delivery.Skipped)
	}
}

// isAskedFor reports whether any process of this handler asked for events of this
// kind, as far as is recorded.
func (c *consumer) isAskedFor(ctx context.Context, ev postroom.Event) (bool, error) {
	if len(c.sub.Types) == 0 {
		return true, nil
	}
	var types []string
	err := c.inbox.pool.QueryRow(ctx, c.inbox.sql.types, c.sub.Name).Scan(&types)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return true, nil // somebody deleted the row: nothing is known, and so nothing is lost
	case err != nil:
		return false, delivery.Written(err)
	}
	return types == nil || slices.Contains(types, ev.Type), nil
}

// hold stores an event that is not handled now, and then acknowledges it.
func (c *consumer) hold(ctx, work context.Context, d *delivery.Delivery, h delivery.Holding) {
	became := delivery.FateDecided
	write := func() error {
		fates, err := c.inbox.store(work, owed{c, d, h})
		if err != nil {
			return delivery.Written(err)
		}
		became = fates[0]
		return nil
	}
	err := c.persist(ctx, work, write)
	if delivery.IsAboutTheRow(err) && !h.Raw {
		// No column takes it, though it decoded: keep it as it came.
		d, h = delivery.Unreadable(d), delivery.Holding{Failure: h.Failure, Raw: true}
		if h.Failure == nil {
			h.Failure = &delivery.Failure{Class: delivery.ClassUndecodable, Text: guard.Clean(err.Error(), guard.MaxText)}
		}
		err = c.persist(ctx, work, write)
	}
	switch {
	case err != nil && (ctx.Err() != nil || work.Err() != nil):
		c.handBack(work, d)
	case err != nil:
		c.log.ErrorContext(work, "event could not be held and stays in the stream", "event_id", d.Event.ID, "dedupe_key", d.Key, "error", err)
		c.later(work, d, err)
	default:
		c.fated(ctx, work, d, h, became)
	}
}

// fated goes on with a delivery that was to be held.
func (c *consumer) fated(ctx, work context.Context, d *delivery.Delivery, h delivery.Holding, became delivery.Fate) {
	switch became {
	case delivery.FateHeld:
		c.held(work, d, h)
	case delivery.FateFree:
		c.again(d)
	case delivery.FateLate:
		c.hold(ctx, work, d, delivery.AsLate)
	case delivery.FateStale:
		c.handBack(work, d)
	case delivery.FateDecided:
		c.doubt(d)
		if c.holdCommitted(ctx, work, d) {
			return
		}
		same := true
		err := c.persist(ctx, work, func() (err error) {
			same, err = c.same(work, c.inbox.pool, d.Task)
			return delivery.Written(err)
		})
		switch {
		case err != nil:
			c.handBack(work, d)
		case same:
			c.answer(work, d, delivery.Duplicate)
		default:
			c.hold(ctx, work, delivery.Conflicting(d), delivery.AsConflict)
		}
	}
}

// holdCommitted holds a delivery that is decided only because a handler committed the
// ledger row itself, and did not come to its end. Nothing is known of what it did; it
// must not count as done. It reports whether it held the delivery, or gave it back.
func (c *consumer) holdCommitted(ctx, work context.Context, d *delivery.Delivery) bool {
	if d.Began == "" {
		return false
	}
	committed := false
	err := c.persist(ctx, work, func() (err error) {
		committed, err = c.inbox.wasCommitted(work, d.Began)
		return delivery.Written(err)
	})
	if err != nil {
		c.log.ErrorContext(work, "a handler may have committed its transaction itself, and that could not be looked up", "event_id", d.Event.ID, "dedupe_key", d.Key, "error", err)
		c.handBack(work, d)
		return true
	}
	d.Began = ""
	if committed {
		f := delivery.FailureOf(&delivery.EndedError{Committed: true})
		c.hold(ctx, work, d, delivery.Holding{Failure: &f, Attempts: 1, Decided: true})
	}
	return committed
}

// held acknowledges an event that was stored in held, and tells of it.
func (c *consumer) held(ctx context.Context, d *delivery.Delivery, h delivery.Holding) {
	c.acknowledged(ctx, d)
	if c.blocks(d, h) != "" {
		var again time.Time
		if h.After != nil && !h.Behind {
			again = time.Now().Add(*h.After)
		}
		c.blocked.Hold(delivery.Bounded(d.Event.Key), again)
	}
	d.Source.Held(h)
	o := delivery.Held
	switch {
	case h.Failure != nil && h.Failure.Class == delivery.ClassConflict:
		o = delivery.Conflict
	case h.After == nil:
		o = delivery.Dead
	}
	c.moved(ctx, d.Task, "new", o, h)
	c.ended(ctx, d, o)
}

// answer acknowledges a delivery.
func (c *consumer) answer(ctx context.Context, d *delivery.Delivery, o delivery.Outcome) {
	c.acknowledged(ctx, d)
	c.ended(ctx, d, o)
}

// acknowledged tells whoever delivered d that it is decided.
func (c *consumer) acknowledged(ctx context.Context, d *delivery.Delivery) { d.Source.Ack(ctx, d) }

// handBack returns a message that was not decided, so that another process gets
// it at once.
func (c *consumer) handBack(ctx context.Context, d *delivery.Delivery) {
	d.Source.HandBack(ctx, d)
	c.ended(ctx, d, delivery.Released)
}

// later returns a message that could not even be held, for a while.
func (c *consumer) later(ctx context.Context, d *delivery.Delivery, err error) {
	d.Source.Delay(ctx, d, err)
	c.ended(ctx, d, delivery.Released)
}

// ended counts a delivery. Another of its identity that waited for it goes on.
func (c *consumer) ended(ctx context.Context, d *delivery.Delivery, o delivery.Outcome) {
	c.metrics.ended(ctx, o, d.Event.LoggedAt)
	if next := c.flights.End(d); next != nil {
		c.lanes.Put(next)
	}
}

// report tells of a failed attempt what its record in held does not show at once.
func (c *consumer) report(ctx context.Context, t delivery.Task, err error) {
	var panicked *guard.PanicError
	if errors.As(err, &panicked) {
		c.log.ErrorContext(ctx, "handler panicked", "event_id", t.Event.ID, "type", t.Event.Type, "dedupe_key", t.Key,
			"error", err, "stack", panicked.Stack)
	}
}

// moved tells of an event that is held now, or still: the log, the counter of the
// dead, and the runner, which is to be there when it is due.
func (c *consumer) moved(ctx context.Context, t delivery.Task, from string, to delivery.Outcome, h delivery.Holding) {
	log, say := c.log.WarnContext, "event not handled, will be tried again"
	args := []any{
		"event_id", t.Event.ID, "type", t.Event.Type, "dedupe_key", t.Key, "correlation_id", t.Event.CorrelationID,
		"attempt", h.Attempts, "from", from, "to", string(to),
	}
	if h.Failure != nil {
		args = append(args, "error_class", h.Failure.Class, "error", h.Failure.Text)
	}
	switch {
	case h.After == nil:
		log, say = c.log.ErrorContext, "event is dead, an operator has to decide"
		c.metrics.died(ctx, h.Failure.Class)
	case h.Failure == nil:
		log, say = c.log.DebugContext, "event held, to be run from there"
		c.inbox.runner.wake(0)
	default:
		args = append(args, "retry_in", *h.After)
		c.inbox.runner.wake(*h.After)
	}
	log(ctx, say, args...)
}
