package inbox_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
)

// large is the size of an event's data. Forty such events do not fit into the bounds of these tests.
const large = 900 << 10

// largeEvent is an event with data of that size.
func largeEvent(b *bench, id, key string) postroom.Event {
	data := make([]byte, large)
	for i := range data {
		data[i] = 'x'
	}
	data[0], data[large-1] = '"', '"'
	return postroom.Event{ID: id, Source: "/shop", Type: b.stream + ".placed", Key: key, ContentType: "application/json", Data: data}
}

// claimedBytes returns how much data the claimed events of a handler have.
func (b *bench) claimedBytes(ctx context.Context, name string) (bytes int64) {
	err := b.pool.QueryRow(ctx, "SELECT coalesce(sum(octet_length(data)), 0) FROM postroom.held WHERE handler = $1 AND claimed_by IS NOT NULL", name).Scan(&bytes)
	if err != nil {
		b.Error(err)
	}
	return bytes
}

// There are many large held events, and as many workers. The claimed events have no more bytes
// than the inbox may have in memory, and all events are run.
func TestClaimsAreBoundedByBytes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const events, bound = 40, 4 << 20
	b.anew(func(cfg *inbox.Config) { cfg.PullBytes = bound })
	var most, runs atomic.Int64
	b.in.HandleExternal(inbox.Subscription{Name: "h", Workers: events}, func(ctx context.Context, attempt *inbox.Attempt) error {
		if len(attempt.Event.Data) != large {
			t.Errorf("%s has %d bytes", attempt.Event.ID, len(attempt.Event.Data))
		}
		claimed := b.claimedBytes(ctx, "h")
		for old := most.Load(); claimed > old && !most.CompareAndSwap(old, claimed); old = most.Load() {
			continue
		}
		runs.Add(1)
		return nil
	})
	for i := range events {
		if _, err := b.in.Accept(t.Context(), "h", largeEvent(b, fmt.Sprint("e", i), "")); err != nil {
			t.Fatal(err)
		}
	}
	b.run()
	b.waitUntilNoneHeld("h")
	if runs.Load() != events {
		t.Errorf("%d runs of %d events", runs.Load(), events)
	}
	if most.Load() > bound {
		t.Errorf("events of %d bytes were claimed at a time, want %d at the most", most.Load(), bound)
	}
	if most.Load() < 2*large {
		t.Errorf("events of %d bytes were claimed at a time, want several at once", most.Load())
	}
}

// If an event is larger than the bound, it is claimed alone.
func TestAnEventThatIsLargerThanTheBoundIsClaimed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.anew(func(cfg *inbox.Config) { cfg.PullBytes = 2 << 20 })
	var bytes sync.Map
	b.in.HandleExternal(inbox.Subscription{Name: "h", Workers: 4}, func(_ context.Context, attempt *inbox.Attempt) error {
		bytes.Store(attempt.Event.ID, len(attempt.Event.Data))
		return nil
	})
	ev := largeEvent(b, "huge", "")
	for len(ev.Data) < 4<<20 {
		ev.Data = append(ev.Data[:len(ev.Data)-1], ev.Data[1:]...)
	}
	if _, err := b.in.Accept(t.Context(), "h", ev); err != nil {
		t.Fatal(err)
	}
	b.accept("h", "small")
	b.run()
	b.waitUntilNoneHeld("h")
	if got, _ := bytes.Load("huge"); got != len(ev.Data) {
		t.Errorf("the large event was run with %v bytes, want %d", got, len(ev.Data))
	}
}

// A run takes very long, and the first due event does not fit beside it. The events that are due behind
// it do not wait for the end of that run: after a minute, the large event is claimed beside it.
func TestALargeEventWaitsForNoLongRun(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.anew(func(cfg *inbox.Config) { cfg.PullBytes = 2 << 20 })
	begun, end := make(chan struct{}), make(chan struct{})
	var ran sync.Map
	b.in.HandleExternal(inbox.Subscription{Name: "h", Workers: 4, Timeout: time.Hour}, func(_ context.Context, attempt *inbox.Attempt) error {
		if attempt.Event.ID == "long" {
			close(begun)
			<-end
		}
		ran.Store(attempt.Event.ID, true)
		return nil
	})
	b.accept("h", "long")
	b.run()
	t.Cleanup(func() { close(end) })
	devtest.Receive(t, time.Minute, "the long run", begun)
	ev := largeEvent(b, "huge", "")
	for len(ev.Data) < 4<<20 {
		ev.Data = append(ev.Data[:len(ev.Data)-1], ev.Data[1:]...)
	}
	if _, err := b.in.Accept(t.Context(), "h", ev); err != nil {
		t.Fatal(err)
	}
	b.exec("UPDATE postroom.held SET next_at = now() - interval '61 seconds' WHERE event_id = 'huge'")
	b.accept("h", "small")
	b.eventually("the events beside the long run", func() bool {
		_, huge := ran.Load("huge")
		_, small := ran.Load("small")
		return huge && small
	})
}

// Many keys have a small head with a large event behind it. The transaction that settles a
// head does not claim the next event if that exceeds the bound.
func TestFollowersAreBoundedByBytes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const keys, bound = 30, 4 << 20
	b.anew(func(cfg *inbox.Config) { cfg.PullBytes = bound })
	sub := b.ordered("h", inbox.HoldKey)
	sub.Workers = keys
	var most, runs atomic.Int64
	stored := make(chan struct{})
	b.in.HandleExternal(sub, func(ctx context.Context, attempt *inbox.Attempt) error {
		runs.Add(1)
		if len(attempt.Event.Data) < large {
			<-stored
			return nil
		}
		claimed := b.claimedBytes(ctx, "h")
		for old := most.Load(); claimed > old && !most.CompareAndSwap(old, claimed); old = most.Load() {
			continue
		}
		return nil
	})
	for k := range keys {
		b.publishKey(fmt.Sprintf("k%d", k), 0)
	}
	for k := range keys {
		key := fmt.Sprintf("k%d", k)
		b.publishEvent(largeEvent(b, key+"-00001", key))
	}
	b.run()
	b.eventually("all events to be held, and all heads to run", func() bool { return len(b.held("h")) == 2*keys && runs.Load() == keys })
	close(stored)
	b.waitUntilNoneHeld("h")
	if runs.Load() != 2*keys {
		t.Errorf("%d runs of %d events", runs.Load(), 2*keys)
	}
	if most.Load() > bound {
		t.Errorf("events of %d bytes were claimed at a time, want %d at the most", most.Load(), bound)
	}
}

// Large events that wait behind one key are run together only as far as they fit.
func TestEventsThatRunTogetherAreBoundedByBytes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const events, together = 12, 3
	b.anew(func(cfg *inbox.Config) { cfg.PullBytes = together*large + large/2 })
	sub := b.ordered("o", inbox.HoldKey)
	sub.Workers = 1
	s := newScript("o")
	s.set("a-00000", errBad)
	var mu sync.Mutex
	perTx := map[string]int{}
	b.in.Handle(sub, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		var id string
		if err := tx.QueryRow(ctx, "SELECT pg_current_xact_id()::text").Scan(&id); err != nil {
			return err
		}
		mu.Lock()
		perTx[id]++
		mu.Unlock()
		return s.Handle(ctx, tx, ev)
	}))
	b.run()
	for i := range events {
		b.publishEvent(largeEvent(b, fmt.Sprintf("a-%05d", i), "a"))
	}
	want := map[string]string{"a-00000": "dead"}
	for _, id := range numbered("a", 1, events-1) {
		want[id] = "waiting"
	}
	b.eventuallyStates("o", want)
	s.set("a-00000", nil)
	b.overrideDeadNextAtAndAttempts("o", "/shop a-00000")
	b.waitUntilNoneHeld("o")
	b.wantOrder("o", "a", numbered("a", 0, events-1)...)
	mu.Lock()
	defer mu.Unlock()
	most := 0
	for _, n := range perTx {
		most = max(most, n)
	}
	if most != together {
		t.Errorf("%d events were run in one transaction at the most, want %d", most, together)
	}
}
