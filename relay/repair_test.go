package relay_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/metric"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/relay"
	"github.com/postroom/postroom/relay/broker"
)

// recordingSource is a fakeSource that records which events it published: all that are done.
type recordingSource struct {
	*fakeSource

	stuck    chan struct{} // if set, a search reads the sources of the log only when this is closed
	searches *atomic.Int64 // how many searches have begun
}

func (c recordingSource) Positions(context.Context) ([]broker.StreamPosition, error) {
	return nil, nil
}

func (c recordingSource) Sources(ctx context.Context) ([]string, error) {
	if c.stuck != nil {
		c.searches.Add(1)
		select {
		case <-c.stuck:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return []string{"/shop"}, nil
}

func (c recordingSource) Checkpoints(context.Context, string) ([]eventlog.Checkpoint, error) {
	return nil, nil
}

func (c recordingSource) Entries(context.Context, eventlog.Checkpoint, time.Time, bool) (func(context.Context) ([]eventlog.HistoryEntry, error), error) {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	var all []eventlog.HistoryEntry
	for _, ev := range c.Events {
		all = append(all, eventlog.HistoryEntry{Published: c.Done[ev.Seq], Seq: ev.Seq, Source: ev.Source, ID: ev.ID, Subject: ev.Subject, Key: ev.Key, CreatedAt: time.Now(), LoggedAt: time.Now()})
	}
	return func(context.Context) ([]eventlog.HistoryEntry, error) {
		page := all
		all = nil
		return page, nil
	}, nil
}

// memory is a stream in memory that can forget.
type memory struct {
	*fakePublisher

	mu       sync.Mutex
	created  time.Time
	messages []string // ids, by sequence
	away     error    // if set, the stream does not answer
	broken   int      // how often the reading of messages fails
	compared int
	takes    time.Duration // how long a comparison takes, by the clock of synctest
}

func newMemory() *memory {
	m := &memory{created: time.Now()}
	m.fakePublisher = &fakePublisher{stream: "SHOP"}
	m.store = func(ev broker.Event) uint64 {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.messages = append(m.messages, ev.ID)
		return uint64(len(m.messages))
	}
	return m
}

func (m *memory) set(change func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
}

func (m *memory) ids() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.messages)
}

func (m *memory) Compare(ctx context.Context, at broker.StreamPosition) (broker.StreamState, error) {
	if strings.HasPrefix(at.Stream, "NEW") { // such a stream was made again
		return broker.StreamState{Verdict: broker.Recreated, Limits: true, Last: broker.StreamPosition{Stream: at.Stream}}, nil
	}
	if at.Stream != "SHOP" { // such a stream does not answer
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		<-ctx.Done()
		return broker.StreamState{}, ctx.Err()
	}
	time.Sleep(m.takes)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.compared++
	if m.away != nil {
		return broker.StreamState{}, m.away
	}
	n := uint64(len(m.messages))
	s := broker.StreamState{
		Verdict: broker.Intact, First: 1, FirstTime: m.created, Subjects: []string{">"}, Limits: true,
		Last: broker.StreamPosition{Stream: at.Stream, Created: m.created, Seq: n},
	}
	if n > 0 {
		s.Last.MessageID = "/shop#" + m.messages[n-1]
	}
	switch {
	case !at.Created.IsZero() && !at.Created.Equal(m.created):
		s.Verdict = broker.Recreated
	case at.Seq > n, at.Seq > 0 && at.MessageID != "/shop#"+m.messages[at.Seq-1]:
		s.Verdict = broker.LostTail
	}
	return s, nil
}

func (m *memory) ReadStored(_ context.Context, _ string, span broker.SeqRange) (func(context.Context) ([]broker.StoredMessage, error), func(), error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.broken > 0 {
		m.broken--
		return nil, nil, errors.New("no consumer for you")
	}
	var all []broker.StoredMessage
	for i, id := range m.messages[:min(uint64(len(m.messages)), span.To)] {
		all = append(all, broker.StoredMessage{Seq: uint64(i + 1), Source: "/shop", ID: id}) //nolint:gosec // a few
	}
	return func(context.Context) ([]broker.StoredMessage, error) {
		page := all
		all = nil
		return page, nil
	}, func() {}, nil
}

// keyed returns n events of one key.
func keyed(n int) []broker.Event {
	all := make([]broker.Event, n)
	for i := range all {
		id := string(rune('a' + i))
		all[i] = broker.Event{Seq: int64(i + 1), Event: postroom.Event{ID: id, Source: "/shop", Type: "a.b", Subject: "a.b", Key: "k"}}
	}
	return all
}

// lossBench is a relay whose broker had the first events of its log.
type lossBench struct {
	src    recordingSource
	m      *memory
	r      *relay.Relay
	reader *sdk.ManualReader
}

// newLossBench returns a lossBench. Of the events of its log, the broker had the given number, and
// still has the number that it remembers.
func newLossBench(events, had, remembers int) *lossBench {
	b := &lossBench{src: recordingSource{fakeSource: newFakeSource(keyed(events)...)}, m: newMemory(), reader: sdk.NewManualReader()}
	for _, ev := range b.src.Events[:had] {
		b.src.Done[ev.Seq] = true
		if ev.Seq <= int64(remembers) {
			b.m.messages = append(b.m.messages, ev.ID)
		}
	}
	b.src.places = []broker.StreamPosition{{Stream: "SHOP", Created: b.m.created, Seq: uint64(had), MessageID: "/shop#" + b.src.Events[had-1].ID}} //nolint:gosec // a few
	b.r = relay.Over(b.src, b.m, relay.Config{MeterProvider: sdk.NewMeterProvider(sdk.WithReader(b.reader))})
	return b
}

// getStuck makes searches wait until the returned function is called.
func (b *lossBench) getStuck() (release func()) {
	b.src.stuck, b.src.searches = make(chan struct{}), new(atomic.Int64)
	b.r = relay.Over(b.src, b.m, relay.Config{})
	return func() { close(b.src.stuck) }
}

// write writes an event.
func (b *lossBench) write(ev broker.Event) {
	b.src.Set(func() {
		b.src.Events = append(b.src.Events, ev)
		now := b.src.terms[len(b.src.terms)-1]
		now.Unread = append(now.Unread, ev)
	})
}

// wantOneTerm expects that the relay has led for one term, in which it removed nothing from the log, and
// that the loss is not repaired yet.
func (b *lossBench) wantOneTerm(t *testing.T) {
	t.Helper()
	b.src.Set(func() {
		if n := len(b.src.terms); n > 1 {
			t.Errorf("%d terms, want 1", n)
		}
		if len(b.src.terms[0].pruned) > 0 {
			t.Error("the log was pruned before the lost events were found")
		}
		if b.src.places[0].Seq != 4 || len(b.src.lost)+len(b.src.late) > 0 {
			t.Errorf("position %+v, lost %v, late %v: no lost event is found yet", b.src.places[0], b.src.lost, b.src.late)
		}
	})
	if losses := b.r.Health().Losses; len(losses) != 1 || !losses[0].RepairedAt.IsZero() {
		t.Errorf("losses %+v", losses)
	}
}

func (b *lossBench) wantStored(t *testing.T, want ...string) {
	t.Helper()
	if got := b.m.ids(); !slices.Equal(got, want) {
		t.Errorf("the stream has %v, want %v", got, want)
	}
}

func TestLostTailIsPublishedBeforeNewEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newLossBench(5, 4, 2)
		b.m.broken = 3 // the repair has to begin again
		b.src.recorded = func(*fakeTerm, context.Context) error { time.Sleep(time.Second); return nil }
		run := start(b.r)
		after(10 * time.Second)
		run.stop()
		run.wait(t)
		b.wantStored(t, "a", "b", "c", "d", "e")
		losses := b.r.Health().Losses
		if len(losses) != 1 || losses[0].Verdict != broker.LostTail || losses[0].Events != 2 || losses[0].RepairedAt.IsZero() {
			t.Errorf("losses %+v", losses)
		}
		got := collect(t, b.reader)
		if n := got["postroom.relay.data_lost reason=lost_tail"]; n != 1 {
			t.Errorf("%v alarms, want 1 of one loss", n)
		}
		if n := got["postroom.relay.repaired.events"]; n != 2 {
			t.Errorf("%v events repaired, want 2", n)
		}
	})
}

// After a long pause all events of the log may be older than the retention, also those that the broker
// lost meanwhile. They stay in the log until the relay has compared the streams.
func TestNothingIsRemovedBeforeTheStreamsAreCompared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newLossBench(5, 4, 2)
		b.m.takes = 3 * time.Second
		began := time.Now()
		run := start(b.r)
		after(10 * time.Second)
		run.stop()
		run.wait(t)
		b.wantStored(t, "a", "b", "c", "d", "e")
		switch pruned := b.src.terms[0].pruned; {
		case len(pruned) == 0:
			t.Error("the log was not pruned later")
		case pruned[0].Sub(began) < b.m.takes:
			t.Errorf("the log was pruned after %s, before the streams were compared", pruned[0].Sub(began))
		}
	})
}

// A stream lost events and cannot be read. After a while the relay publishes new events all the same.
// The loss is not forgotten: no event is removed from the log before the lost ones are found, and the
// relay tries again now and then, and not all the time.
func TestARepairThatFailsIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newLossBench(5, 4, 2)
		b.m.broken = 1_000_000
		run := start(b.r)
		after(9 * time.Second)
		b.wantStored(t, "a", "b")
		after(21 * time.Second)
		b.wantStored(t, "a", "b", "e")
		b.wantOneTerm(t)
		for _, ev := range keyed(30)[5:] {
			b.write(ev)
			after(24 * time.Second)
		}
		if n := len(b.m.ids()); n < 20 {
			t.Errorf("the stream has %d events, want at least 20", n)
		}
		b.wantOneTerm(t)
		b.m.set(func() {
			if n := 1_000_000 - b.m.broken; n > 40 {
				t.Errorf("%d searches in ten minutes", n)
			}
			b.m.broken = 0
		})
		after(2 * time.Minute)
		run.stop()
		run.wait(t)
		if want := []int64{3, 4}; !slices.Equal(b.src.late, want) {
			t.Errorf("late %v, want %v", b.src.late, want)
		}
		if losses := b.r.Health().Losses; len(losses) != 1 || losses[0].Events != 2 || losses[0].RepairedAt.IsZero() {
			t.Errorf("losses %+v", losses)
		}
		if terms := b.src.terms; len(terms[len(terms)-1].pruned) == 0 {
			t.Error("the log was not pruned after the repair")
		}
	})
}

// A search for lost events takes long. After a while the relay publishes new events all the same, in the
// same term. When the search ends, the lost events are published again: by a republish if they have a
// key, because later events of the key may be published already. None of the events that were published
// meanwhile counts as lost.
func TestALongSearchStopsNoOtherEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newLossBench(6, 4, 2)
		b.src.Events[2].Key, b.src.Events[3].Key = "", "z" // no later event of z is published, but one could be
		release := b.getStuck()
		run := start(b.r)
		after(9 * time.Second)
		b.wantStored(t, "a", "b")
		after(2 * time.Second)
		b.wantStored(t, "a", "b", "e", "f")
		after(10 * time.Minute)
		b.write(keyed(7)[6])
		after(time.Second)
		b.wantStored(t, "a", "b", "e", "f", "g")
		b.wantOneTerm(t)
		release()
		after(time.Minute)
		run.stop()
		run.wait(t)
		b.wantStored(t, "a", "b", "e", "f", "g", "c")
		if !slices.Equal(b.src.lost, []int64{3}) || !slices.Equal(b.src.late, []int64{4}) {
			t.Errorf("lost %v, late %v, want 3 and 4", b.src.lost, b.src.late)
		}
		if losses := b.r.Health().Losses; len(losses) != 1 || losses[0].Events != 2 || losses[0].OutOfOrder != 1 || losses[0].RepairedAt.IsZero() {
			t.Errorf("losses %+v", losses)
		}
		if len(b.src.terms) != 1 || len(b.src.terms[0].pruned) == 0 {
			t.Errorf("%d terms, want one, in which the log was pruned after the repair", len(b.src.terms))
		}
	})
}

// A stream loses events, and during the search for them it loses some that were published meanwhile. The
// relay notices that after the search, also if a new term begins before its end.
func TestWhatIsLostDuringASearchIsFoundLater(t *testing.T) {
	for _, newTerm := range []bool{false, true} {
		t.Run(fmt.Sprint("a new term: ", newTerm), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newLossBench(6, 4, 2)
				release := b.getStuck()
				run := start(b.r)
				after(15 * time.Second)
				b.wantStored(t, "a", "b", "e", "f")
				b.m.set(func() { b.m.messages = b.m.messages[:3] })
				if newTerm {
					run.stop()
					run.wait(t)
					run = start(b.r)
					after(time.Second)
				}
				release()
				after(3 * time.Minute)
				run.stop()
				run.wait(t)
				b.wantStored(t, "a", "b", "e", "f")
				if !slices.Contains(b.src.late, 4) || !slices.Equal(b.src.lost, []int64{6}) {
					t.Errorf("lost %v, late %v, want 6, and 4 among the late ones", b.src.lost, b.src.late)
				}
			})
		})
	}
}

// A term that ends does not wait until its searches have found anything.
func TestSearchesEndWithTheirTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newLossBench(6, 4, 2)
		b.getStuck()
		run := start(b.r)
		after(time.Second)
		began := time.Now()
		run.stop()
		run.wait(t)
		if took := time.Since(began); took > time.Second {
			t.Errorf("the relay stopped after %s", took)
		}
	})
}

// If a broker lost its disk, all streams are made again. Then only some searches run at a time, because
// each reads the complete log.
func TestFewSearchesRunAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newLossBench(5, 4, 4)
		for n := range 20 {
			b.src.places = append(b.src.places, broker.StreamPosition{Stream: fmt.Sprint("NEW", n), Seq: 1, MessageID: "/shop#x"})
		}
		b.getStuck()
		run := start(b.r)
		after(time.Minute)
		if n := b.src.searches.Load(); n != 2 {
			t.Errorf("%d searches run, want 2", n)
		}
		b.wantStored(t, "a", "b", "c", "d", "e")
		run.stop()
		run.wait(t)
	})
}

// The position of a stream has no message id, so a message that takes the place of the lost one would
// hide the loss. The relay publishes nothing before the repair.
func TestALossThatCouldBeForgottenIsRepairedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newLossBench(5, 4, 2)
		b.src.places[0].MessageID = ""
		b.m.broken = 1_000_000
		run := start(b.r)
		after(5 * time.Minute)
		b.wantStored(t, "a", "b")
		b.m.set(func() { b.m.broken = 0 })
		after(time.Minute)
		run.stop()
		run.wait(t)
		b.wantStored(t, "a", "b", "c", "d", "e")
	})
}

// A stream is made again while the relay publishes. Its first acknowledgement names a sequence
// that was used before. The lost events are published again. They are late if the stream has
// later events of their key.
func TestRecreatedStreamGetsItsLostEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newLossBench(4, 2, 2)
		b.m.answer = func(ev broker.Event, _ int) (time.Duration, error) {
			if ev.ID == "c" {
				b.m.set(func() { b.m.messages, b.m.created = nil, b.m.created.Add(time.Hour) })
			}
			return time.Millisecond, nil
		}
		run := start(b.r)
		after(10 * time.Second)
		run.stop()
		run.wait(t)
		b.wantStored(t, "c", "d")
		if want := []int64{1, 2}; !slices.Equal(b.src.late, want) || len(b.src.lost) > 0 {
			t.Errorf("late %v, lost %v, want %v and none", b.src.late, b.src.lost, want)
		}
		losses := b.r.Health().Losses
		if len(losses) != 1 || losses[0].Verdict != broker.Recreated || losses[0].Events != 2 || losses[0].OutOfOrder != 2 {
			t.Errorf("losses %+v", losses)
		}
	})
}

// If a stream cannot be read, other streams go on. Its position stays until it can be read,
// however much is acknowledged meanwhile.
func TestSilentStreamIsComparedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newLossBench(5, 3, 2)
		b.m.messages = append(b.m.messages, "x", "y") // another service's messages, at the positions of ours
		b.m.away = errors.New("no answer")
		run := start(b.r)
		after(10 * time.Second)
		b.wantStored(t, "a", "b", "x", "y", "d", "e")
		b.src.Set(func() {
			if b.src.places[0].Seq != 3 || len(b.src.lost)+len(b.src.late) > 0 {
				t.Errorf("position %+v, lost %v, late %v: no comparison has run yet", b.src.places[0], b.src.lost, b.src.late)
			}
		})
		b.m.set(func() { b.m.away = nil })
		after(10 * time.Second)
		run.stop()
		run.wait(t)
		if want := []int64{3}; !slices.Equal(b.src.late, want) {
			t.Errorf("late %v, want %v", b.src.late, want)
		}
	})
}

// Streams that do not answer delay the others once, and not one after the other.
func TestSilentStreamsAreWaitedForAtOnce(t *testing.T) {
	for silent, within := range map[int]time.Duration{20: 11 * time.Second, 300: 16 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			b := newLossBench(5, 4, 4)
			for n := range silent {
				b.src.places = append([]broker.StreamPosition{{Stream: fmt.Sprint("S", n), Seq: 1}}, b.src.places...)
			}
			run := start(b.r)
			after(within)
			b.wantStored(t, "a", "b", "c", "d", "e")
			run.stop()
			run.wait(t)
		})
	}
}

// A stream cannot be compared when the term begins, and stores events meanwhile. If it loses these
// events later, the relay notices that and publishes them again. That is also true if a new term
// has begun between, and if the stream loses the events before it is compared.
func TestEventsOfASilentStreamAreComparedLater(t *testing.T) {
	for _, change := range []string{"the same term", "a new term", "lost before the comparison"} {
		t.Run(change, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newLossBench(5, 3, 3)
				b.m.away = errors.New("no answer")
				run := start(b.r)
				after(10 * time.Second)
				b.wantStored(t, "a", "b", "c", "d", "e")
				answer := func() { b.m.set(func() { b.m.away = nil }) }
				lose := func() { b.m.set(func() { b.m.messages = b.m.messages[:3] }) }
				switch change {
				case "the same term":
					answer()
				case "a new term":
					run.stop()
					run.wait(t)
					answer()
					b.r = relay.Over(b.src, b.m, relay.Config{})
					run = start(b.r)
				case "lost before the comparison":
					lose()
					answer()
				}
				after(10 * time.Second)
				if change != "lost before the comparison" {
					lose()
				}
				after(3 * time.Minute)
				run.stop()
				run.wait(t)
				b.wantStored(t, "a", "b", "c", "d", "e")
				if losses := b.r.Health().Losses; len(losses) != 1 || losses[0].Verdict != broker.LostTail || losses[0].Events != 2 {
					t.Errorf("losses %+v", losses)
				}
			})
		})
	}
}

// The relay compares idle streams now and then, because a cluster can lose messages while the
// connection stays.
func TestIdleStreamsAreComparedRegularly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newLossBench(3, 3, 3)
		run := start(b.r)
		after(5 * time.Minute)
		b.m.set(func() {
			if b.m.compared < 5 || b.m.compared > 10 {
				t.Errorf("the stream was looked at %d times in 5 minutes, want once a minute", b.m.compared)
			}
			b.m.messages = b.m.messages[:1]
		})
		after(2 * time.Minute)
		run.stop()
		run.wait(t)
		b.wantStored(t, "a", "b", "c")
	})
}
