package schedule

import (
	"errors"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/relay/broker"
)

// Whatever happens to events of republishes, live events keep the order of their keys. At most
// one event of a key is in flight, apart from republished ones that the broker did not take.
// In the end every event is stored, held or dropped.
func TestLanesWithRepublishes(t *testing.T) {
	outcomes := []broker.Outcome{
		{Class: broker.Stored, Stream: "S"},
		{Class: broker.Stored, Stream: "S"},
		errNoAnswer,
		{Class: broker.Unavailable, Stream: "S", Err: broker.ErrNoLeader},
		{Class: broker.Unroutable, Err: broker.ErrNoStream},
		{Class: broker.Refused, Stream: "S", Err: errors.New("no")},
		{Class: broker.Permanent, Err: errors.New("never")},
	}
	rapid.Check(t, func(t *rapid.T) {
		l := New(40, false)
		now := time.Unix(1000, 0)
		var seq, republished int64
		log := map[int64]broker.Event{}
		var inFlight []*Entry
		added, stored, held := map[string][]int64{}, map[string][]int64{}, map[string][]int64{}
		var open []eventlog.RepublishResult // events of republishes
		leave := func(t *rapid.T, r eventlog.RepublishResult) {
			if n := slices.Index(open, r); n >= 0 {
				open = slices.Delete(open, n, n+1)
				return
			}
			t.Fatalf("event %d of republish %d was released, and was not there", r.Seq, r.RepublishID)
		}
		settle := func(t *rapid.T, o broker.Outcome) {
			if len(inFlight) == 0 {
				t.Skip("nothing is in flight") // rapid draws another action
			}
			n := rapid.IntRange(0, len(inFlight)-1).Draw(t, "event")
			f := inFlight[n]
			inFlight = slices.Delete(inFlight, n, n+1)
			ev := f.Event
			if o.Class != broker.Stored {
				l.Failed(f, o, now)
				return
			}
			l.Done(f, o.Stream, now)
			if ev.RepublishID != 0 {
				leave(t, eventlog.RepublishResult{RepublishID: ev.RepublishID, Seq: ev.Seq})
				return
			}
			stored[ev.Key] = append(stored[ev.Key], ev.Seq)
		}
		keep := func(t *rapid.T) {
			taken, _ := l.TakeHeld(1)
			for _, h := range taken {
				if h.RepublishID == 0 {
					held[h.Key] = append(held[h.Key], h.Seq)
					continue
				}
				if h.Key != "" || h.Failure.Class == "no_stream" {
					t.Fatalf("held of a republish: %+v", h)
				}
				leave(t, eventlog.RepublishResult{RepublishID: h.RepublishID, Seq: h.Seq})
			}
			_, _, dropped := l.TakeGone()
			for _, r := range dropped {
				if !r.Dropped || l.cancelled == nil {
					t.Fatalf("dropped %+v", r)
				}
				r.Dropped = false
				leave(t, r)
			}
		}
		send := func(t *rapid.T) {
			l.readBack(log)
			for _, f := range l.nextEntries(rapid.IntRange(1, 5).Draw(t, "window"), now) {
				for _, g := range inFlight {
					if f.Key != "" && g.Key == f.Key && !f.Unordered && !g.Unordered {
						t.Fatalf("%d was sent while %d of the same key is in flight", f.Seq, g.Seq)
					}
				}
				inFlight = append(inFlight, f)
			}
		}
		page := func(t *rapid.T, republish int64, next *int64) (events []broker.Event) {
			for range rapid.IntRange(1, 6).Draw(t, "events") {
				*next++
				key := rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "key")
				subject := rapid.SampledFrom([]string{"s", "t"}).Draw(t, "subject")
				events = append(events, broker.Event{Seq: *next, RepublishID: republish, Event: postroom.Event{Key: key, Subject: subject, Data: []byte("x")}})
			}
			return events
		}
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				events := page(t, 0, &seq)
				for _, ev := range events {
					added[ev.Key] = append(added[ev.Key], ev.Seq)
					log[ev.Seq] = ev
				}
				l.Add(events)
				l.MakeRoom(now)
			},
			"republish": func(t *rapid.T) {
				events := page(t, rapid.Int64Range(1, 2).Draw(t, "republish"), &republished)
				for _, ev := range events {
					open = append(open, eventlog.RepublishResult{RepublishID: ev.RepublishID, Seq: ev.Seq})
				}
				l.Add(events)
			},
			"cancel": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "seldom") == 0 {
					l.Cancel(2)
				}
			},
			"send":   send,
			"settle": func(t *rapid.T) { settle(t, rapid.SampledFrom(outcomes).Draw(t, "outcome")) },
			"record": keep,
			"wait":   func(*rapid.T) { now = now.Add(500 * time.Millisecond) },
		})
		for range 10_000 {
			if l.size+l.count == 0 {
				break
			}
			now = now.Add(3 * time.Second)
			send(t)
			for len(inFlight) > 0 {
				settle(t, outcomes[0])
			}
		}
		keep(t)
		for _, key := range []string{"a", "b"} {
			if !slices.Equal(slices.Concat(stored[key], held[key]), added[key]) {
				t.Errorf("key %s: stored %v, then held %v, added as %v", key, stored[key], held[key], added[key])
			}
		}
		if got := len(stored[""]) + len(held[""]); got != len(added[""]) || len(open) > 0 {
			t.Errorf("%d events without a key were stored or held, %d added; of republishes are left %v", got, len(added[""]), open)
		}
		if l.size > 0 || len(l.keys) > 0 || len(l.retries) > 0 || l.sent > 0 || l.bytes > 0 {
			t.Errorf("all is done, and the lanes still hold %d events, %d keys and %d retries", l.size, len(l.keys), len(l.retries))
		}
	})
}

// An event of a republish holds up no live event of its key, whatever the broker answers. It
// does not follow held events of its key.
func TestEventOfARepublishHoldsUpNoLiveEvent(t *testing.T) {
	live := func(seq int64) broker.Event {
		return broker.Event{Seq: seq, Event: postroom.Event{Key: "k", Subject: "s"}}
	}
	repeated := live(1)
	repeated.RepublishID = 7
	now := time.Unix(1000, 0)
	for _, o := range []broker.Outcome{
		{Class: broker.Unavailable, Stream: "S", Err: broker.ErrNoLeader},
		{Class: broker.Unroutable, Err: broker.ErrNoStream},
		{Class: broker.Refused, Stream: "S", Err: errors.New("no")},
		{Class: broker.Permanent, Err: errors.New("never")},
	} {
		l := New(100, false)
		l.Add([]broker.Event{repeated, live(2)})
		batch := l.nextEntries(10, now)
		if len(batch) != 1 || batch[0].Seq != 1 {
			t.Fatalf("%s: sent %d events first, want the one of the republish: one of a key is in flight", o.Class, len(batch))
		}
		l.Failed(batch[0], o, now)
		batch = l.nextEntries(10, now)
		if len(batch) != 1 || batch[0].Seq != 2 {
			t.Errorf("%s: the live event behind it was not sent", o.Class)
		}
	}

	l := New(100, false)
	l.Add([]broker.Event{live(2), repeated, live(3)})
	batch := l.nextEntries(10, now)
	l.Failed(batch[0], broker.Outcome{Class: broker.Permanent, Err: errors.New("never")}, now) // k has an event in held now
	l.Add([]broker.Event{repeated})
	for range 2 {
		batch = l.nextEntries(10, now)
		if len(batch) != 1 || batch[0].RepublishID != 7 {
			t.Fatalf("sent %d events, want those of the republish one after the other, because they repeat published events", len(batch))
		}
		l.Done(batch[0], "S", now)
	}
	held, _ := l.TakeHeld(1)
	if len(held) != 2 || held[0].Seq != 2 || held[1].Seq != 3 {
		t.Errorf("held %+v, want the live events 2 and 3", held)
	}
}

// If a republish is cancelled, its events that wait to be sent are dropped, and the events
// behind them go on.
func TestEventsOfACancelledRepublishAreNotSent(t *testing.T) {
	now := time.Unix(1000, 0)
	var page []broker.Event
	for seq := range int64(6) {
		ev := broker.Event{Seq: seq, Event: postroom.Event{Key: "k", Subject: "s", Data: []byte("x")}}
		if seq != 4 {
			ev.RepublishID = 1 + seq%2
		}
		page = append(page, ev)
	}
	l := New(100, false)
	l.Add(page) // of republishes 1, 2, 1, 2, none and 2
	first := l.nextEntries(1, now)
	l.Cancel(2)
	var sent []int64
	for batch := first; len(batch) > 0; batch = l.nextEntries(10, now) {
		sent = append(sent, batch[0].Seq)
		l.Done(batch[0], "S", now)
	}
	if !slices.Equal(sent, []int64{0, 2, 4}) {
		t.Errorf("sent %v, want those of the other republish and the live one", sent)
	}
	_, bytes, dropped := l.TakeGone()
	if len(dropped) != 3 || bytes != 5 || l.size != 0 {
		t.Errorf("dropped %v, %d bytes of republishes left, %d events stay", dropped, bytes, l.size)
	}
}

// If an event of a republish waits for an unavailable stream, live events of its key still go to
// other streams.
func TestWaitingEventOfARepublishHoldsUpNoLiveEvent(t *testing.T) {
	now := time.Unix(1000, 0)
	l := New(100, false)
	for n := range maxProbes {
		l.Add([]broker.Event{{Seq: int64(n), Event: postroom.Event{Subject: "out"}}})
	}
	for _, f := range l.nextEntries(100, now) {
		l.Failed(f, broker.Outcome{Class: broker.Unavailable, Stream: "OUT", Err: broker.ErrNoLeader}, now)
	}
	now = now.Add(time.Minute)
	if probes := l.nextEntries(100, now); len(probes) != maxProbes {
		t.Fatalf("%d probes, want %d", len(probes), maxProbes)
	}
	l.Add([]broker.Event{
		{Seq: 1, RepublishID: 1, Event: postroom.Event{Subject: "out", Key: "k"}},
		{Seq: 100, Event: postroom.Event{Subject: "there", Key: "k"}},
	})
	if batch := l.nextEntries(100, now); len(batch) != 1 || batch[0].Seq != 100 {
		t.Errorf("sent %d events, want only the live one", len(batch))
	}
}
