package inbox

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postroom/postroom"
)

// Only who knows that nothing was held since may say that a key is free.
func TestWhatIsKnownOfAKey(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name      string
		do        func(b *blocked)
		is, maybe bool
	}{
		{"nothing", func(*blocked) {}, false, false},
		{"held", func(b *blocked) { b.add("k", time.Time{}) }, true, true},
		{"decided by another", func(b *blocked) { b.doubt("k") }, false, true},
		{"held, and then in doubt", func(b *blocked) { b.add("k", time.Time{}); b.doubt("k") }, false, true},
		{"went straight", func(b *blocked) {
			b.doubt("k")
			b.removeSince("k", b.version("k"))
		}, false, false},
		{"settled", func(b *blocked) {
			b.add("k", time.Time{})
			b.removeSince("k", b.version("k"))
		}, false, false},
		{"settled while another was held", func(b *blocked) {
			b.add("k", time.Time{})
			before := b.version("k")
			b.add("k", time.Time{})
			b.removeSince("k", before)
		}, true, true},
		{"settled by a process that knew nothing of it", func(b *blocked) {
			before := b.version("k")
			b.add("k", time.Time{})
			b.removeSince("k", before)
		}, true, true},
		{"more keys than are remembered", func(b *blocked) {
			for i := range maxBlocked + 1 {
				b.add(fmt.Sprint(i), time.Time{})
			}
		}, false, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := &blocked{}
			tt.do(b)
			if is, maybe := b.has("k"); is != tt.is || maybe != tt.maybe {
				t.Errorf("held: %v, maybe: %v, want %v and %v", is, maybe, tt.is, tt.maybe)
			}
		})
	}
}

// A process may read again while it still is at an event that it read before. What it
// has learned of the key since is not forgotten when that event has taken effect.
func TestWhatIsLearnedWhileAnEventIsHandled(t *testing.T) {
	t.Parallel()
	c := &consumer{sub: Subscription{Order: HoldKey}}
	d := &delivery{task: task{ev: postroom.Event{Key: "k"}}}
	known := c.known(d)
	c.blocked.add("k", time.Time{})
	c.unblocked(d, known)
	if !c.isBlocked(d) {
		t.Error("the key is free, and something of it is held")
	}
	c.unblocked(d, c.known(d))
	if c.isBlocked(d) {
		t.Error("the key is blocked by what was settled")
	}
}

// An event waits here once, and only where the next attempt at what is held is near.
func TestWhoWaitsHere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &blocked{}
		over := make(chan string, 1)
		park := func(key string) (*delivery, bool) {
			d := &delivery{task: task{ev: postroom.Event{Key: key}}}
			return d, b.park(d, func(key string) { over <- key })
		}
		b.add("dead", time.Time{})
		b.add("far", time.Now().Add(longestPark+time.Millisecond))
		b.add("past", time.Now().Add(-2*parkGrace))
		for _, key := range []string{"dead", "far", "past"} {
			if _, may := park(key); may {
				t.Errorf("an event waits here for %q", key)
			}
		}
		b.add("near", time.Now().Add(longestPark/2))
		d, may := park("near")
		if !may {
			t.Fatal("no event waits for a retry that is near")
		}
		began := time.Now()
		if key := <-over; key != "near" || time.Since(began) != longestPark/2+parkGrace {
			t.Errorf("%q was over after %s", key, time.Since(began))
		}
		if b.unpark("near") != d || b.unpark("near") != nil {
			t.Error("what waited is to be returned, once")
		}
		b.add("near", time.Now().Add(longestPark/2))
		if b.park(d, nil) {
			t.Error("an event waits here a second time")
		}
		for i := range maxParked + 1 {
			key := fmt.Sprint("k", i)
			b.add(key, time.Now().Add(longestPark/2))
			if _, may := park(key); may != (i < maxParked) {
				t.Errorf("event %d waits here: %v", i, may)
			}
		}
		if n := len(b.unparkAll()); n != maxParked || len(b.unparkAll()) > 0 {
			t.Errorf("%d waited, want %d", n, maxParked)
		}
	})
}
