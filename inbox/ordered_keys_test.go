package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/wire"
)

// script has the results of a handler's runs.
type script struct {
	name string

	mu    sync.Mutex
	fails map[string]error // by event; the others succeed
	runs  map[string]int
}

func newScript(name string) *script {
	return &script{name: name, fails: map[string]error{}, runs: map[string]int{}}
}

// set makes an event fail with err, or succeed if err is nil.
func (s *script) set(event string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails[event] = err
}

// ran returns how often an event was run.
func (s *script) ran(event string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runs[event]
}

func (s *script) Handle(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
	s.mu.Lock()
	s.runs[ev.ID]++
	err := s.fails[ev.ID]
	s.mu.Unlock()
	if err != nil {
		return err
	}
	return effect(s.name).Handle(ctx, tx, ev)
}

var errBad = postroom.Permanent(errors.New("bad"))

// order returns the effects of a handler in the order in which they were made.
func (b *bench) order(name string) []string {
	b.Helper()
	rows, _ := b.pool.Query(b.Context(), "SELECT event FROM effect WHERE handler = $1 ORDER BY n", name)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		b.Fatal(err)
	}
	return ids
}

// orderOf is order for one key.
func (b *bench) orderOf(name, key string) []string {
	b.Helper()
	return slices.DeleteFunc(b.order(name), func(id string) bool { return len(id) < len(key) || id[:len(key)] != key })
}

// states returns the state of each held event of a handler, by its id.
func (b *bench) states(name string) map[string]string {
	b.Helper()
	states := map[string]string{}
	for key, o := range b.held(name) {
		states[key[len("/shop "):]] = o.State
	}
	return states
}

func (b *bench) eventuallyStates(name string, want map[string]string) {
	b.Helper()
	b.eventually(fmt.Sprintf("held to be %v", want), func() bool { return maps.Equal(b.states(name), want) })
}

func numbered(key string, from, to int) (ids []string) {
	for i := from; i <= to; i++ {
		ids = append(ids, fmt.Sprintf("%s-%05d", key, i))
	}
	return ids
}

func (b *bench) wantOrder(name, key string, want ...string) {
	b.Helper()
	if got := b.orderOf(name, key); !slices.Equal(got, want) {
		b.Errorf("effects of key %s: %v, want %v", key, got, want)
	}
}

func TestHoldKeyWaitsForADeadHead(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := newScript("o")
	s.set("a-00001", errBad)
	b.in.Handle(b.ordered("o", inbox.HoldKey), s)
	b.run()
	for i := range 5 {
		b.publishKey("a", i)
		b.publishKey("b", i)
		b.publish(fmt.Sprintf("none-%d", i)) // without a key
	}
	waiting := map[string]string{"a-00001": "dead", "a-00002": "waiting", "a-00003": "waiting", "a-00004": "waiting"}
	b.eventuallyStates("o", waiting)
	b.eventually("the others' effects", func() bool { return len(b.effects("o")) == 1+5+5 })
	b.wantOrder("o", "b", numbered("b", 0, 4)...)
	if n := s.ran("a-00002"); n > 0 {
		t.Errorf("an event behind a dead one was run %d times", n)
	}

	b.overrideDeadNextAtAndAttempts("o", "/shop a-00001") // and it is still bad
	b.eventually("another run", func() bool { return s.ran("a-00001") == 2 })
	b.eventuallyStates("o", waiting)

	s.set("a-00001", nil)
	b.overrideDeadNextAtAndAttempts("o", "/shop a-00001")
	b.eventuallyStates("o", map[string]string{})
	b.publishKey("a", 5)
	b.eventually("the next effect", func() bool { return len(b.orderOf("o", "a")) == 6 })
	b.wantOrder("o", "a", numbered("a", 0, 5)...)
}

// Events that come after a restart wait, too, although the new process has not read the key
// before.
func TestHoldKeyAcrossARestart(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := newScript("o")
	s.set("a-00000", errBad)
	b.in.Handle(b.ordered("o", inbox.HoldKey), s)
	stop := b.run()
	b.publishKey("a", 0)
	b.eventuallyStates("o", map[string]string{"a-00000": "dead"})
	stop()
	b.publishKey("a", 1)
	b.in = inbox.New(b.pool, b.nc, b.config())
	b.in.Handle(b.ordered("o", inbox.HoldKey), s)
	b.run()
	b.eventuallyStates("o", map[string]string{"a-00000": "dead", "a-00001": "waiting"})
	b.publishKey("a", 2)
	b.eventuallyStates("o", map[string]string{"a-00000": "dead", "a-00001": "waiting", "a-00002": "waiting"})
}

func TestSkipKeyGoesOnWithoutADeadHead(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := newScript("o")
	later := errors.New("not now")
	s.set("a-00001", later)
	s.set("b-00000", errBad) // when it runs directly from the stream
	sub := b.ordered("o", inbox.SkipKey)
	sub.Attempts, sub.Schedule = 3, postroom.Backoff{50 * time.Millisecond}
	b.in.Handle(sub, s)
	b.run()
	for i := range 5 {
		b.publishKey("a", i)
		b.publishKey("b", i)
	}
	b.eventuallyStates("o", map[string]string{"a-00001": "dead", "b-00000": "dead"})
	b.eventually("the others' effects", func() bool { return len(b.effects("o")) == 8 })
	b.wantOrder("o", "a", "a-00000", "a-00002", "a-00003", "a-00004")
	b.wantOrder("o", "b", numbered("b", 1, 4)...)
	if n := s.ran("a-00001"); n != 3 {
		t.Errorf("the head had %d attempts, want 3", n)
	}
}

// If a head dies, the next event that waits in held goes on.
func TestSkipKeyGoesOnAfterEachDeadHead(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := newScript("o")
	s.set("a-00000", errors.New("not now"))
	s.set("a-00002", errBad)
	s.set("a-00003", errBad)
	sub := b.ordered("o", inbox.SkipKey)
	sub.Schedule, sub.Attempts = postroom.Backoff{50 * time.Millisecond}, 8
	sub.Attempts = 1000
	b.in.Handle(sub, s)
	b.run()
	for i := range 6 {
		b.publishKey("a", i)
	}
	b.eventually("five to wait", func() bool {
		n := 0
		for _, state := range b.states("o") {
			if state == "waiting" {
				n++
			}
		}
		return n == 5
	})
	s.set("a-00000", nil)
	b.eventuallyStates("o", map[string]string{"a-00002": "dead", "a-00003": "dead"})
	b.wantOrder("o", "a", "a-00000", "a-00001", "a-00004", "a-00005")
}

func TestLaterEventsWaitForARetry(t *testing.T) {
	t.Parallel()
	for _, order := range []inbox.Order{inbox.HoldKey, inbox.SkipKey} {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			s := newScript("o")
			s.set("a-00002", errors.New("not now"))
			sub := b.ordered("o", order)
			sub.Attempts, sub.Schedule = 1000, postroom.Backoff{50 * time.Millisecond}
			b.in.Handle(sub, s)
			b.run()
			for i := range 20 {
				b.publishKey("a", i)
				b.publishKey("b", i)
			}
			b.eventually("the other key's effects, and some attempts", func() bool {
				return len(b.orderOf("o", "b")) == 20 && s.ran("a-00002") >= 3 && len(b.states("o")) == 18
			})
			b.wantOrder("o", "a", numbered("a", 0, 1)...)
			s.set("a-00002", nil)
			b.eventuallyStates("o", map[string]string{})
			b.wantOrder("o", "a", numbered("a", 0, 19)...)
		})
	}
}

// publishWith publishes an event of a key, with a header.
func (b *bench) publishWith(id, key, header, value string, data []byte) {
	b.Helper()
	ev := postroom.Event{
		ID: id, Source: "/shop", Type: b.stream + ".placed", Key: key, ContentType: "application/json", Data: data, LoggedAt: time.Now(), Time: time.Now(),
	}
	h := nats.Header(wire.Encode(ev))
	h.Del(wire.MsgID)
	if header != "" {
		h.Set(header, value)
	}
	b.publishRaw(&nats.Msg{Subject: ev.Type, Header: h, Data: data})
}

// An event without a place in its key blocks no other.
func TestEventWithoutAPlaceBlocksNoOther(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.anew(func(cfg *inbox.Config) { cfg.AckWait = time.Minute }) // so that no event is delivered again
	b.in.Handle(b.ordered("o", inbox.HoldKey), effect("o"))
	b.run()
	b.publishKey("a", 0)
	b.publishWith("a-00000", "a", "", "", []byte("another"))          // a conflict
	b.publishWith("a-00001", "a", wire.Republish, "1", []byte(`"x"`)) // late
	b.publishWith("a-00002", "a", "ce-time", "never", []byte(`"x"`))
	b.publishWith("a-00000", "a", wire.Republish, "1", []byte(`"a-00000"`)) // the same event as the decided one
	b.publishKey("a", 3)
	b.eventually("the effects", func() bool { return len(b.effects("o")) == 2 })
	b.wantOrder("o", "a", "a-00000", "a-00003")
	classes := map[string]int{}
	b.eventually("three dead", func() bool { return b.dead("o") == 3 })
	for _, o := range b.held("o") {
		classes[o.Class]++
	}
	if want := map[string]int{"conflict": 1, "late": 1, "undecodable": 1}; !maps.Equal(classes, want) {
		t.Errorf("held by class: %v, want %v", classes, want)
	}
	b.eventually("the duplicate to be counted", func() bool { return b.counted("o", "duplicate") >= 1 })
	if n := b.counted("o", "duplicate"); n != 1 {
		t.Errorf("%d duplicates, want the republished event that was decided before", n)
	}
}

// An event that is too old keeps its place in its key: later ones wait.
func TestTooOldEventBlocksItsKey(t *testing.T) {
	t.Parallel()
	for order, want := range map[inbox.Order]map[string]string{
		inbox.HoldKey: {"a-00000": "dead", "a-00001": "waiting"},
		inbox.SkipKey: {"a-00000": "dead"},
	} {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.in.Handle(b.ordered("o", order), effect("o"))
			b.run()
			b.publishKey("b", 0) // events from before the handler have no age limit
			b.eventually("the first effect", func() bool { return len(b.effects("o")) == 1 })
			old := postroom.Event{
				ID: "a-00000", Source: "/shop", Type: b.stream + ".placed", Key: "a", ContentType: "text/plain", Data: []byte("1"),
				LoggedAt: time.Now().Add(-30 * 24 * time.Hour), Time: time.Now(),
			}
			h := nats.Header(wire.Encode(old))
			h.Del(wire.MsgID)
			b.publishRaw(&nats.Msg{Subject: old.Type, Header: h, Data: old.Data})
			b.publishKey("a", 1)
			b.publishKey("b", 1)
			b.eventuallyStates("o", want)
			effects := 4 - len(want)
			b.eventually("the others' effects", func() bool { return len(b.effects("o")) == effects })
			if c := b.held("o")["/shop a-00000"].Class; c != "too_old" {
				t.Errorf("it is dead of %s", c)
			}
		})
	}
}

// orBlocked is a handler that waits at one event.
type orBlocked struct {
	postroom.Handler

	at    string
	until <-chan struct{}
}

func (h orBlocked) Handle(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
	if ev.ID == h.at {
		select {
		case <-h.until:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return h.Handler.Handle(ctx, tx, ev)
}

// A slow key fills the memory of an ordered handler. As soon as some of its events have run, the
// reader goes on and finds another key, although the memory is still full of the slow one.
func TestASlowKeyDoesNotHoldUpTheReader(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const hand, more = 2048, 20
	steps := make(chan struct{}, 2*more) // far fewer than half of the memory
	sub := b.ordered("h", inbox.HoldKey)
	sub.Timeout = time.Hour // if an event of the slow key were held, the others would leave the memory
	b.in.Handle(sub, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		if ev.Key == "slow" {
			select {
			case <-steps:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return effect("h").Handle(ctx, tx, ev)
	}))
	for i := range hand + more {
		b.publishKey("slow", i)
	}
	b.publishKey("fast", 0)
	b.run()
	for range 2 * more {
		steps <- struct{}{}
	}
	b.eventually("the other key", func() bool { return b.effects("h")["fast-00000"] == 1 })
	close(steps)
}

// A deploy changes HoldKey to SkipKey, or makes the handler unordered. Later events do not wait for a
// dead event any more, and neither do those that waited before.
func TestKeysAreNotHeldAnyMore(t *testing.T) {
	t.Parallel()
	for name, order := range map[string]inbox.Order{"SkipKey": inbox.SkipKey, "Unordered": inbox.Unordered} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			sub := b.ordered("o", inbox.HoldKey)
			sub.Attempts = 1
			h := postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
				if ev.ID == "k-00000" || ev.ID == "k-00003" {
					return errFails
				}
				return effect("o").Handle(ctx, tx, ev)
			})
			b.in.Handle(sub, h)
			stop := b.run()
			for i := range 3 {
				b.publishKey("k", i)
			}
			b.eventually("one dead, two waiting", func() bool { return b.dead("o") == 1 && len(b.held("o")) == 3 })
			stop()
			b.exec("UPDATE postroom.held SET dead_at = now(), class = 'too_old' WHERE event_id = 'k-00001'") // it was too old when it came

			b.in = inbox.New(b.pool, b.nc, b.config())
			sub.Order = order
			b.in.Handle(sub, h)
			b.run()
			b.publishKey("k", 3)
			b.publishKey("k", 4)
			b.eventually("the later events", func() bool { return len(b.effects("o")) == 2 && b.dead("o") == 3 })
			b.wantOnce("o", "k-00002", "k-00004")
		})
	}
}
