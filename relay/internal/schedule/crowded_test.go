package schedule

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/relay/broker"
)

func keyed(seq int64, key string) broker.Event {
	return broker.Event{Seq: seq, Event: postroom.Event{Key: key, Subject: "s"}}
}

// The events of one key are sent one after the other. If they come faster, they do not fill the
// memory: some are put back into the log, and events of other keys find room. In an outage they stay.
func TestAHotKeyLeavesRoomForOthers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		size   int // of the data of each event
		stored bool
		want   int // events of the key that stay
	}{
		{"many events", 0, true, 1000 / crowdShare},
		{"large events", MaxBytes/40 + 1, true, 10},
		{"in an outage", 0, false, 999},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l, now := New(1000, false), time.Unix(1000, 0)
			l.Add([]broker.Event{keyed(1, "other")})
			first := l.nextEntries(1, now)
			if tt.stored {
				l.Done(first[0], "S", now)
			}
			for seq := int64(2); seq <= 1000; seq++ {
				ev := keyed(seq, "hot")
				ev.Data = make([]byte, tt.size)
				l.Add([]broker.Event{ev})
			}
			stay := l.Size()
			if !tt.stored {
				stay-- // the other one
			}
			back := l.TakePutBack()
			if stay != tt.want || len(back) != 999-tt.want || len(l.held) > 0 {
				t.Errorf("%d events of the key stay, %d are put back and %d are held, want %d that stay", stay, len(back), len(l.held), tt.want)
			}
		})
	}
}

// The events that were put back are read again when half of the others are sent, and come out in
// their order. If so many are put back that the list is long, no new ones are read.
func TestEventsThatWerePutBackAreReadAgain(t *testing.T) {
	t.Parallel()
	const limit, n = 100, 1000
	l, now := New(limit, false), time.Unix(1000, 0)
	l.mayPutBack = 1
	for seq := int64(1); seq <= n+limit/crowdShare; seq++ {
		l.Add([]broker.Event{keyed(seq, "hot")})
	}
	if !l.IsPutBackFull() || l.Size() != limit/crowdShare {
		t.Errorf("%d events are here, and the list of others is full: %t", l.Size(), l.IsPutBackFull())
	}
	var sent []int64
	for range 10_000 {
		if asked := l.Ask(); len(asked) > 0 {
			if l.Size() >= limit/crowdShare/2 || !l.IsReadingAgain() {
				t.Fatalf("%d events are here when %d are read again", l.Size(), len(asked))
			}
			half := asked[:(len(asked)+1)/2] // as a page that its bytes end
			var events []broker.Event
			for _, seq := range half {
				if seq != 500 { // it is missing
					events = append(events, keyed(seq, "hot"))
				}
			}
			l.AddAgain(events, half[len(half)-1])
		}
		for _, e := range l.nextEntries(10, now) {
			sent = append(sent, e.Seq)
			l.Done(e, "S", now)
		}
	}
	if len(sent) != n+limit/crowdShare-1 || !slices.IsSorted(sent) || slices.Contains(sent, 500) {
		t.Errorf("%d events were sent, in their order: %t", len(sent), slices.IsSorted(sent))
	}
	if l.IsPutBackFull() || l.count != 0 || len(l.keys)+len(l.crowded) > 0 || l.Size() > 0 {
		t.Errorf("all are sent, and %d count as put back, with %d keys", l.count, len(l.keys))
	}
}

// While events of a key are read again, the first event of the key is refused: the others follow it to
// held. What was read is not published before it.
func TestEventsThatAreReadAgainFollowOneThatIsRefused(t *testing.T) {
	t.Parallel()
	l, now := New(100, false), time.Unix(1000, 0)
	l.mayPutBack = 1
	for seq := int64(1); seq <= 100; seq++ {
		l.Add([]broker.Event{keyed(seq, "hot")})
	}
	first := l.nextEntries(1, now)[0]
	for range 100/crowdShare - 5 { // until there is room for others
		l.Done(first, "S", now)
		first = l.nextEntries(1, now)[0]
	}
	asked := l.Ask()
	if len(asked) == 0 {
		t.Fatal("inconclusive: no event is read again")
	}
	if _, held := l.Failed(first, broker.Outcome{Class: broker.Permanent, Err: errors.New("too large")}, now); held == nil {
		t.Fatal("inconclusive: the event is not held")
	}
	var events []broker.Event
	for _, seq := range asked {
		events = append(events, keyed(seq, "hot"))
	}
	l.AddAgain(events, asked[len(asked)-1])
	if sent := l.nextEntries(100, now); len(sent) > 0 {
		t.Errorf("%d events are sent before one that is held, the first is %d", len(sent), sent[0].Seq)
	}
}

// heldTable is the table held of a relay that publishes, and the log before it.
type heldTable struct {
	*Scheduler

	now       time.Time
	rows      map[int64]string // seq and key of held events
	reading   map[int64]bool   // held events that were read and have no recorded result
	seq       int64
	recording int64
	allStored int64 // the last recording all of whose events are stored
	pending   []heldBy
	done      []int64 // published, not recorded
	stored    map[string][]int64
	written   map[string][]int64
	direct    int // events that were published without going through the table
	keyOf     map[int64]string
	gone      map[int64]bool // events of the log that are held or published
	late      func()         // adds the events that are being read again
}

// heldBy is an event that a recording has taken and not stored.
type heldBy struct {
	eventlog.Deferral

	recording int64
}

func newHeldTable(limit int) *heldTable {
	return &heldTable{
		Scheduler: New(limit, false), now: time.Unix(1000, 0), rows: map[int64]string{}, reading: map[int64]bool{},
		stored: map[string][]int64{}, written: map[string][]int64{}, keyOf: map[int64]string{}, gone: map[int64]bool{},
	}
}

// pass reads n new events, and the held events that are due: those of each key whose first event is
// not being published, at most some of them.
func (h *heldTable) pass(keys []string, some int) {
	before := h.allStored
	var page []broker.Event
	for _, key := range keys {
		h.seq++
		page = append(page, keyed(h.seq, key))
		h.keyOf[h.seq] = key
		h.written[key] = append(h.written[key], h.seq)
	}
	byKey := map[string][]int64{}
	for seq, key := range h.rows {
		byKey[key] = append(byKey[key], seq)
	}
	for _, key := range []string{"a", "b"} {
		seqs := byKey[key]
		slices.Sort(seqs)
		if len(seqs) == 0 || h.reading[seqs[0]] {
			continue
		}
		for i, seq := range seqs[:min(some, len(seqs))] {
			if h.reading[seq] {
				continue
			}
			ev := keyed(seq, key)
			ev.Held, ev.LastHeld = true, i == len(seqs)-1
			h.reading[seq] = true
			page = append(page, ev)
		}
	}
	h.SetRecorded(before)
	h.Add(page)
}

// record stores what happened. Of the events for the table it stores at most some, and the next
// recordings store the others.
func (h *heldTable) record(some int) {
	h.recording++
	held, returned := h.TakeHeld(h.recording)
	for _, d := range held {
		h.pending = append(h.pending, heldBy{d, h.recording})
	}
	for _, d := range h.pending[:min(some, len(h.pending))] {
		h.rows[d.Seq], h.gone[d.Seq] = d.Key, true
		delete(h.reading, d.Seq)
	}
	h.pending = h.pending[min(some, len(h.pending)):]
	if h.allStored = h.recording; len(h.pending) > 0 {
		h.allStored = h.pending[0].recording - 1
	}
	for _, seq := range returned {
		delete(h.reading, seq)
	}
	for _, seq := range h.done {
		delete(h.rows, seq)
		delete(h.reading, seq)
	}
	h.done = nil
}

// again reads events again that were put back: all, or a part.
func (h *heldTable) again(t *rapid.T) {
	asked := h.Ask()
	if len(asked) == 0 {
		return
	}
	n := len(asked)
	if t != nil {
		n = rapid.IntRange(1, n).Draw(t, "again")
	}
	var events []broker.Event
	for _, seq := range asked[:n] {
		if !h.gone[seq] { // of those that are held or published meanwhile
			events = append(events, keyed(seq, h.keyOf[seq]))
		}
	}
	h.late = func() { h.AddAgain(events, asked[n-1]) }
}

// look asks for the keys that have events in the table.
func (h *heldTable) look() {
	var keys []string
	for _, key := range h.rows {
		keys = append(keys, key)
	}
	h.Block(keys, h.allStored)
}

// publish sends some events. The function fails says which of them the broker refuses.
func (h *heldTable) publish(n int, fails func() bool) {
	for _, e := range h.nextEntries(n, h.now) {
		h.now = h.now.Add(time.Millisecond)
		if fails() {
			h.Failed(e, broker.Outcome{Class: broker.Permanent, Err: errors.New("no")}, h.now)
			continue
		}
		if !e.Held {
			h.direct++
		}
		h.stored[e.Key] = append(h.stored[e.Key], e.Seq)
		h.done, h.gone[e.Seq] = append(h.done, e.Seq), true
		h.Done(e, "S", h.now)
	}
}

func never() bool { return false }

// A key that was held becomes free although its writers go on all the time: as soon as all its
// events of the table are read, new events follow these without going through the table.
func TestAKeyLeavesHeldWhileItsWritersGoOn(t *testing.T) {
	t.Parallel()
	h := newHeldTable(1000)
	h.pass([]string{"a", "a", "a"}, 100)
	once := true
	h.publish(1, func() bool { refused := once; once = false; return refused })
	for round := range 100 {
		h.pass([]string{"a"}, 100)
		h.record(100)
		h.pass([]string{"a"}, 100)
		h.publish(100, never)
		h.publish(100, never)
		h.publish(100, never)
		if h.direct > 0 {
			t.Logf("free after %d rounds", round)
			break
		}
	}
	if h.direct == 0 {
		t.Error("each event of the key goes through the table, as long as its writers go on")
	}
	if !slices.IsSorted(h.stored["a"]) {
		t.Errorf("published %v, which is not the order of the key", h.stored["a"])
	}
}

// Whatever is refused, read and recorded when: the events of each key are stored in their order, and
// each once.
func TestLanesKeepTheOrderThroughHeld(t *testing.T) {
	direct, crowded := 0, 0
	defer func() {
		if direct == 0 || crowded == 0 {
			t.Errorf("inconclusive: %d events of blocked keys were published at once, and %d keys had too many", direct, crowded)
		}
	}()
	rapid.Check(t, func(t *rapid.T) {
		h := newHeldTable(40)
		refuse := func() bool { return rapid.IntRange(0, 19).Draw(t, "refused") == 0 }
		t.Repeat(map[string]func(*rapid.T){
			"pass": func(t *rapid.T) {
				keys := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "a", "b"}), 0, 6).Draw(t, "keys")
				if h.Size() < 40 {
					h.pass(keys, rapid.IntRange(1, 8).Draw(t, "some"))
				}
			},
			"record": func(t *rapid.T) { h.record(rapid.IntRange(1, 10).Draw(t, "some")) },
			"look":   func(*rapid.T) { h.look() },
			"again": func(t *rapid.T) {
				if h.late != nil {
					h.late()
					h.late = nil
					return
				}
				h.again(t)
			},
			"publish": func(t *rapid.T) { h.publish(rapid.IntRange(1, 6).Draw(t, "window"), refuse) },
			"": func(t *rapid.T) {
				for key, seqs := range h.stored {
					if !slices.IsSorted(seqs) {
						t.Fatalf("key %s: stored %v", key, seqs)
					}
				}
				for key, b := range h.blocked {
					if b.open && h.keys[key].events > 0 {
						direct++
					}
				}
				crowded += h.count
			},
		})
		for rounds := 0; h.Size()+h.count > 0 || len(h.rows) > 0 || h.HasHeld() || len(h.pending)+len(h.done) > 0; rounds++ {
			if rounds > 500 {
				t.Fatalf("%d events and %d held ones are left, and none passes", h.Size(), len(h.rows))
			}
			h.now = h.now.Add(10 * time.Second)
			h.publish(10, never)
			h.record(10)
			h.look()
			if h.late != nil {
				h.late()
				h.late = nil
			} else {
				h.again(nil)
			}
			if h.Size() < 40 { // as the dispatcher does
				h.pass(nil, 8)
			}
		}
		for key, seqs := range h.written {
			if !slices.Equal(h.stored[key], seqs) {
				t.Errorf("key %s: stored %v, written %v", key, h.stored[key], seqs)
			}
		}
		if got := fmt.Sprint(h.Size(), h.Bytes(), len(h.keys)); got != "0 0 0" {
			t.Errorf("all is stored, and the lanes hold %s events, bytes and keys", got)
		}
	})
}

// Headers count for the bytes of events, and for those of a batch.
func TestHeadersCount(t *testing.T) {
	t.Parallel()
	l := New(1000, true)
	ev := keyed(1, "")
	ev.Headers = map[string]string{"h": string(make([]byte, broker.MaxBatchBytes/2))}
	l.Add([]broker.Event{ev, ev, ev})
	if got, want := l.Bytes(), 3*(broker.MaxBatchBytes/2+1); got != want {
		t.Errorf("the events have %d bytes, want %d", got, want)
	}
	batch := l.nextEntries(10, time.Unix(1000, 0))
	if len(batch) != 2 {
		t.Errorf("a batch of %d events, want two", len(batch))
	}
	for _, e := range batch {
		l.Done(e, "S", time.Unix(1000, 0))
	}
	for _, e := range l.nextEntries(10, time.Unix(1000, 0)) {
		l.Done(e, "S", time.Unix(1000, 0))
	}
	if l.Bytes() != 0 {
		t.Errorf("no event is left, and %d bytes are counted", l.Bytes())
	}
}
