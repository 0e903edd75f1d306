package inbox

import (
	"context"
	"time"

	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/inbox/internal/dispatch"
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

func (h *handler) isOrdered() bool { return h.sub.Order != Unordered }

// isKeyed reports whether a delivery has to wait for others of its key.
func (h *handler) isKeyed(d *delivery.Delivery) bool { return h.isOrdered() && d.Event.Key != "" }

// blocks returns the key that an event blocks, or waits for, when it is held so; or
// nothing.
func (h *handler) blocks(d *delivery.Delivery, as delivery.Holding) string {
	if !h.isKeyed(d) || as.Raw || as.Decided || as.After == nil && h.sub.Order == SkipKey {
		return ""
	}
	if as.Failure != nil {
		switch as.Failure.Class {
		case delivery.ClassConflict, delivery.ClassLate, delivery.ClassUndecodable:
			return ""
		}
	}
	return delivery.Bounded(d.Event.Key)
}

// keyOf returns the key for which a delivery has to wait; nothing if there is none.
func (h *handler) keyOf(d *delivery.Delivery) string {
	if !h.isKeyed(d) {
		return ""
	}
	return delivery.Bounded(d.Event.Key)
}

// keys are those of an ordered handler of which something is held. An event without a key
// waits for none.
type keys struct{ dispatch.Keys }

// isHeld reports whether something of a key is held, as far as is known.
func (k *keys) isHeld(key string) bool {
	is, _ := k.Has(key)
	return is && key != ""
}

// version returns what is known of a key, as Keys.Version has it.
func (k *keys) version(key string) uint64 {
	if key == "" {
		return 0
	}
	return k.Version(key)
}

// free notes that an event took the straight path: nothing of its key was held, as
// far as that was known before it was handled. This process may have begun another term
// since, and have learned then what others held meanwhile.
func (k *keys) free(key string, known uint64) {
	if key != "" {
		k.Free(key, known)
	}
}

// doubt notes that another process decided an event of a key, and may have held it.
func (k *keys) doubt(key string) {
	if key != "" {
		k.Doubt(key)
	}
}

// held notes that an event of a key was held.
func (k *keys) held(key string, h delivery.Holding) {
	if key == "" {
		return
	}
	var again time.Time
	if h.After != nil && !h.Behind {
		again = time.Now().Add(*h.After)
	}
	k.Hold(key, again)
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
