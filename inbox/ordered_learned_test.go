package inbox

import (
	"testing"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox/internal/delivery"
)

// A process may read again while it still is at an event that it read before. What it
// has learned of the key since is not forgotten when that event has taken effect.
func TestWhatIsLearnedWhileAnEventIsHandled(t *testing.T) {
	t.Parallel()
	c := &consumer{sub: Subscription{Order: HoldKey}}
	d := &delivery.Delivery{Task: delivery.Task{Event: postroom.Event{Key: "k"}}}
	known := c.known(d)
	c.blocked.Hold("k", time.Time{})
	c.unblocked(d, known)
	if !c.isBlocked(d) {
		t.Error("the key is free, and something of it is held")
	}
	c.unblocked(d, c.known(d))
	if c.isBlocked(d) {
		t.Error("the key is blocked by what was settled")
	}
}
