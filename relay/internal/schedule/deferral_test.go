package schedule

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/relay/broker"
)

// If everything is refused, either the events or the broker may be the cause. So the events
// wait. If they take too much room, they go to held so that others can be tried, and that is
// no attempt.
func TestLanesHoldEventsIfNothingPasses(t *testing.T) {
	for _, oneKey := range []bool{true, false} {
		l := New(100, false)
		now := time.Unix(1000, 0)
		refuse := func() {
			for _, f := range l.nextEntries(100, now) {
				l.Failed(f, broker.Outcome{Class: broker.Refused, Stream: "S", Err: errors.New("no")}, now)
			}
		}
		add := func(from, to int64) {
			for seq := from; seq <= to; seq++ {
				key := "bad"
				if !oneKey {
					key = fmt.Sprint("bad ", seq)
				}
				l.Add([]broker.Event{{Seq: seq, Event: postroom.Event{Key: key}}})
			}
		}
		add(1, 49)
		for range 100 {
			now = now.Add(time.Second)
			refuse()
		}
		if len(l.held) > 0 {
			t.Fatalf("one key %t: %d events are held, and there is room", oneKey, len(l.held))
		}
		add(50, 60)
		for range 10 {
			now = now.Add(time.Second)
			refuse()
		}
		if l.size >= 50 {
			t.Errorf("one key %t: %d events take the room of others", oneKey, l.size)
		}
		for _, h := range l.held {
			if f := h.Failure; f != nil && (f.Attempts > 0 || f.Dead || f.After < heldWait) {
				t.Errorf("one key %t: held with %+v, want no attempt", oneKey, f)
			}
		}
	}
}
