package relay_test

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/relay"
	"github.com/postroom/postroom/relay/broker"
)

// A republish is published at its rate, without bursts, and live events do not wait for it.
func TestARepublishKeepsToItsRate(t *testing.T) {
	for _, rate := range []float64{2, 40, 200} {
		synctest.Test(t, func(t *testing.T) {
			n := min(300, int(rate*5))
			src, seen := newFakeSource(), &sightings{}
			src.republishes.all = []*fakeRepublish{republishOf(1, n, rate, nil)}
			pub := &fakePublisher{answer: func(ev broker.Event, _ int) (time.Duration, error) {
				seen.see(ev)
				return time.Millisecond, nil
			}}
			r := relay.Over(src, pub, relay.Config{})
			run := start(r)
			began := time.Now()
			wrote := map[int64]time.Time{}
			for i := range 50 {
				after(100 * time.Millisecond)
				seq := int64(100_000 + i)
				wrote[seq] = time.Now()
				src.Set(func() {
					src.terms[0].Unread = append(src.terms[0].Unread, broker.Event{Seq: seq, Event: postroom.Event{Type: "a.b"}})
				})
				r.Wake()
			}
			after(2 * time.Second)
			run.stop()
			run.wait(t)
			if got := src.repeated(1); got != int64(n) || len(seen.republished) != n {
				t.Fatalf("rate %g: %d of %d events are recorded, %d were sent", rate, got, n, len(seen.republished))
			}
			took := seen.republished[n-1].Sub(began).Seconds()
			if want := float64(n) / rate; took < want*0.95 || took > want*1.15+0.1 {
				t.Errorf("rate %g: %d events took %.2f s, want about %.2f s", rate, n, took, want)
			}
			for i := range seen.republished { // a tenth of a second's worth at once, and what the rate adds meanwhile
				end := i
				for end < n && seen.republished[end].Sub(seen.republished[i]) < 100*time.Millisecond {
					end++
				}
				if most := 2*max(1, rate/10) + 1; float64(end-i) > most {
					t.Fatalf("rate %g: %d events in a tenth of a second, want %g at the most", rate, end-i, most)
				}
			}
			for seq, at := range wrote {
				if wait := seen.live[seq].Sub(at); wait > 20*time.Millisecond || wait < 0 {
					t.Errorf("rate %g: a live event waited %s during a republish", rate, wait)
				}
			}
			if len(src.PublishedSeqs()) != len(wrote) {
				t.Errorf("rate %g: recorded as live %v, want the %d live ones", rate, src.PublishedSeqs(), len(wrote))
			}
		})
	}
}

// Events of a republish are read in pages, twenty in a second.
func TestARepublishIsReadInPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFakeSource()
		src.republishes.all = []*fakeRepublish{republishOf(1, 400, 1000, nil)}
		run := start(relay.Over(src, &fakePublisher{}, relay.Config{}))
		after(450 * time.Millisecond)
		run.stop()
		run.wait(t)
		if looks, got := len(src.looks()), src.repeated(1); looks > 20 || got < 300 {
			t.Errorf("looked %d times for %d events, want about 10 times for 400", looks, got)
		}
	})
}

// A new leader first publishes events that were never published.
func TestANewLeaderLooksForRepublishesLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFakeSource(events(1)...)
		src.republishes.all = []*fakeRepublish{republishOf(1, 1, 1, nil)}
		run := start(relay.Over(src, promptPublisher{}, relay.Config{}))
		after(time.Millisecond)
		if looks := len(src.looks()); looks > 0 || len(src.PublishedSeqs()) != 1 {
			t.Errorf("looked for republishes %d times, and %d events are recorded; want the one event first", looks, len(src.PublishedSeqs()))
		}
		after(200 * time.Millisecond)
		if got := src.repeated(1); got != 1 {
			t.Errorf("%d events of the republish are recorded, want 1", got)
		}
		run.stop()
		run.wait(t)
	})
}

// Without a running republish, the relay looks for one once a second. Wake does not change
// that.
func TestAnIdleRelaySeldomLooksForRepublishes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFakeSource()
		r := relay.Over(src, &fakePublisher{}, relay.Config{})
		run := start(r)
		for range 100 {
			after(100 * time.Millisecond)
			r.Wake()
		}
		if got := len(src.looks()); got < 8 || got > 11 {
			t.Errorf("looked %d times in 10 s, want about 10", got)
		}
		// If only the last event of a republish waits, the relay soon looks at the republish just
		// as seldom.
		src.Set(func() {
			src.republishes.all = []*fakeRepublish{republishOf(1, 1, 1000, nil)}
			src.republishes.all[0].Events = 2 // so it does not end
		})
		after(10 * time.Second)
		from := len(src.looks())
		after(10 * time.Second)
		if got := len(src.looks()) - from; got < 8 || got > 12 {
			t.Errorf("looked %d times in 10 s at a republish that waits, want about 10", got)
		}
		run.stop()
		run.wait(t)
	})
}

// If a part of the log has no event of the republish, the next part is read soon, but not
// without a pause.
func TestRepublishPassesOverOtherEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFakeSource()
		rw := republishOf(1, 5, 1000, nil)
		rw.empty = 100
		src.republishes.all = []*fakeRepublish{rw}
		run := start(relay.Over(src, &fakePublisher{}, relay.Config{}))
		after(2 * time.Second)
		if got := src.repeated(1); got != 5 {
			t.Errorf("%d events are published, want 5", got)
		}
		run.stop()
		run.wait(t)
	})
}

// If no stream takes the events of a republish, they are tried again and again and are not
// held. They take little of the room, and do not stop live events, even of their own key.
func TestRepublishWithoutAStreamStopsNoLiveEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFakeSource()
		src.republishes.all = []*fakeRepublish{republishOf(1, 400, 100_000, func(ev *broker.Event) { ev.Key, ev.Subject = "k", "gone" })}
		var open sync.Mutex
		taken := false
		most := map[int64]bool{}
		pub := &fakePublisher{stream: "S", answer: func(ev broker.Event, _ int) (time.Duration, error) {
			open.Lock()
			defer open.Unlock()
			if ev.RepublishID != 0 && !taken {
				most[ev.Seq] = true
				return time.Millisecond, broker.ErrNoStream
			}
			return time.Millisecond, nil
		}}
		r := relay.Over(src, pub, relay.Config{MaxUnpublished: 2000})
		run := start(r)
		after(3 * time.Second)
		for i := range 20 {
			src.Set(func() {
				src.terms[0].Unread = append(src.terms[0].Unread, broker.Event{Seq: int64(1000 + i), Event: postroom.Event{Type: "a.b", Key: "k"}})
			})
			r.Wake()
			after(500 * time.Millisecond)
			if got := len(src.PublishedSeqs()); got != i+1 {
				t.Fatalf("%d live events are published, want %d: a republish stops them", got, i+1)
			}
		}
		if got := len(most); got == 0 || got > 250 {
			t.Errorf("%d events of the republish were in memory, want an eighth of 2000 at the most", got)
		}
		if len(src.Held) > 0 || src.repeated(1) > 0 {
			t.Errorf("%d events are held and %d published, want none", len(src.Held), src.repeated(1))
		}
		open.Lock()
		taken = true
		open.Unlock()
		after(10 * time.Second)
		if got := src.repeated(1); got != 400 {
			t.Errorf("%d events are published when a stream takes them, want 400", got)
		}
		run.stop()
		run.wait(t)
	})
}

// If the broker refuses an event of a republish for long enough while it takes others, the
// event is held, with the republish's id and without a key.
func TestRefusedEventOfARepublishIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFakeSource()
		src.republishes.all = []*fakeRepublish{republishOf(9, 30, 2, func(ev *broker.Event) { ev.Key = "k" })}
		pub := &fakePublisher{stream: "S", answer: func(ev broker.Event, _ int) (time.Duration, error) {
			switch ev.Seq {
			case 1:
				return 0, &classError{broker.Refused, "js_10169"}
			case 2:
				return 0, &classError{broker.Permanent, "max_payload"}
			}
			return 0, nil
		}}
		run := start(relay.Over(src, pub, relay.Config{}))
		after(20 * time.Second)
		run.stop()
		run.wait(t)
		for seq, dead := range map[int64]bool{1: false, 2: true} {
			h, ok := src.Held[seq]
			if !ok || h.RepublishID != 9 || h.Key != "" || h.Failure == nil || h.Failure.Dead != dead {
				t.Errorf("held of %d: %+v, want for republish 9, no key, dead %t", seq, h, dead)
			}
		}
		if got := src.repeated(9); got != 28 || len(src.Held) != 2 {
			t.Errorf("%d are published and %d held, want 28 and 2", got, len(src.Held))
		}
	})
}

// A cancelled republish ends within two seconds: its events that wait to be sent, for the
// first time or again, are dropped. The next republish begins, and the log says so.
func TestACancelledRepublishEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text logged
		src := newFakeSource()
		src.republishes.all = []*fakeRepublish{
			republishOf(1, 300, 1000, func(ev *broker.Event) { ev.Key = "k" }),
			republishOf(2, 20, 1000, func(ev *broker.Event) { ev.Key = "k" }),
		}
		pub := &fakePublisher{answer: func(ev broker.Event, _ int) (time.Duration, error) {
			if ev.RepublishID == 1 {
				return 100 * time.Millisecond, broker.ErrNoStream
			}
			return time.Millisecond, nil
		}}
		run := start(relay.Over(src, pub, relay.Config{Logger: text.logger()}))
		after(5 * time.Second)
		src.Set(func() { src.republishes.all[0].Cancelled = true })
		after(5 * time.Second)
		sent := pub.triedOf(1)
		after(10 * time.Second)
		if now := pub.triedOf(1); now != sent {
			t.Errorf("%d events of the cancelled republish were sent five seconds after it was cancelled", now-sent)
		}
		dropped := 0
		for _, e := range src.republishes.repeated {
			if e.Dropped && e.RepublishID == 1 {
				dropped++
			}
		}
		if dropped == 0 || dropped > 100 || src.repeated(1) > 0 {
			t.Errorf("%d events were dropped and %d published, want those in memory and none", dropped, src.repeated(1))
		}
		if got := src.repeated(2); got != 20 {
			t.Errorf("%d events of the next republish are published, want 20", got)
		}
		run.stop()
		run.wait(t)
		for _, want := range []string{"republish begins\" republish=1", "republish was cancelled\" republish=1", "republish begins\" republish=2", "republish is done\" republish=2"} {
			if got := text.count(want); got != 1 {
				t.Errorf("the log has %q %d times, want once", want, got)
			}
		}
	})
}

// While nothing is acknowledged, no more of a republish is read. Afterwards it does not go
// faster to make up for that time.
func TestARepublishDoesNotMakeUpForAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rate, outage = 200, 5 * time.Second
		src, seen := newFakeSource(), &sightings{}
		src.republishes.all = []*fakeRepublish{republishOf(1, 300, rate, nil)}
		began := time.Now()
		pub := &fakePublisher{answer: func(ev broker.Event, _ int) (time.Duration, error) {
			seen.see(ev)
			return max(time.Millisecond, time.Until(began.Add(outage))), nil
		}}
		run := start(relay.Over(src, pub, relay.Config{}))
		after(outage - time.Second)
		if n := pub.triedOf(1); n > 25 {
			t.Errorf("%d events were sent while none was acknowledged, want a tenth of a second's worth", n)
		}
		after(10 * time.Second)
		run.stop()
		run.wait(t)
		late := slices.DeleteFunc(slices.Clone(seen.republished), func(at time.Time) bool { return at.Before(began.Add(outage)) })
		if len(seen.republished) != 300 || len(late) < 250 {
			t.Fatalf("%d events were sent, %d after the outage", len(seen.republished), len(late))
		}
		if took := late[len(late)-1].Sub(late[0]).Seconds(); took < 0.85*float64(len(late))/rate {
			t.Errorf("%d events took %.2f s after an outage, want %d a second", len(late), took, rate)
		}
	})
}

// If the broker refuses every event of a republish, the events need not wait until it takes others.
// They are held after a while, and that is no attempt.
func TestFullyRefusedRepublishIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFakeSource()
		src.republishes.all = []*fakeRepublish{republishOf(1, 2, 1000, nil)}
		pub := &fakePublisher{stream: "S", answer: func(broker.Event, int) (time.Duration, error) {
			return 0, &classError{broker.Refused, "js_10169"}
		}}
		run := start(relay.Over(src, pub, relay.Config{}))
		after(3 * time.Second)
		src.Set(func() {
			if len(src.Held) > 0 {
				t.Error("held at once")
			}
		})
		after(7 * time.Second)
		run.stop()
		run.wait(t)
		for _, h := range src.Held {
			if h.RepublishID != 1 || h.Failure.Dead || h.Failure.Attempts != 0 {
				t.Errorf("held %+v, %+v", h, h.Failure)
			}
		}
		if len(src.Held) != 2 {
			t.Errorf("%d events are held, want 2", len(src.Held))
		}
	})
}

// An event that a republish left in held is published from there as all others are.
func TestHeldEventOfARepublishIsPublishedAsOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFakeSource(broker.Event{Seq: 5, RepublishID: 3, Held: true, Unordered: true, Event: postroom.Event{Type: "a.b", Key: "k"}})
		run := start(relay.Over(src, &fakePublisher{}, relay.Config{}))
		after(time.Second)
		run.stop()
		run.wait(t)
		if got := src.PublishedSeqs(); !slices.Equal(got, []int64{5}) || src.repeated(3) != 0 {
			t.Errorf("recorded as published %v, as repeated %d events", got, src.repeated(3))
		}
	})
}

// Progress over a part of the log without events of the republish is recorded at once, too.
func TestARepublishIsRecordedAsItMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFakeSource()
		r := relay.Over(src, &fakePublisher{}, relay.Config{Lease: time.Minute, Retention: relay.KeepForever})
		run := start(r)
		after(5500 * time.Millisecond)
		src.Set(func() {
			rw := republishOf(1, 1, 1000, nil)
			rw.empty, rw.events = 1, nil
			src.republishes.all = []*fakeRepublish{rw}
		})
		after(2 * time.Second)
		src.Set(func() {
			if n := len(src.terms[0].records); n != 1 {
				t.Errorf("%d recordings in seven seconds with a lease of a minute, want the one of the republish", n)
			}
		})
		run.stop()
		run.wait(t)
	})
}
