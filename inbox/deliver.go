package inbox

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/guard"
)

// deliver brings one message to its end: acknowledged, after its effect is
// committed, or was before, or the event is held; or returned to the broker, where
// the process stops. ctx ends when it is to stop, work when it may not wait any
// longer. ahead, if not nil, may have the delivery's transaction, and gets the next
// delivery with its own.
func (c *consumer) deliver(ctx, work context.Context, d *delivery, ahead *ahead) {
	known := c.known(d) // before it is asked whether the term is over: see unblocked
	h, aside := c.aside(d)
	switch {
	case d.term.isOver(): // it is read again
		c.handBack(work, d)
	case aside && c.external != nil && c.isOrdered(): // behind those that wait for the holder
		c.holdWithOthers(d, h)
	case aside:
		c.hold(ctx, work, d, h)
	case !c.takes(d.ev):
		c.leaveToOthers(ctx, work, d)
	case c.external != nil:
		c.holdWithOthers(d, holding{after: now})
	case c.isBlocked(d):
		c.waitBehind(d)
	default:
		c.decide(ctx, work, d, ahead, known)
	}
}

// decide runs the handler for a delivery, and answers for what came of it. known is what
// was known of its key before.
func (c *consumer) decide(ctx, work context.Context, d *delivery, ahead *ahead, known uint64) {
	err := c.persist(ctx, work, func() error { return c.apply(ctx, work, d, ahead) })
	var attempt *failedError
	switch {
	case errors.As(err, &attempt):
		c.report(work, d.task, attempt.err)
		c.holdWithOthers(d, c.failed(1, c.sub.Attempts, failureOf(attempt.err)))
	case err == nil && ahead != nil && ahead.opened != nil:
		c.unblocked(d, known)
		c.acks <- d // it has room for whatever is in hand
	case err == nil:
		c.unblocked(d, known)
		c.answer(work, d, done)
	case errors.Is(err, errDuplicate):
		c.doubt(d)
		if !c.holdCommitted(ctx, work, d) {
			c.answer(work, d, duplicate)
		}
	case errors.Is(err, errConflict):
		c.doubt(d)
		c.hold(ctx, work, conflicting(d), conflictHolding)
	case errors.Is(err, errBlocked):
		c.blocked.add(bounded(d.ev.Key), time.Time{})
		c.holdBehind(d)
	case work.Err() != nil || ctx.Err() != nil && isOutage(err):
		c.handBack(work, d) // no attempt: the process stops
	default:
		c.report(work, d.task, err)
		c.hold(ctx, work, d, c.failed(1, c.sub.Attempts, failureOf(err)))
	}
}

// holdWithOthers has the holder hold a delivery, and those that fly along with it.
func (c *consumer) holdWithOthers(d *delivery, h holding, along ...*delivery) {
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
func (c *consumer) leaveToOthers(ctx, work context.Context, d *delivery) {
	asked := true
	err := c.persist(ctx, work, func() (err error) {
		asked, err = c.isAskedFor(work, d.ev)
		return err
	})
	switch {
	case err != nil:
		c.handBack(work, d)
	case asked && c.external != nil:
		c.holdWithOthers(d, holding{after: now})
	case asked:
		c.hold(ctx, work, d, holding{after: now})
	default:
		c.answer(work, d, skipped)
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
		return false, written(err)
	}
	return types == nil || slices.Contains(types, ev.Type), nil
}

// hold stores an event that is not handled now, and then acknowledges it.
func (c *consumer) hold(ctx, work context.Context, d *delivery, h holding) {
	became := fateDecided
	write := func() error {
		fates, err := c.inbox.store(work, owed{c, d, h})
		if err != nil {
			return written(err)
		}
		became = fates[0]
		return nil
	}
	err := c.persist(ctx, work, write)
	if isAboutTheRow(err) && !h.raw {
		// No column takes it, though it decoded: keep it as it came.
		d, h = unreadable(d), holding{failure: h.failure, raw: true}
		if h.failure == nil {
			h.failure = &failure{class: classUndecodable, text: clean(err.Error(), maxFailureText)}
		}
		err = c.persist(ctx, work, write)
	}
	switch {
	case err != nil && (ctx.Err() != nil || work.Err() != nil):
		c.handBack(work, d)
	case err != nil:
		c.log.ErrorContext(work, "event could not be held and stays in the stream", "event_id", d.ev.ID, "dedupe_key", d.key, "error", err)
		c.later(work, d, err)
	default:
		c.fated(ctx, work, d, h, became)
	}
}

// fated goes on with a delivery that was to be held.
func (c *consumer) fated(ctx, work context.Context, d *delivery, h holding, became fate) {
	switch became {
	case fateHeld:
		c.held(work, d, h)
	case fateFree:
		c.again(d)
	case fateLate:
		c.hold(ctx, work, d, lateHolding)
	case fateStale:
		c.handBack(work, d)
	case fateDecided:
		c.doubt(d)
		if c.holdCommitted(ctx, work, d) {
			return
		}
		same := true
		err := c.persist(ctx, work, func() (err error) {
			same, err = c.same(work, c.inbox.pool, d.task)
			return written(err)
		})
		switch {
		case err != nil:
			c.handBack(work, d)
		case same:
			c.answer(work, d, duplicate)
		default:
			c.hold(ctx, work, conflicting(d), conflictHolding)
		}
	}
}

// holdCommitted holds a delivery that is decided only because a handler committed the
// ledger row itself, and did not come to its end. Nothing is known of what it did; it
// must not count as done. It reports whether it held the delivery, or gave it back.
func (c *consumer) holdCommitted(ctx, work context.Context, d *delivery) bool {
	if d.began == "" {
		return false
	}
	committed := false
	err := c.persist(ctx, work, func() (err error) {
		committed, err = c.inbox.wasCommitted(work, d.began)
		return written(err)
	})
	if err != nil {
		c.log.ErrorContext(work, "a handler may have committed its transaction itself, and that could not be looked up", "event_id", d.ev.ID, "dedupe_key", d.key, "error", err)
		c.handBack(work, d)
		return true
	}
	d.began = ""
	if committed {
		f := failureOf(&endedError{committed: true})
		c.hold(ctx, work, d, holding{failure: &f, attempts: 1, decided: true})
	}
	return committed
}

// unreadable is a delivery of which only its bytes are kept.
func unreadable(d *delivery) *delivery {
	bare := *d
	bare.ev = postroom.Event{ID: clean(d.ev.ID, maxKey), Subject: clean(d.ev.Subject, maxSubject), Data: d.msg.Data()}
	return &bare
}

// held acknowledges an event that was stored in held, and tells of it.
func (c *consumer) held(ctx context.Context, d *delivery, h holding) {
	c.acknowledged(ctx, d)
	if c.blocks(d, h) != "" {
		var again time.Time
		if h.after != nil && !h.behind {
			again = time.Now().Add(*h.after)
		}
		c.blocked.add(bounded(d.ev.Key), again)
	}
	d.term.held(h)
	o := held
	switch {
	case h.failure != nil && h.failure.class == classConflict:
		o = conflict
	case h.after == nil:
		o = dead
	}
	c.moved(ctx, d.task, "new", o, h)
	c.ended(ctx, d, o)
}

// answer acknowledges a delivery.
func (c *consumer) answer(ctx context.Context, d *delivery, o outcome) {
	c.acknowledged(ctx, d)
	c.ended(ctx, d, o)
}

// acknowledged tells whoever delivered d that it is decided.
func (c *consumer) acknowledged(ctx context.Context, d *delivery) {
	if d.term != nil {
		d.term.floor.decided(d.seq)
		return
	}
	c.settle(ctx, d.msg.Ack(), "ack")
}

// handBack returns a message that was not decided, so that another process gets
// it at once. A reader cannot return one: it ends, and what it read is read again.
func (c *consumer) handBack(ctx context.Context, d *delivery) {
	if d.term != nil {
		d.term.end(errHandedBack)
	} else {
		c.settle(ctx, d.msg.Nak(), "hand back")
	}
	c.ended(ctx, d, released)
}

var errHandedBack = errors.New("an event was handed back; reading begins again before it")

// later returns a message that could not even be held, for a while.
func (c *consumer) later(ctx context.Context, d *delivery, err error) {
	if d.term != nil {
		d.term.end(err)
	} else {
		c.settle(ctx, d.msg.NakWithDelay(laterWait), "nak")
	}
	c.ended(ctx, d, released)
}

// ended counts a delivery, and lets go of its message. Another of its identity
// that waited for it goes on.
func (c *consumer) ended(ctx context.Context, d *delivery, o outcome) {
	c.metrics.ended(ctx, o, d.ev.LoggedAt)
	c.hand.drop(d.msg)
	if next := c.flights.end(d); next != nil {
		c.enqueue(next)
	}
}

// settle reports an answer to the broker that could not be sent. No harm comes
// of it: the message is delivered again.
func (c *consumer) settle(ctx context.Context, err error, what string) {
	if err != nil && !errors.Is(err, jetstream.ErrMsgAlreadyAckd) {
		c.log.DebugContext(ctx, "answer to the broker not sent, the event will be delivered again", "answer", what, "error", err)
	}
}

// report tells of a failed attempt what its record in held does not show at once.
func (c *consumer) report(ctx context.Context, t task, err error) {
	var panicked *guard.PanicError
	if errors.As(err, &panicked) {
		c.log.ErrorContext(ctx, "handler panicked", "event_id", t.ev.ID, "type", t.ev.Type, "dedupe_key", t.key,
			"error", err, "stack", panicked.Stack)
	}
}

// moved tells of an event that is held now, or still: the log, the counter of the
// dead, and the runner, which is to be there when it is due.
func (c *consumer) moved(ctx context.Context, t task, from string, to outcome, h holding) {
	log, say := c.log.WarnContext, "event not handled, will be tried again"
	args := []any{
		"event_id", t.ev.ID, "type", t.ev.Type, "dedupe_key", t.key, "correlation_id", t.ev.CorrelationID,
		"attempt", h.attempts, "from", from, "to", string(to),
	}
	if h.failure != nil {
		args = append(args, "error_class", h.failure.class, "error", h.failure.text)
	}
	switch {
	case h.after == nil:
		log, say = c.log.ErrorContext, "event is dead, an operator has to decide"
		c.metrics.died(ctx, h.failure.class)
	case h.failure == nil:
		log, say = c.log.DebugContext, "event held, to be run from there"
		c.inbox.runner.wake(0)
	default:
		args = append(args, "retry_in", *h.after)
		c.inbox.runner.wake(*h.after)
	}
	log(ctx, say, args...)
}

// laterWait is for how long the broker keeps an event that could not even be held. It does
// not depend on the handler's schedule, which may end with hours: until then the event
// would take a place from others, and no operator would see it.
const laterWait = 30 * time.Second
