package checker

import (
	"maps"
	"slices"
)

// keyOrder checks the order of the events in the streams, and of the effects at ordered handlers.
func (c *check) keyOrder() {
	for _, server := range slices.Sorted(maps.Keys(c.found.Streams)) {
		seen := make(map[string]bool)
		order := newOrder()
		for _, m := range c.found.Streams[server] {
			if seen[m.ID] || m.Republished || c.domain[m.ID].Later { // a repair marks each message that it publishes again; such a message may be out of order
				continue
			}
			seen[m.ID] = true
			if before, ok := order.next(m.Event); !ok {
				c.violated(KeyOrder, "stream of %s: change %d of key %d (event %s) stands after change %d", server, m.N, m.Key, m.ID, before)
			}
		}
	}
	late := c.late()
	for _, h := range c.found.Handlers {
		if !h.Ordered {
			continue
		}
		order := newOrder()
		for _, e := range c.found.Effects[h.Name] {
			if late[[2]string{h.Name, e.ID}] || c.domain[e.ID].Later {
				continue
			}
			if before, ok := order.next(e); !ok {
				c.violated(KeyOrder, "%s: change %d of key %d (event %s) took effect after change %d", h.Name, e.N, e.Key, e.ID, before)
			}
		}
	}
}

// late returns the events that came too late for the order of their key, by handler and id. Such an
// event takes effect only after an operator released it.
func (c *check) late() map[[2]string]bool {
	all := make(map[[2]string]bool)
	for _, r := range c.history {
		if r.What != Release {
			continue
		}
		for _, e := range r.Events {
			if e.Class == "late" {
				all[[2]string{e.Handler, e.ID}] = true
			}
		}
	}
	return all
}

// order has the highest number so far of each key.
type order map[int]int

func newOrder() order { return make(order) }

// next reports whether an event is in the order of its key. It also returns the highest number that
// the key had before this event.
func (o order) next(e Event) (before int, ok bool) {
	before = o[e.Key]
	o[e.Key] = max(before, e.N)
	return before, e.N > before
}
