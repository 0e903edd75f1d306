package inbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/internal/guard"
)

// deliver brings one message to its end. ctx ends when the process is to stop, work when it
// may not wait any longer.
func (c *loop) deliver(ctx, work context.Context, d *delivery.Delivery) {
	c.finish(work, d, c.process(ctx, work, d, nil))
}

// finish ends a delivery: it is acknowledged, after its effect is committed, or was before,
// or the event is held; or returned to the broker. It is counted, and another of its
// identity that waited for it goes on.
func (c *loop) finish(ctx context.Context, d *delivery.Delivery, r delivery.Result) {
	switch {
	case r.Outcome == "":
		return
	case r.Outcome != delivery.Released:
		d.Source.Ack(ctx, d)
	case r.Err != nil:
		d.Source.Delay(ctx, d, r.Err)
	default:
		d.Source.HandBack(ctx, d)
	}
	if r.Held != nil {
		c.keys.held(c.blocks(r.As, *r.Held), *r.Held)
		d.Source.Held(*r.Held)
		c.moved(ctx, r.As.Task, "new", r.Outcome, *r.Held)
	}
	c.metrics.ended(ctx, r.Outcome, d.Event.LoggedAt)
	if next := c.flights.End(d); next != nil {
		c.lanes.Put(next)
	}
}

// process says how a delivery ends. ahead, if not nil, may have the delivery's
// transaction, and gets the next delivery with its own.
func (c *loop) process(ctx, work context.Context, d *delivery.Delivery, ahead *ahead) delivery.Result {
	known := c.keys.version(c.keyOf(d)) // before it is asked whether the term is over: see Keys.Free
	h, aside := c.aside(d)
	switch {
	case d.IsOver(): // it is read again
		return delivery.HandedBack
	case aside && c.external != nil && c.isOrdered(): // behind those that wait for the holder
		return c.holdWithOthers(d, h)
	case aside:
		return c.hold(ctx, work, d, h)
	case !c.takes(d.Event):
		return c.leaveToOthers(ctx, work, d)
	case c.external != nil:
		return c.holdWithOthers(d, delivery.Holding{After: delivery.AtOnce})
	case c.keys.isHeld(c.keyOf(d)):
		return c.waitBehind(d)
	default:
		return c.decide(ctx, work, d, ahead, known)
	}
}

// decide runs the handler for a delivery, and says what came of it. known is what was
// known of its key before.
func (c *loop) decide(ctx, work context.Context, d *delivery.Delivery, ahead *ahead, known uint64) delivery.Result {
	err := c.persist(ctx, work, func() error { return c.apply(ctx, work, d, ahead) })
	var attempt *failedError
	switch {
	case errors.As(err, &attempt):
		c.report(work, d.Task, attempt.err)
		return c.holdWithOthers(d, c.failed(1, c.sub.Attempts, delivery.FailureOf(attempt.err)))
	case err == nil:
		c.keys.free(c.keyOf(d), known)
		return delivery.Result{Outcome: delivery.Done}
	case errors.Is(err, delivery.ErrDuplicate):
		c.keys.doubt(c.keyOf(d))
		if r, held := c.holdCommitted(ctx, work, d); held {
			return r
		}
		return delivery.Result{Outcome: delivery.Duplicate}
	case errors.Is(err, delivery.ErrConflict):
		c.keys.doubt(c.keyOf(d))
		return c.hold(ctx, work, delivery.Conflicting(d), delivery.AsConflict)
	case errors.Is(err, delivery.ErrBlocked):
		c.keys.Hold(delivery.Bounded(d.Event.Key), time.Time{})
		return c.holdBehind(d)
	case work.Err() != nil || ctx.Err() != nil && delivery.IsOutage(err):
		return delivery.HandedBack // no attempt: the process stops
	default:
		c.report(work, d.Task, err)
		return c.hold(ctx, work, d, c.failed(1, c.sub.Attempts, delivery.FailureOf(err)))
	}
}

// holdWithOthers has the holder hold a delivery, and those that fly along with it, and
// finish them.
func (c *loop) holdWithOthers(d *delivery.Delivery, h delivery.Holding, along ...*delivery.Delivery) delivery.Result {
	c.owing.Add(1)
	c.inbox.holder.queue <- parcel{c, d, h, along} // it has room for whatever is in hand
	return delivery.Result{}
}

// leaveToOthers holds an event of a type that another process of this handler
// asked for, which will run it from there. One that nobody asked for, which can
// only be where type and subject differ, is nobody's.
func (c *loop) leaveToOthers(ctx, work context.Context, d *delivery.Delivery) delivery.Result {
	asked := true
	err := c.persist(ctx, work, func() (err error) {
		asked, err = c.isAskedFor(work, d.Event)
		return err
	})
	switch {
	case err != nil:
		return delivery.HandedBack
	case asked && c.external != nil:
		return c.holdWithOthers(d, delivery.Holding{After: delivery.AtOnce})
	case asked:
		return c.hold(ctx, work, d, delivery.Holding{After: delivery.AtOnce})
	default:
		return delivery.Result{Outcome: delivery.Skipped}
	}
}

// isAskedFor reports whether any process of this handler asked for events of this
// kind, as far as is recorded.
func (c *loop) isAskedFor(ctx context.Context, ev postroom.Event) (bool, error) {
	if len(c.sub.Types) == 0 {
		return true, nil
	}
	types, err := c.inbox.db.AskedFor(ctx, c.sub.Name)
	return err == nil && (types == nil || slices.Contains(types, ev.Type)), delivery.Written(err)
}

// hold stores an event that is not handled now.
func (c *loop) hold(ctx, work context.Context, d *delivery.Delivery, h delivery.Holding) delivery.Result {
	became := delivery.FateDecided
	write := func() error {
		fates, err := c.inbox.db.Store(work, c.owe(d, h))
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
		return delivery.HandedBack
	case err != nil:
		c.log.ErrorContext(work, "event could not be held and stays in the stream", "event_id", d.Event.ID, "dedupe_key", d.Key, "error", err)
		return delivery.Result{Outcome: delivery.Released, Err: err}
	default:
		return c.fated(ctx, work, d, h, became)
	}
}

// fated says how a delivery ends that was to be held.
func (c *loop) fated(ctx, work context.Context, d *delivery.Delivery, h delivery.Holding, became delivery.Fate) delivery.Result {
	switch became {
	case delivery.FateHeld:
		return delivery.AsHeld(d, h)
	case delivery.FateFree:
		return c.again(d)
	case delivery.FateLate:
		return c.hold(ctx, work, d, delivery.AsLate)
	case delivery.FateStale:
		return delivery.HandedBack
	case delivery.FateDecided:
	}
	c.keys.doubt(c.keyOf(d))
	if r, held := c.holdCommitted(ctx, work, d); held {
		return r
	}
	same := true
	err := c.persist(ctx, work, func() (err error) {
		same, err = c.inbox.db.Same(work, c.sub.Name, d.Task)
		return delivery.Written(err)
	})
	switch {
	case err != nil:
		return delivery.HandedBack
	case same:
		return delivery.Result{Outcome: delivery.Duplicate}
	}
	return c.hold(ctx, work, delivery.Conflicting(d), delivery.AsConflict)
}

// holdCommitted holds a delivery that is decided only because a handler committed the
// ledger row itself, and did not come to its end. Nothing is known of what it did; it
// must not count as done. It reports whether that was so, and how the delivery ends.
func (c *loop) holdCommitted(ctx, work context.Context, d *delivery.Delivery) (delivery.Result, bool) {
	if d.Began == "" {
		return delivery.Result{}, false
	}
	committed := false
	err := c.persist(ctx, work, func() (err error) {
		committed, err = c.inbox.db.WasCommitted(work, d.Began)
		return delivery.Written(err)
	})
	if err != nil {
		c.log.ErrorContext(work, "a handler may have committed its transaction itself, and that could not be looked up", "event_id", d.Event.ID, "dedupe_key", d.Key, "error", err)
		return delivery.HandedBack, true
	}
	d.Began = ""
	if !committed {
		return delivery.Result{}, false
	}
	f := delivery.FailureOf(&delivery.EndedError{Committed: true})
	return c.hold(ctx, work, d, delivery.Holding{Failure: &f, Attempts: 1, Decided: true}), true
}

// moved tells of an event that is held now, or still: the log, the counter of the
// dead, and the runner, which is to be there when it is due.
func (c *loop) moved(ctx context.Context, t delivery.Task, from string, to delivery.Outcome, h delivery.Holding) {
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

// holdBehind holds a delivery behind its key, and with it those of the key that wait
// for it. Where nothing of the key is held any more, they go on. Those that were read in
// another term are not held with it: what may not be held any more of one term may of
// the other, and they would go on without the order that flying behind it gives them.
func (c *loop) holdBehind(d *delivery.Delivery) delivery.Result {
	bytes := len(d.Event.Data)
	along := c.flights.Along(d, holdAtOnce-1, func(o *delivery.Delivery) bool {
		if bytes += len(o.Event.Data); bytes > holdBytes {
			return false
		}
		return o.Source == d.Source && !o.IsOver() && c.isStraight(o)
	})
	return c.holdWithOthers(d, delivery.BehindKey, along...)
}

// finishTogether ends a delivery that was to be held, and with those that flew
// along. They are of one key and one term, so that all were free to go on, or none: but
// for those at the end whose term ended meanwhile.
func (c *loop) finishTogether(ctx, work context.Context, p parcel, became []delivery.Fate) {
	if became[0] == delivery.FateFree {
		c.flights.Back(p.d, p.along)
		c.again(p.d)
		return
	}
	for i, d := range p.along {
		c.finish(work, d, c.fated(ctx, work, d, p.h, became[1+i]))
	}
	c.finish(work, p.d, c.fated(ctx, work, p.d, p.h, became[0])) // last: the next of its key follows it
}

// again has a delivery go on that was to wait behind its key, of which nothing is
// held any more.
func (c *loop) again(d *delivery.Delivery) delivery.Result {
	c.keys.Doubt(delivery.Bounded(d.Event.Key))
	c.lanes.Put(d)
	return delivery.Result{}
}

// waitBehind has a delivery wait for its key: here, where that is not for long, or
// in held.
func (c *loop) waitBehind(d *delivery.Delivery) delivery.Result {
	if c.keys.Park(d, c.unpark) {
		return delivery.Result{}
	}
	return c.holdBehind(d)
}

// unpark has the delivery go on that waits here for a key, if one does.
func (c *loop) unpark(key string) {
	if d := c.keys.Unpark(key); d != nil {
		c.lanes.Put(d)
	}
}

// aside returns how a delivery is held that must not take the straight path, and
// whether it is one.
func (c *loop) aside(d *delivery.Delivery) (delivery.Holding, bool) {
	switch {
	case d.Fault != nil:
		return delivery.Holding{Failure: d.Fault, Raw: d.Fault.Class == delivery.ClassUndecodable}, true
	case d.Place.Rewound && c.isOrdered():
		return delivery.AsLate, true
	case c.isTooOld(d):
		return delivery.Holding{Failure: &delivery.Failure{Class: delivery.ClassTooOld, Permanent: true, Text: fmt.Sprintf(
			"logged at %s: the ledger, which keeps rows for %s, cannot tell whether it was decided",
			d.Event.LoggedAt.UTC().Format(time.RFC3339), c.inbox.cfg.Ledger)}}, true
	case d.Place.Delivered > suspectAfter || d.Source.Suspects():
		// It may be what ends the processes that take it, or it only stood beside that.
		return delivery.Holding{After: delivery.AtOnce, Solitary: true}, true
	}
	return delivery.Holding{}, false
}

// suspectAfter is how often an event is delivered before it is run alone. The
// broker counts deliveries, not attempts, and those of a process killer's
// neighbours too.
const suspectAfter = 3

// isTooOld reports whether a ledger row of the event may have expired. What was
// in the stream when the handler was new never had one.
func (c *loop) isTooOld(d *delivery.Delivery) bool {
	return !d.Place.Ageless && d.Age(c.inbox.clock.now()) > c.inbox.cfg.AgeGate
}
