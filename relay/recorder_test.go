package relay_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/relay"
	"github.com/postroom/postroom/relay/broker"
)

// As long as a recording leaves something to write, the next one follows soon, even if nothing was
// published meanwhile. While too many events wait for the table held, no page is read.
func TestRecordingsGoOnUntilNothingIsLeft(t *testing.T) {
	for _, tt := range []struct {
		name        string
		held, other int
		reads       bool
	}{
		{"scheduled events", 0, 1_000_000, true},
		{"few refused events", 100, 0, true},
		{"many refused events", 5000, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src := newFakeSource(events(1)...)
				src.unrecorded = func() (int, int) { return tt.held, tt.other }
				run := start(relay.Over(src, &fakePublisher{}, relay.Config{}))
				for seq := int64(2); seq <= 4; seq++ { // the dispatcher may wait for the first of these pages already
					after(250 * time.Millisecond)
					src.Set(func() {
						src.terms[0].Unread = append(src.terms[0].Unread, broker.Event{Seq: seq, Event: postroom.Event{Type: "a.b"}})
					})
				}
				after(250 * time.Millisecond)
				src.Mu.Lock()
				recordings := len(src.terms[0].records)
				src.Mu.Unlock()
				if recordings < 40 {
					t.Errorf("%d recordings in a second, want one after the other", recordings)
				}
				if got := len(src.PublishedSeqs()); (got == 4) != tt.reads || got > 2 && !tt.reads {
					t.Errorf("%d events are published, want that more are read: %t", got, tt.reads)
				}
				src.Set(func() { src.unrecorded = nil })
				after(500 * time.Millisecond)
				src.Mu.Lock()
				recordings = len(src.terms[0].records)
				src.Mu.Unlock()
				after(time.Second)
				src.Mu.Lock()
				later := len(src.terms[0].records)
				src.Mu.Unlock()
				if got := len(src.PublishedSeqs()); got != 4 || later-recordings > 1 {
					t.Errorf("when nothing is left, %d events are published and %d recordings follow, want 4 and no more than one", got, later-recordings)
				}
				run.stop()
				run.wait(t)
			})
		})
	}
}

// The next events of a held key are read after those before them are recorded. So after a recording
// of such events the recorder does not rest as long as after others.
func TestEventsFromHeldAreRecordedSoon(t *testing.T) {
	for _, held := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			src := newFakeSource()
			src.recorded = func(*fakeTerm, context.Context) error {
				time.Sleep(10 * time.Millisecond)
				return nil
			}
			run := start(relay.Over(src, &fakePublisher{}, relay.Config{}))
			after(10 * time.Millisecond)
			for seq := range int64(200) {
				src.Set(func() {
					ev := broker.Event{Seq: seq + 1, Held: held, Event: postroom.Event{Type: "a.b"}}
					src.terms[0].Unread = append(src.terms[0].Unread, ev)
				})
				after(5 * time.Millisecond)
			}
			src.Mu.Lock()
			recordings := len(src.terms[0].records)
			src.Mu.Unlock()
			if often := recordings > 20; often != held {
				t.Errorf("held %t: %d recordings in a second, each of which takes 10 ms", held, recordings)
			}
			run.stop()
			run.wait(t)
		})
	}
}

// The next event of a held key is due when a recording has removed the one before it. The reader does
// not wait for its next look at an idle log.
func TestTheNextEventsOfAHeldKeyAreReadAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFakeSource(broker.Event{Seq: 1, Held: true, Event: postroom.Event{Type: "a.b", Key: "k"}})
		slow := &fakePublisher{answer: func(broker.Event, int) (time.Duration, error) { return 300 * time.Millisecond, nil }} // the reader looks ever more seldom meanwhile
		run := start(relay.Over(src, slow, relay.Config{}))
		seq := int64(1)
		src.Set(func() {
			src.recorded = func(t *fakeTerm, _ context.Context) error {
				t.source.Set(func() {
					if len(t.source.Done) == int(seq)-1 { // this recording removes event seq
						seq++
						t.Unread = append(t.Unread, broker.Event{Seq: seq, Held: true, Event: postroom.Event{Type: "a.b", Key: "k"}})
					}
				})
				return nil
			}
		})
		after(10 * time.Second)
		if got := len(src.PublishedSeqs()); got < 25 {
			t.Errorf("%d events of the key are published in ten seconds, want one after each recording", got)
		}
		run.stop()
		run.wait(t)
	})
}

// A page of scheduled events is as full as one of events to publish: the next page is read at once.
func TestScheduledEventsFillAPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFakeSource()
		src.scheduled = 1000
		run := start(relay.Over(src, &fakePublisher{}, relay.Config{}))
		after(100 * time.Millisecond)
		src.Mu.Lock()
		left := src.scheduled
		src.Mu.Unlock()
		if left > 0 {
			t.Errorf("%d pages of scheduled events were not read at once", left)
		}
		run.stop()
		run.wait(t)
	})
}
