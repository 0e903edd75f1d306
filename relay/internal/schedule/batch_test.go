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

// In atomic batches, the events of a key that are in flight are in one batch, in their order.
// Whatever happens to single events and to whole batches, the events of a key are stored in
// their order. Each event is stored or held, and after the first held one all later ones of
// its key are held.
func TestLanesKeepTheOrderInBatches(t *testing.T) {
	failures := []broker.Outcome{
		errNoAnswer,
		{Class: broker.Unavailable, Stream: "S", Err: broker.ErrNoLeader},
		{Class: broker.Refused, Stream: "S", Err: errors.New("no")},
		{Class: broker.Permanent, Err: errors.New("never")},
	}
	rapid.Check(t, func(t *rapid.T) {
		l := New(40, false)
		l.batching = true
		now := time.Unix(1000, 0)
		var seq int64
		log := map[int64]broker.Event{}
		var open [][]*Entry // batches in flight
		added, stored, held := map[string][]int64{}, map[string][]int64{}, map[string][]int64{}

		// settle reports the outcomes of a batch as a publisher does: one by one if some
		// events fail.
		settle := func(t *rapid.T, fail bool) {
			if len(open) == 0 {
				t.Skip("nothing is in flight") // rapid draws another action
			}
			n := rapid.IntRange(0, len(open)-1).Draw(t, "batch")
			batch := open[n]
			open = slices.Delete(open, n, n+1)
			outcomes := make([]broker.Outcome, len(batch))
			missed := map[string]bool{}
			for i, f := range batch {
				outcomes[i] = broker.Outcome{Class: broker.Stored, Stream: f.Subject}
				switch key := f.Key; {
				case missed[key] && key != "":
					outcomes[i] = broker.Outcome{Class: broker.BlockedByKey, Err: broker.ErrBlockedByKey}
				case fail && rapid.IntRange(0, 2).Draw(t, "fails") == 0:
					outcomes[i] = rapid.SampledFrom(failures).Draw(t, "failure")
					if outcomes[i].Stream != "" {
						outcomes[i].Stream = f.Subject
					}
					f.Isolated = rapid.Bool().Draw(t, "alone")
					missed[key] = true
				}
			}
			for i := len(batch) - 1; i >= 0; i-- {
				if outcomes[i].Class == broker.BlockedByKey {
					l.ReturnBlocked(batch[i])
				}
			}
			for i, f := range batch {
				switch outcomes[i].Class {
				case broker.BlockedByKey:
				case broker.Stored:
					stored[f.Key] = append(stored[f.Key], f.Seq)
					l.Done(f, outcomes[i].Stream, now)
				default:
					l.Failed(f, outcomes[i], now)
				}
			}
		}
		keep := func() {
			taken, _ := l.TakeHeld(1)
			for _, h := range taken {
				held[h.Key] = append(held[h.Key], h.Seq)
			}
		}
		send := func(t *rapid.T) {
			l.readBack(log)
			batch := l.nextEntries(rapid.IntRange(1, 8).Draw(t, "window"), now)
			last, streams := map[string]int64{}, map[string]string{}
			for _, f := range batch {
				if f.Key == "" {
					continue
				}
				if to, ok := streams[f.Key]; ok && to != f.Subject { // as the stream is called
					t.Fatalf("event %d is sent to stream %s, and another of its key in the batch to %s", f.Seq, f.Subject, to)
				}
				streams[f.Key] = f.Subject
				if last[f.Key] >= f.Seq {
					t.Fatalf("%d comes after %d of its key", f.Seq, last[f.Key])
				}
				last[f.Key] = f.Seq
				for _, other := range open {
					if slices.ContainsFunc(other, func(g *Entry) bool { return g.Key == f.Key }) {
						t.Fatalf("%d was sent while another batch has events of its key", f.Seq)
					}
				}
			}
			if rapid.IntRange(0, 4).Draw(t, "find fault") == 0 {
				batch = refuseSome(t, l, batch, now)
			}
			if rapid.IntRange(0, 9).Draw(t, "unsend") == 0 {
				l.Requeue(messagesOf(batch))
			} else if len(batch) > 0 {
				open = append(open, batch)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				var page []broker.Event
				for range rapid.IntRange(1, 6).Draw(t, "events") {
					seq++
					key := rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "key")
					subject := rapid.SampledFrom([]string{"s", "s", "t"}).Draw(t, "subject")
					page = append(page, broker.Event{Seq: seq, Event: postroom.Event{Key: key, Subject: subject}})
					added[key] = append(added[key], seq)
					log[seq] = page[len(page)-1]
				}
				l.Add(page)
				l.MakeRoom(now)
			},
			"send":   send,
			"store":  func(t *rapid.T) { settle(t, false) },
			"fail":   func(t *rapid.T) { settle(t, true) },
			"record": func(*rapid.T) { keep() },
			"wait":   func(*rapid.T) { now = now.Add(500 * time.Millisecond) },
			"": func(t *rapid.T) {
				flying := 0
				for _, batch := range open {
					flying += len(batch)
				}
				if l.sent != flying {
					t.Fatalf("lanes count %d in flight, and there are %d", l.sent, flying)
				}
			},
		})

		for rounds := 0; l.size+l.count > 0; rounds++ {
			if rounds > 1000 {
				t.Fatalf("%d events are left, and none passes", l.size)
			}
			now = now.Add(3 * time.Second)
			send(t)
			for len(open) > 0 {
				settle(t, false)
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

// refuseSome refuses some events of a batch before the batch is sent, even events behind others of
// their keys. It returns the events that are left to send.
func refuseSome(t *rapid.T, l *Scheduler, batch []*Entry, now time.Time) (left []*Entry) {
	var refused, behind []*Entry
	for _, f := range batch {
		switch {
		case f.Key != "" && slices.ContainsFunc(refused, func(g *Entry) bool { return g.Key == f.Key }):
			behind = append(behind, f)
		case rapid.IntRange(0, 3).Draw(t, "faulty") == 0:
			refused = append(refused, f)
		default:
			left = append(left, f)
		}
	}
	for _, f := range slices.Backward(behind) {
		l.ReturnBlocked(f)
	}
	for _, f := range refused {
		l.Failed(f, broker.Outcome{Class: broker.Permanent, Err: errors.New("never")}, now)
	}
	return left
}

// An event goes in one batch with the events behind it, until the batch is full. If the broker
// refused an event, it goes alone. So do the probes of an unavailable stream.
func TestLanesFillBatches(t *testing.T) {
	l := New(10_000, false)
	l.batching = true
	now := time.Unix(1000, 0)
	var page []broker.Event
	for seq := int64(1); seq <= 1500; seq++ {
		page = append(page, broker.Event{Seq: seq, Event: postroom.Event{Key: "hot", Subject: "s"}})
	}
	l.Add(page)
	batch := l.nextEntries(3000, now)
	if len(batch) != broker.MaxBatch {
		t.Fatalf("%d events of a key in a batch, want %d", len(batch), broker.MaxBatch)
	}
	if more := l.nextEntries(3000, now); len(more) > 0 {
		t.Fatalf("%d events of the key were sent at the same time as its batch", len(more))
	}
	for _, f := range batch[1:] {
		l.ReturnBlocked(f)
	}
	batch[0].Isolated = true
	l.Failed(batch[0], broker.Outcome{Class: broker.Refused, Stream: "S", Err: errors.New("no")}, now)
	now = now.Add(time.Second)
	if batch = l.nextEntries(3000, now); len(batch) != 1 {
		t.Fatalf("%d events were sent along with one that was refused", len(batch)-1)
	}
	l.Done(batch[0], "S", now)
	if batch = l.nextEntries(3000, now); len(batch) != broker.MaxBatch {
		t.Errorf("%d events in a batch after it, want %d", len(batch), broker.MaxBatch)
	}
}

// A part of a batch is requeued, and a later event of its key has no outcome yet. That event is not
// sent a second time until it has one.
func TestBatchHasNoEventWithoutOutcome(t *testing.T) {
	t.Parallel()
	l, now := New(100, true), time.Unix(1000, 0)
	l.Add([]broker.Event{{Seq: 1, Event: postroom.Event{Key: "k", Subject: "s"}}, {Seq: 2, Event: postroom.Event{Key: "k", Subject: "s"}}})
	both := l.nextEntries(10, now)
	l.Requeue(messagesOf(both[:1]))
	if again := l.nextEntries(10, now); len(both) != 2 || len(again) != 1 || again[0].Seq != 1 {
		t.Fatalf("a batch of %d events, and after it one of %d, want 2 and 1", len(both), len(again))
	}
	l.ReturnBlocked(both[1])
	l.Done(both[0], "S", now)
	if last := l.nextEntries(10, now); len(last) != 1 || last[0].Seq != 2 {
		t.Errorf("then a batch of %d events, want event 2", len(last))
	}
}

// A batch ends before its data exceeds the most bytes that a batch may have.
func TestLanesBoundTheBytesOfABatch(t *testing.T) {
	for _, batching := range []bool{true, false} {
		t.Run(fmt.Sprint("atomic ", batching), func(t *testing.T) {
			l := New(1000, false)
			l.batching = batching
			var page []broker.Event
			for seq := int64(1); seq <= 20; seq++ {
				page = append(page, broker.Event{Seq: seq, Event: postroom.Event{Data: make([]byte, broker.MaxBatchBytes/8)}})
			}
			l.Add(page)
			want := 20
			if batching {
				want = 8
			}
			if got := len(l.nextEntries(100, time.Unix(1000, 0))); got != want {
				t.Errorf("%d events in a batch, want %d", got, want)
			}
		})
	}
}

// An event of a republish can stop blocking its key at any time. Then no later event of its
// key may be in its batch, because the later event would be stored even if that one is not.
func TestBatchHasNoEventBehindOneOfARepublish(t *testing.T) {
	t.Parallel()
	l := New(100, false)
	l.batching = true
	event := func(seq, republish int64) broker.Event {
		return broker.Event{Seq: seq, RepublishID: republish, Event: postroom.Event{Subject: "a.b", Key: "k"}}
	}
	l.Add([]broker.Event{event(1, 7), event(2, 0), event(3, 0)})
	var sent []int64
	for _, f := range l.nextEntries(10, time.Now()) {
		sent = append(sent, f.Seq)
	}
	if fmt.Sprint(sent) != "[1]" {
		t.Errorf("a batch of %v, want the event of the republish by itself", sent)
	}
}
