package schedule

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/relay/broker"
)

var errNoAnswer = broker.Outcome{Class: broker.Unknown, Err: broker.ErrUnacknowledged}

// Whatever happens to single publishes, the events of a key are sent one at a time, and are
// first stored in their order. Each event is stored or held, and after the first held one all
// later ones of its key are held.
func TestLanesKeepTheOrderOfEachKey(t *testing.T) {
	outcomes := []broker.Outcome{
		{Class: broker.Stored, Stream: "S"},
		{Class: broker.Stored, Stream: "S"},
		{Class: broker.Stored, Stream: "T"},
		errNoAnswer,
		{Class: broker.Unavailable, Stream: "S", Err: broker.ErrNoLeader},
		{Class: broker.Unroutable, Err: broker.ErrNoStream},
		{Class: broker.Refused, Stream: "S", Err: errors.New("no")},
		{Class: broker.Permanent, Err: errors.New("never")},
	}
	rapid.Check(t, func(t *rapid.T) {
		l := New(40, false)
		now := time.Unix(1000, 0)
		var seq int64
		log := map[int64]broker.Event{}
		inFlight := map[int64]*Entry{}
		added, stored, held := map[string][]int64{}, map[string][]int64{}, map[string][]int64{}

		settle := func(t *rapid.T, o broker.Outcome) {
			if len(inFlight) == 0 {
				t.Skip("nothing is in flight") // rapid draws another action
			}
			seqs := make([]int64, 0, len(inFlight))
			for s := range inFlight {
				seqs = append(seqs, s)
			}
			slices.Sort(seqs)
			s := rapid.SampledFrom(seqs).Draw(t, "event")
			f, key := inFlight[s], inFlight[s].Key
			delete(inFlight, s)
			if o.Class != broker.Stored {
				l.Failed(f, o, now)
				return
			}
			l.Done(f, o.Stream, now)
			stored[key] = append(stored[key], s)
		}
		keep := func() {
			taken, _ := l.TakeHeld(1)
			for _, h := range taken {
				held[h.Key] = append(held[h.Key], h.Seq)
			}
		}
		send := func(t *rapid.T) {
			l.readBack(log)
			for _, f := range l.nextEntries(rapid.IntRange(1, 5).Draw(t, "window"), now) {
				for other, g := range inFlight {
					if f.Key != "" && g.Key == f.Key {
						t.Fatalf("%d was sent while %d of the same key is in flight", f.Seq, other)
					}
				}
				inFlight[f.Seq] = f
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				var page []broker.Event
				for range rapid.IntRange(1, 6).Draw(t, "events") {
					seq++
					key := rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "key")
					subject := rapid.SampledFrom([]string{"s", "t"}).Draw(t, "subject")
					page = append(page, broker.Event{Seq: seq, Event: postroom.Event{Key: key, Subject: subject}})
					added[key] = append(added[key], seq)
					log[seq] = page[len(page)-1]
				}
				l.Add(page)
				l.MakeRoom(now)
			},
			"send": send,
			"settle": func(t *rapid.T) {
				settle(t, rapid.SampledFrom(outcomes).Draw(t, "outcome"))
			},
			"record": func(*rapid.T) { keep() },
			"wait":   func(*rapid.T) { now = now.Add(500 * time.Millisecond) },
			"": func(t *rapid.T) {
				if l.sent != len(inFlight) {
					t.Fatalf("lanes count %d in flight, and there are %d", l.sent, len(inFlight))
				}
			},
		})

		for l.size+l.count > 0 {
			now = now.Add(3 * time.Second)
			send(t)
			for len(inFlight) > 0 {
				settle(t, outcomes[0])
			}
		}
		keep()
		for _, key := range []string{"a", "b"} {
			if !slices.Equal(slices.Concat(stored[key], held[key]), added[key]) {
				t.Errorf("key %s: stored %v, then held %v, added as %v", key, stored[key], held[key], added[key])
			}
		}
		if got := len(stored[""]) + len(held[""]); got != len(added[""]) {
			t.Errorf("%d events without a key were stored or held, %d added", got, len(added[""]))
		}
		if len(l.keys) > 0 || len(l.retries) > 0 || l.sent > 0 || l.bytes > 0 {
			t.Errorf("all is done, and the lanes still hold %d keys and %d retries", len(l.keys), len(l.retries))
		}
	})
}

func TestLanesDoNotLetOneFailingKeyHoldUpOthers(t *testing.T) {
	l := New(1000, false)
	now := time.Unix(0, 0)
	page := []broker.Event{{Seq: 1, Event: postroom.Event{Key: "bad"}}, {Seq: 2, Event: postroom.Event{Key: "bad"}}}
	for seq := int64(3); seq <= 50; seq++ {
		page = append(page, broker.Event{Seq: seq, Event: postroom.Event{Key: fmt.Sprint("good ", seq)}})
	}
	l.Add(page)
	for _, f := range l.nextEntries(100, now) {
		if f.Seq == 1 {
			l.Failed(f, errNoAnswer, now)
		} else {
			l.Done(f, "S", now)
		}
	}
	if l.size != 2 {
		t.Errorf("%d events are left, want the failing one and the one behind it", l.size)
	}
	if batch := l.nextEntries(100, now); len(batch) != 0 {
		t.Errorf("sent %d events before the failing one is due", len(batch))
	}
	if at, ok := l.NextRetry(); !ok || at.Before(now.Add(retryBackoff[0])) {
		t.Errorf("next retry at %s, %t; want after the first wait", at, ok)
	}
}

// An unavailable stream gets a few probes, and takes no room from other streams.
func TestLanesProbeAnUnavailableStream(t *testing.T) {
	l := New(1000, false)
	now := time.Unix(1000, 0)
	var page []broker.Event
	for seq := int64(1); seq <= 200; seq++ {
		subject := []string{"up", "down"}[seq%2]
		page = append(page, broker.Event{Seq: seq, Event: postroom.Event{Subject: subject}})
	}
	l.Add(page[:2]) // the streams of both subjects become known
	for _, f := range l.nextEntries(2, now) {
		l.Done(f, f.Subject, now)
	}
	l.Add(page[2:])
	sent, stored := 0, 0
	answer := func(f *Entry) {
		if f.Subject == "up" {
			l.Done(f, "up", now)
			stored++
			return
		}
		sent++
		l.Failed(f, broker.Outcome{Class: broker.Unavailable, Stream: "down", Err: broker.ErrNoLeader}, now)
	}
	now = now.Add(time.Second)
	for _, f := range l.nextEntries(10, now) {
		answer(f)
	}
	for range 100 {
		now = now.Add(100 * time.Millisecond)
		for _, f := range l.nextEntries(100, now) {
			answer(f)
		}
	}
	if stored != 99 {
		t.Errorf("%d events of the stream that is up were stored, want 99", stored)
	}
	if most := 200 + maxProbes*15; sent > most {
		t.Errorf("sent %d events in 10 s to a stream that is out, want at most %d", sent, most)
	}
	if len(l.held) > 0 {
		t.Errorf("%d events are held, and an outage holds none", len(l.held))
	}
	now = now.Add(5 * time.Second)
	for l.size > 0 {
		batch := l.nextEntries(100, now)
		if len(batch) == 0 {
			t.Fatalf("%d events are left and none is sent, though the stream is back", l.size)
		}
		for _, f := range batch {
			l.Done(f, "down", now)
		}
	}
}

func TestLanesHoldRefusedEventsWhileOthersPass(t *testing.T) {
	refused := errors.New("no")
	tests := []struct {
		name   string
		o      broker.Outcome
		others bool // other events are stored meanwhile
		covers bool // some subject has a stream
		held   bool
		dead   bool
		spent  int // attempts
	}{
		{"permanent, at once", broker.Outcome{Class: broker.Permanent, Err: refused}, false, false, true, true, 1},
		{"refused, and others pass", broker.Outcome{Class: broker.Refused, Stream: "S", Err: refused}, true, false, true, false, 1},
		{"refused, as all are", broker.Outcome{Class: broker.Refused, Stream: "S", Err: refused}, false, false, false, false, 0},
		{"no room, and others pass", broker.Outcome{Class: broker.Unavailable, Stream: "S", Err: refused}, true, false, true, false, 0},
		{"no room for any", broker.Outcome{Class: broker.Unavailable, Stream: "S", Err: refused}, false, false, false, false, 0},
		{"no stream, and others pass", broker.Outcome{Class: broker.Unroutable, Err: broker.ErrNoStream}, true, false, true, false, 0},
		{"no stream, and others have one", broker.Outcome{Class: broker.Unroutable, Err: broker.ErrNoStream}, false, true, true, false, 0},
		{"no stream for any", broker.Outcome{Class: broker.Unroutable, Err: broker.ErrNoStream}, false, false, false, false, 0},
		{"no answer, and others pass", errNoAnswer, true, false, false, false, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := New(1000, false)
			l.covered = tt.covers
			now := time.Unix(1000, 0)
			l.Add([]broker.Event{{Seq: 1, Event: postroom.Event{Key: "k", Subject: "s"}}, {Seq: 2, Event: postroom.Event{Key: "k", Subject: "s"}}})
			for seq := int64(3); now.Before(time.Unix(1010, 0)); seq++ {
				if tt.others {
					l.Add([]broker.Event{{Seq: seq, Event: postroom.Event{Subject: "s"}}})
				}
				now = now.Add(100 * time.Millisecond)
				for _, f := range l.nextEntries(10, now) {
					if f.Key == "" {
						l.Done(f, "S", now)
					} else {
						l.Failed(f, tt.o, now)
					}
				}
			}
			if !tt.held {
				if len(l.held) > 0 || l.size != 2 {
					t.Fatalf("held %+v, want no event", l.held)
				}
				return
			}
			if len(l.held) != 2 || l.held[0].Seq != 1 || l.held[1].Seq != 2 || l.held[0].Failure == nil || l.held[1].Failure != nil {
				t.Fatalf("held %+v, want the refused event and the one behind it", l.held)
			}
			if f := l.held[0].Failure; f.Dead != tt.dead || f.Attempts != tt.spent || f.Text == "" || f.Class == "" {
				t.Errorf("failure %+v, want dead %t with %d attempts", f, tt.dead, tt.spent)
			}
			l.Add([]broker.Event{{Seq: 9999, Event: postroom.Event{Key: "k"}}})
			if n := len(l.held); n != 3 || l.size != 0 {
				t.Errorf("a later event of the key did not follow it")
			}
		})
	}
}

// If an event from held is refused, it goes back at once, with one attempt more. After the
// last attempt it is dead.
func TestLanesHoldARefusedEventAgain(t *testing.T) {
	for spent := range maxAttempts {
		l := New(1000, false)
		now := time.Unix(1000, 0)
		l.Add([]broker.Event{
			{Seq: 1, Held: true, Attempts: spent, Event: postroom.Event{Key: "k"}},
			{Seq: 2, Held: true, Event: postroom.Event{Key: "k"}},
			{Seq: 3, Event: postroom.Event{Key: "other"}},
		})
		batch := l.nextEntries(10, now)
		l.Done(batch[1], "S", now.Add(time.Millisecond))
		l.Failed(batch[0], broker.Outcome{Class: broker.Refused, Err: errors.New("no")}, now.Add(time.Millisecond))
		if len(l.held) != 1 || l.held[0].Failure.Attempts != spent+1 || l.held[0].Failure.Dead != (spent+1 == maxAttempts) {
			t.Errorf("after %d attempts: held %+v", spent, l.held)
		}
		if !slices.Equal(l.returned, []int64{2}) {
			t.Errorf("returned %v, want the one behind it", l.returned)
		}
	}
}

// If refused events take a quarter of the room, they go to held long before their time.
func TestLanesMakeRoom(t *testing.T) {
	l := New(100, false)
	now := time.Unix(1000, 0)
	var page []broker.Event
	for seq := int64(1); seq <= 30; seq++ {
		page = append(page, broker.Event{Seq: seq, Event: postroom.Event{Key: "bad"}})
	}
	l.Add(append(page, broker.Event{Seq: 31, Event: postroom.Event{Key: "good"}}))
	refuse := func() {
		for _, f := range l.nextEntries(10, now) {
			if f.Key == "good" {
				l.Done(f, "S", now.Add(time.Millisecond))
			} else {
				l.Failed(f, broker.Outcome{Class: broker.Refused, Err: errors.New("no")}, now)
			}
		}
	}
	refuse()
	now = now.Add(10 * time.Millisecond)
	l.MakeRoom(now)
	refuse()
	if len(l.held) != 30 {
		t.Errorf("%d events are held after 10 ms, want all 30 of the key", len(l.held))
	}
}

// A key is free again when the database says so, unless a later recording is about to hold an
// event of it.
func TestLanesFreeKeys(t *testing.T) {
	l := New(100, false)
	l.Block([]string{"a"}, 0)
	follows := func(seq int64, key string) bool {
		before := len(l.held)
		l.Add([]broker.Event{{Seq: seq, Event: postroom.Event{Key: key}}})
		return len(l.held) > before
	}
	if !follows(1, "a") || follows(2, "b") {
		t.Error("events of a key in held follow it, others do not")
	}
	l.Block(nil, 5)
	if !follows(3, "a") {
		t.Error("a key was freed while an event of it waits to be recorded")
	}
	l.TakeHeld(7)
	l.Block(nil, 6)
	if !follows(4, "a") {
		t.Error("a key was freed by a look that was taken before its event was recorded")
	}
	l.TakeHeld(8)
	l.Block(nil, 8)
	if follows(5, "a") {
		t.Error("a key stays blocked although no event of it is held")
	}
}

// Only some events may share an acknowledgement.
func TestUsualEvents(t *testing.T) {
	t.Parallel()
	now := time.Now()
	logged := func(seq int64, key string) broker.Event {
		return broker.Event{Seq: seq, Event: postroom.Event{Subject: "a.b", Key: key}}
	}
	l := New(100, false)
	l.Add([]broker.Event{logged(1, "a")})
	first := l.nextEntries(1, now)[0]
	if first.AckGroup != "" {
		t.Error("an event is usual whose stream is not known")
	}
	l.Done(first, "S", now)

	l.Add([]broker.Event{logged(2, "a"), logged(3, "b"), logged(4, "b")})
	l.Add([]broker.Event{{Seq: 5, Held: true, Event: postroom.Event{Subject: "a.b"}}})
	batch := l.nextEntries(10, now)
	for i, want := range []bool{true, false, false} { // alone in its lane; with another behind it; from held
		if got := batch[i].AckGroup != ""; got != want {
			t.Errorf("event %d usual: %v, want %v", batch[i].Seq, got, want)
		}
	}
	batch[0].tries++
	l.Requeue(messagesOf(batch[:1]))
	batch = l.nextEntries(10, now.Add(time.Minute))
	if len(batch) != 1 || batch[0].Seq != 2 || batch[0].AckGroup != "" {
		t.Errorf("sent again: %v, want event 2, which is not usual", batch)
	}

	l = New(100, false)
	l.Add([]broker.Event{logged(1, "a"), logged(2, "b")})
	f := l.nextEntries(1, now)[0]
	l.Done(f, "S", now)
	l.streams["S"].unavailable, l.streams["S"].nextProbe = true, now
	if batch := l.nextEntries(1, now); len(batch) == 1 && batch[0].AckGroup != "" {
		t.Error("an event is usual whose stream takes none")
	}
}

// A busy relay adds a hundred thousand events a second. An entry has some hundred bytes, so
// the scheduler uses each one again.
func TestEntriesAreUsedAgain(t *testing.T) {
	l, now := New(1000, false), time.Unix(1000, 0)
	page := make([]broker.Event, 100)
	for i := range page {
		page[i] = broker.Event{Seq: int64(i + 1), Event: postroom.Event{Key: fmt.Sprint(i)}}
	}
	allocs := testing.AllocsPerRun(20, func() {
		l.Add(page)
		for _, m := range l.Next(len(page), now) {
			l.Done(m.Owner.(*Entry), "S", now)
		}
	})
	if l.Size() != 0 {
		t.Fatalf("%d events are left", l.Size())
	}
	if allocs > 20 { // the list of messages grows
		t.Errorf("%d events cost %v allocations", len(page), allocs)
	}
}
