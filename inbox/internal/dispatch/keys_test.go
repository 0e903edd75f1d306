package dispatch

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox/internal/delivery"
)

// A key may be marked free only if no event of it was held since the given version.
func TestKeyIsFreeOnlyIfNothingWasHeldSince(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name      string
		do        func(b *Keys)
		is, maybe bool
	}{
		{"nothing", func(*Keys) {}, false, false},
		{"held", func(b *Keys) { b.Hold("k", time.Time{}) }, true, true},
		{"decided by another", func(b *Keys) { b.Doubt("k") }, false, true},
		{"held, and then in doubt", func(b *Keys) { b.Hold("k", time.Time{}); b.Doubt("k") }, false, true},
		{"went straight", func(b *Keys) {
			b.Doubt("k")
			b.Free("k", b.Version("k"))
		}, false, false},
		{"settled", func(b *Keys) {
			b.Hold("k", time.Time{})
			b.Free("k", b.Version("k"))
		}, false, false},
		{"settled while another was held", func(b *Keys) {
			b.Hold("k", time.Time{})
			before := b.Version("k")
			b.Hold("k", time.Time{})
			b.Free("k", before)
		}, true, true},
		{"settled by a process that knew nothing of it", func(b *Keys) {
			before := b.Version("k")
			b.Hold("k", time.Time{})
			b.Free("k", before)
		}, true, true},
		{"more keys than are remembered", func(b *Keys) {
			for i := range MaxKeys + 1 {
				b.Hold(fmt.Sprint(i), time.Time{})
			}
		}, false, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := &Keys{}
			tt.do(b)
			if is, maybe := b.Has("k"); is != tt.is || maybe != tt.maybe {
				t.Errorf("held: %v, maybe: %v, want %v and %v", is, maybe, tt.is, tt.maybe)
			}
		})
	}
}

// One event for each key waits in memory, and only if the held event's next attempt is near.
func TestOneEventOfEachKeyWaitsInMemory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &Keys{}
		over := make(chan string, 1)
		park := func(key string) (*delivery.Delivery, bool) {
			d := &delivery.Delivery{Task: delivery.Task{Event: postroom.Event{Key: key}}}
			return d, b.Park(d, func(key string) { over <- key })
		}
		b.Hold("dead", time.Time{})
		b.Hold("far", time.Now().Add(longestPark+time.Millisecond))
		b.Hold("past", time.Now().Add(-2*parkGrace))
		for _, key := range []string{"dead", "far", "past"} {
			if _, may := park(key); may {
				t.Errorf("an event waits here for %q", key)
			}
		}
		b.Hold("near", time.Now().Add(longestPark/2))
		d, may := park("near")
		if !may {
			t.Fatal("no event waits for a retry that is near")
		}
		began := time.Now()
		if key := <-over; key != "near" || time.Since(began) != longestPark/2+parkGrace {
			t.Errorf("%q was over after %s", key, time.Since(began))
		}
		if b.Unpark("near") != d || b.Unpark("near") != nil {
			t.Error("what waited is to be returned, once")
		}
		b.Hold("near", time.Now().Add(longestPark/2))
		if b.Park(d, nil) {
			t.Error("an event waits here a second time")
		}
		for i := range maxParked + 1 {
			key := fmt.Sprint("k", i)
			b.Hold(key, time.Now().Add(longestPark/2))
			if _, may := park(key); may != (i < maxParked) {
				t.Errorf("event %d waits here: %v", i, may)
			}
		}
		if n := len(b.UnparkAll()); n != maxParked || len(b.UnparkAll()) > 0 {
			t.Errorf("%d waited, want %d", n, maxParked)
		}
	})
}

// Drain also finds a delivery that take puts into a lane that Drain has passed.
func TestDrainLeavesNothing(t *testing.T) {
	t.Parallel()
	const lanes = 3
	l := NewLanes(lanes, 1)
	l.Put(&delivery.Delivery{})
	taken := 0
	l.Drain(func(*delivery.Delivery) {
		if taken++; taken < 10 {
			l.Put(&delivery.Delivery{}) // into the next lane
		}
	})
	if taken != 10 {
		t.Errorf("%d deliveries are drained, want 10", taken)
	}
}
