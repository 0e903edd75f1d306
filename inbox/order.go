package inbox

import (
	"context"
	"errors"
)

// Order says whether the events of a key take effect in their order, and what becomes
// of a key whose event is dead.
type Order int

const (
	// Unordered events are handled as they come, those of a key side by side.
	Unordered Order = iota

	// HoldKey handles the events of a key one after the other, in the order of the
	// stream. While one is tried again, later ones of its key wait in held, and they
	// go on waiting when it is dead, until an operator decides. Events of other keys,
	// and those without one, wait for nothing.
	HoldKey

	// SkipKey is as HoldKey, but later events of a key go on when one is dead.
	SkipKey
)

func (c *consumer) isOrdered() bool { return c.sub.Order != Unordered }

// isKeyed reports whether a delivery has to wait for others of its key.
func (c *consumer) isKeyed(d *delivery) bool { return c.isOrdered() && d.ev.Key != "" }

// blocks returns the key that an event blocks, or waits for, when it is held so; or
// nothing.
func (c *consumer) blocks(d *delivery, h holding) string {
	if !c.isKeyed(d) || h.raw || h.decided || h.after == nil && c.sub.Order == SkipKey {
		return ""
	}
	if h.failure != nil {
		switch h.failure.class {
		case classConflict, classLate, classUndecodable:
			return ""
		}
	}
	return bounded(d.ev.Key)
}

// errBlocked says that an earlier event of the key is held.
var errBlocked = errors.New("an earlier event of the key is held")

// isBlocked reports whether a delivery seems to have to wait behind its key.
func (c *consumer) isBlocked(d *delivery) bool {
	if !c.isKeyed(d) {
		return false
	}
	is, _ := c.blocked.has(bounded(d.ev.Key))
	return is
}

// known returns what is known of a delivery's key, as blocked.version has it.
func (c *consumer) known(d *delivery) uint64 {
	if !c.isKeyed(d) {
		return 0
	}
	return c.blocked.version(bounded(d.ev.Key))
}

// unblocked notes that an event took the straight path: nothing of its key was held, as
// far as that was known before it was handled. This process may have begun another term
// since, and have learned then what others held meanwhile.
func (c *consumer) unblocked(d *delivery, known uint64) {
	if c.isKeyed(d) {
		c.blocked.removeSince(bounded(d.ev.Key), known)
	}
}

// doubt notes that another process decided an event of a key, and may have held it.
func (c *consumer) doubt(d *delivery) {
	if c.isKeyed(d) {
		c.blocked.doubt(bounded(d.ev.Key))
	}
}

// behindHolding is how an event is held that waits for its key.
var behindHolding = holding{after: now, behind: true}

// holdBehind holds a delivery behind its key, and with it those of the key that wait
// for it. Where nothing of the key is held any more, they go on. Those that were read in
// another term are not held with it: what may not be held any more of one term may of
// the other, and they would go on without the order that flying behind it gives them.
func (c *consumer) holdBehind(d *delivery) {
	bytes := len(d.ev.Data)
	along := c.flights.along(d, holdAtOnce-1, func(o *delivery) bool {
		if bytes += len(o.ev.Data); bytes > holdBytes {
			return false
		}
		return o.term == d.term && !o.term.isOver() && c.isStraight(o)
	})
	c.holdWithOthers(d, behindHolding, along...)
}

// fatedTogether goes on with a delivery that was to be held, and with those that flew
// along. They are of one key and one term, so that all were free to go on, or none: but
// for those at the end whose term ended meanwhile.
func (c *consumer) fatedTogether(ctx, work context.Context, p parcel, became []fate) {
	if became[0] == fateFree {
		c.flights.back(p.d, p.along)
		c.again(p.d)
		return
	}
	for i, d := range p.along {
		c.fated(ctx, work, d, p.h, became[1+i])
	}
	c.fated(ctx, work, p.d, p.h, became[0]) // last: the next of its key follows it
}

// again has a delivery go on that was to wait behind its key, of which nothing is
// held any more.
func (c *consumer) again(d *delivery) {
	c.blocked.doubt(bounded(d.ev.Key))
	c.enqueue(d)
}

// waitBehind has a delivery wait for its key: here, where that is not for long, or
// in held.
func (c *consumer) waitBehind(d *delivery) {
	if !c.blocked.park(d, c.unpark) {
		c.holdBehind(d)
	}
}

// unpark has the delivery go on that waits here for a key, if one does.
func (c *consumer) unpark(key string) {
	if d := c.blocked.unpark(key); d != nil {
		c.enqueue(d)
	}
}

// freed notes that an event of a key was settled, and nothing of it is claimed any
// more: what waits here may go on, or looks for itself whether it may. before is what
// was known of the key when the event began to run.
func (c *consumer) freed(cl *claim, before uint64) {
	if cl.blocking == "" || !c.isOrdered() {
		return
	}
	if cl.more || !c.blocked.removeSince(cl.blocking, before) {
		c.blocked.doubt(cl.blocking)
	}
	c.unpark(cl.blocking)
}
