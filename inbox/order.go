package inbox

import (
	"context"
	"errors"

	"github.com/postroom/postroom/inbox/internal/delivery"
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
func (c *consumer) isKeyed(d *delivery.Delivery) bool { return c.isOrdered() && d.Event.Key != "" }

// blocks returns the key that an event blocks, or waits for, when it is held so; or
// nothing.
func (c *consumer) blocks(d *delivery.Delivery, h delivery.Holding) string {
	if !c.isKeyed(d) || h.Raw || h.Decided || h.After == nil && c.sub.Order == SkipKey {
		return ""
	}
	if h.Failure != nil {
		switch h.Failure.Class {
		case delivery.ClassConflict, delivery.ClassLate, delivery.ClassUndecodable:
			return ""
		}
	}
	return delivery.Bounded(d.Event.Key)
}

// errBlocked says that an earlier event of the key is held.
var errBlocked = errors.New("an earlier event of the key is held")

// isBlocked reports whether a delivery seems to have to wait behind its key.
func (c *consumer) isBlocked(d *delivery.Delivery) bool {
	if !c.isKeyed(d) {
		return false
	}
	is, _ := c.blocked.Has(delivery.Bounded(d.Event.Key))
	return is
}

// known returns what is known of a delivery's key, as blocked.version has it.
func (c *consumer) known(d *delivery.Delivery) uint64 {
	if !c.isKeyed(d) {
		return 0
	}
	return c.blocked.Version(delivery.Bounded(d.Event.Key))
}

// unblocked notes that an event took the straight path: nothing of its key was held, as
// far as that was known before it was handled. This process may have begun another term
// since, and have learned then what others held meanwhile.
func (c *consumer) unblocked(d *delivery.Delivery, known uint64) {
	if c.isKeyed(d) {
		c.blocked.Free(delivery.Bounded(d.Event.Key), known)
	}
}

// doubt notes that another process decided an event of a key, and may have held it.
func (c *consumer) doubt(d *delivery.Delivery) {
	if c.isKeyed(d) {
		c.blocked.Doubt(delivery.Bounded(d.Event.Key))
	}
}

// holdBehind holds a delivery behind its key, and with it those of the key that wait
// for it. Where nothing of the key is held any more, they go on. Those that were read in
// another term are not held with it: what may not be held any more of one term may of
// the other, and they would go on without the order that flying behind it gives them.
func (c *consumer) holdBehind(d *delivery.Delivery) {
	bytes := len(d.Event.Data)
	along := c.flights.Along(d, holdAtOnce-1, func(o *delivery.Delivery) bool {
		if bytes += len(o.Event.Data); bytes > holdBytes {
			return false
		}
		return o.Source == d.Source && !o.IsOver() && c.isStraight(o)
	})
	c.holdWithOthers(d, delivery.BehindKey, along...)
}

// fatedTogether goes on with a delivery that was to be held, and with those that flew
// along. They are of one key and one term, so that all were free to go on, or none: but
// for those at the end whose term ended meanwhile.
func (c *consumer) fatedTogether(ctx, work context.Context, p parcel, became []delivery.Fate) {
	if became[0] == delivery.FateFree {
		c.flights.Back(p.d, p.along)
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
func (c *consumer) again(d *delivery.Delivery) {
	c.blocked.Doubt(delivery.Bounded(d.Event.Key))
	c.lanes.Put(d)
}

// waitBehind has a delivery wait for its key: here, where that is not for long, or
// in held.
func (c *consumer) waitBehind(d *delivery.Delivery) {
	if !c.blocked.Park(d, c.unpark) {
		c.holdBehind(d)
	}
}

// unpark has the delivery go on that waits here for a key, if one does.
func (c *consumer) unpark(key string) {
	if d := c.blocked.Unpark(key); d != nil {
		c.lanes.Put(d)
	}
}

// freed notes that an event of a key was settled, and nothing of it is claimed any
// more: what waits here may go on, or looks for itself whether it may. before is what
// was known of the key when the event began to run.
func (c *consumer) freed(cl *claim, before uint64) {
	if cl.blocking == "" || !c.isOrdered() {
		return
	}
	if cl.more || !c.blocked.Free(cl.blocking, before) {
		c.blocked.Doubt(cl.blocking)
	}
	c.unpark(cl.blocking)
}
