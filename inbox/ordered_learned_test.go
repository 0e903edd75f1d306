package inbox

import (
	"testing"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox/internal/delivery"
)

// A process may read again while a worker still has an event that it read before. If an event
// of the key was held meanwhile, the process does not forget that when the first event takes
// effect.
func TestReaderRemembersAnEventHeldMeanwhile(t *testing.T) {
	t.Parallel()
	c := &loop{handler: &handler{sub: Subscription{Order: HoldKey}}}
	d := &delivery.Delivery{Task: delivery.Task{Event: postroom.Event{Key: "k"}}}
	known := c.keys.Version(c.keyOf(d))
	c.keys.Hold("k", time.Time{})
	c.keys.Free(c.keyOf(d), known)
	if !c.keys.IsHeld(c.keyOf(d)) {
		t.Error("the key is free, although an event of it is held")
	}
	c.keys.Free(c.keyOf(d), c.keys.Version(c.keyOf(d)))
	if c.keys.IsHeld(c.keyOf(d)) {
		t.Error("a decided event blocks the key")
	}
}
