package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/operator"
)

// need is a system that a handler calls, and that may be away.
type need struct {
	away         atomic.Bool
	calls        atomic.Int64
	inside       atomic.Int64 // handlers that run
	mu           sync.Mutex
	now, highest int // calls at the same time, and the most of them since reset
}

var errUnavailable = errors.New("503 Service Unavailable")

func (n *need) call() error {
	n.calls.Add(1)
	n.mu.Lock()
	n.now++
	n.highest = max(n.highest, n.now)
	n.mu.Unlock()
	time.Sleep(time.Millisecond) // so that calls at the same time show
	n.mu.Lock()
	n.now--
	n.mu.Unlock()
	if n.away.Load() {
		return errUnavailable
	}
	return nil
}

// reset forgets how many calls there were at the same time.
func (n *need) reset() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.highest = n.now
}

func (n *need) most() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.highest
}

// pausing are handlers of each kind that call such a system.
var pausing = map[string]func(b *bench, n *need){
	"transactional": func(b *bench, n *need) { b.in.Handle(pausable(b), needing(n)) },
	"in batches": func(b *bench, n *need) {
		sub := pausable(b)
		sub.Batch = 10
		b.in.Handle(sub, needing(n))
	},
	"ordered": func(b *bench, n *need) {
		sub := pausable(b)
		sub.Order = inbox.HoldKey
		b.in.Handle(sub, needing(n))
	},
	"external": func(b *bench, n *need) {
		b.in.HandleExternal(pausable(b), func(_ context.Context, attempt *inbox.Attempt) error {
			n.inside.Add(1)
			defer n.inside.Add(-1)
			attempt.OnSuccess(func(ctx context.Context, tx pgx.Tx) error { return effect("h").Handle(ctx, tx, attempt.Event) })
			return n.call()
		})
	},
}

func pausable(b *bench) inbox.Subscription {
	sub := b.subscription("h")
	sub.Workers, sub.Attempts = 4, 3
	sub.Schedule, sub.Attempts = postroom.Backoff{300 * time.Millisecond}, 8
	sub.Pause = inbox.PauseOverridingProbes(20*time.Millisecond, 60*time.Millisecond)
	return sub
}

func needing(n *need) postroom.Handler {
	return postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		n.inside.Add(1)
		defer n.inside.Add(-1)
		if err := effect("h").Handle(ctx, tx, ev); err != nil {
			return err
		}
		return n.call()
	})
}

// In an outage no event dies. The handler pauses, tries one event at a time, and resumes when
// one succeeds. No event loses more than one attempt, and each takes effect once.
func TestAnOutagePausesHandlers(t *testing.T) {
	t.Parallel()
	for name, handle := range pausing {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, n := newBench(t), &need{}
			var log lines
			cfg := b.config()
			cfg.Logger = log.logger()
			b.in = inbox.New(b.pool, b.nc, cfg)
			n.away.Store(true)
			handle(b, n)
			b.run()
			const events = 300
			for i := range events {
				b.publishEvent(postroom.Event{
					ID: fmt.Sprint("e", i), Source: "/shop", Type: b.stream + ".placed", Key: fmt.Sprint("k", i%40), ContentType: "text/plain", Data: []byte("x"),
				})
			}
			b.eventually("the pause", func() bool {
				return log.has("handler paused: it fails for nearly all events") && log.has(errUnavailable.Error())
			})
			before := n.calls.Load() + 10
			b.eventually("a report", func() bool {
				var text string
				err := b.pool.QueryRow(t.Context(), "SELECT coalesce(max(paused #>> '{h,text}'), '') FROM postroom.node").Scan(&text)
				return err == nil && strings.Contains(text, errUnavailable.Error())
			})
			b.eventually("calls that began before the pause to end", func() bool { return n.calls.Load() >= before })
			n.reset()
			b.eventually("30 probes", func() bool { return n.calls.Load() >= before+30 })
			if most := n.most(); most > 1 {
				t.Errorf("%d calls at the same time while the handler was paused", most)
			}
			if name == "transactional" || name == "in batches" { // the others hold, or have room for, all of them
				if left := b.consumers()[0].NumPending; left == 0 {
					t.Error("nothing is left in the stream while the handler is paused")
				}
			}
			if name == "transactional" { // probes run what the process had pulled, and then pull one event each
				b.eventually("the process to have at most one message, while others are in the stream", func() bool {
					of := b.consumers()[0]
					return of.NumAckPending <= 1 && of.NumPending > 0
				})
			}
			var attempts int
			if err := b.pool.QueryRow(t.Context(), "SELECT coalesce(max(attempts - (claimed_by IS NOT NULL)::int), 0) FROM postroom.held").Scan(&attempts); err != nil {
				t.Fatal(err)
			}
			if attempts > 1 {
				t.Errorf("an event lost %d attempts", attempts)
			}
			n.away.Store(false)
			b.eventually("all effects", func() bool { return len(b.effects("h")) == events })
			for id, times := range b.effects("h") {
				if times != 1 {
					t.Errorf("%s took effect %d times", id, times)
				}
			}
			b.eventually("nothing to be held", func() bool { return len(b.held("h")) == 0 })
			b.eventually("no pause to be reported", func() bool {
				var report string
				return b.pool.QueryRow(t.Context(), "SELECT paused::text FROM postroom.node").Scan(&report) == nil && report == "{}"
			})
			if !log.has("handler resumed: an event was handled") || b.counted("h", "dead") > 0 {
				t.Errorf("%d dead events; it says that it resumed: %v", b.counted("h", "dead"), log.has("handler resumed"))
			}
		})
	}
}

// A vendor is unavailable and recognises no keys. Each failed call makes its event dead, because
// its outcome is unknown. So the handler pauses, and the other events stay alive.
func TestUnknownOutcomesPauseAHandler(t *testing.T) {
	t.Parallel()
	b, n := newBench(t), &need{}
	var log lines
	cfg := b.config()
	cfg.Logger = log.logger()
	b.in = inbox.New(b.pool, b.nc, cfg)
	n.away.Store(true)
	var failed atomic.Int64
	b.in.HandleExternal(pausable(b), func(ctx context.Context, attempt *inbox.Attempt) error {
		_, err := inbox.Step(ctx, attempt, "call", func(context.Context, string) ([]byte, error) { return nil, n.call() })
		if err != nil {
			failed.Add(1)
			return err
		}
		attempt.OnSuccess(func(ctx context.Context, tx pgx.Tx) error { return effect("h").Handle(ctx, tx, attempt.Event) })
		return nil
	})
	b.run()
	const events = 300
	for i := range events {
		b.publish(fmt.Sprint("e", i))
	}
	b.eventually("the pause", func() bool { return log.has("handler paused: it fails for nearly all events") })
	before := n.calls.Load() + 4
	b.eventually("calls that began before the pause to end", func() bool { return n.calls.Load() >= before })
	n.reset()
	b.eventually("10 probes", func() bool { return n.calls.Load() >= before+10 })
	if most := n.most(); most > 1 {
		t.Errorf("%d calls at the same time while the handler was paused", most)
	}
	n.away.Store(false)
	b.eventually("each event to be done or dead", func() bool { return len(b.effects("h"))+b.dead("h") == events })
	if dead := b.dead("h"); int64(dead) != failed.Load() || dead == events {
		t.Errorf("%d events are dead after %d failed calls", dead, failed.Load())
	}
	for id, held := range b.held("h") {
		if held.Class != "outcome_unknown" || held.Attempts != 1 {
			t.Errorf("%s is held as %+v, want it dead of class outcome_unknown after one attempt", id, held)
		}
	}
	if !log.has("handler resumed: an event was handled") {
		t.Error("the log does not say that the handler resumed")
	}
}

// One type that fails among others, or bad events, pause no handler.
func TestBadEventsDoNotPauseAHandler(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		fails func(i int) error
		off   bool
	}{
		"half of the events": {func(i int) error {
			if i%2 == 0 {
				return errUnavailable
			}
			return nil
		}, false},
		"bad events": {func(int) error { return postroom.Permanent(errUnavailable) }, false},
		"turned off": {func(int) error { return errUnavailable }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			var log lines
			cfg := b.config()
			cfg.Logger = log.logger()
			b.in = inbox.New(b.pool, b.nc, cfg)
			sub := pausable(b)
			sub.Schedule, sub.Attempts, sub.Pause.Off = postroom.Backoff{10 * time.Millisecond}, 8, tt.off
			b.in.Handle(sub, postroom.HandlerFunc(func(_ context.Context, _ pgx.Tx, ev postroom.Event) error {
				var i int
				if _, err := fmt.Sscanf(ev.ID, "e%d", &i); err != nil {
					return err
				}
				return tt.fails(i)
			}))
			b.run()
			const events = 120
			dead := 0
			for i := range events {
				if tt.fails(i) != nil {
					dead++
				}
				b.publish(fmt.Sprint("e", i))
			}
			b.eventually("all to be done or dead", func() bool { return b.dead("h") == dead && b.ledger("h") == events })
			if log.has("handler paused") {
				t.Error("the handler paused")
			}
		})
	}
}

// If a process stops while its handler is paused, it hands back the events that it has in
// memory.
func TestAPausedHandlerStops(t *testing.T) {
	t.Parallel()
	b, n := newBench(t), &need{}
	n.away.Store(true)
	pausing["transactional"](b, n)
	stop := b.run()
	for i := range 100 {
		b.publish(fmt.Sprint("e", i))
	}
	b.eventually("calls", func() bool { return n.calls.Load() > 25 })
	stop()
	n.away.Store(false)
	b.in = inbox.New(b.pool, b.nc, b.config())
	pausing["transactional"](b, n)
	b.run()
	b.eventually("all effects", func() bool { return len(b.effects("h")) == 100 })
	b.drained()
}

func TestPauseIsChecked(t *testing.T) {
	t.Parallel()
	for want, p := range map[string]inbox.Pause{
		"Pause.Events": {Events: -1}, "Pause.Window": {Window: time.Millisecond},
	} {
		b := newBench(t)
		sub := b.subscription("h")
		sub.Pause = p
		b.in.Handle(sub, effect("h"))
		if err := b.in.Check(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s in it", p, err, want)
		}
	}
}

// While an operator pauses a handler, no process begins an event, nor does one that starts
// meanwhile. After the resume all events run.
func TestOperatorsPauseHandlers(t *testing.T) {
	t.Parallel()
	for name, handle := range pausing {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, n := newBench(t), &need{}
			store, by := operator.New(b.pool, operator.Config{}), postroom.Audit{Actor: "ann", Reason: "the vendor asked for it"}
			start := func(log *lines) (stop func()) {
				cfg := b.config()
				cfg.Logger = log.logger()
				b.in = inbox.New(b.pool, b.nc, cfg)
				handle(b, n)
				return b.run()
			}
			var first, second, third lines
			stopFirst := start(&first)
			start(&second)
			publish := func(from, to int) {
				for i := from; i < to; i++ {
					b.publishEvent(postroom.Event{
						ID: fmt.Sprint("e", i), Source: "/shop", Type: b.stream + ".placed", Key: fmt.Sprint("k", i%40), ContentType: "text/plain", Data: []byte("x"),
					})
				}
			}
			publish(0, 100)
			b.eventually("effects", func() bool { return len(b.effects("h")) > 10 })
			if err := store.Pause(t.Context(), "h", 0, by); err != nil {
				t.Fatal(err)
			}
			const paused = "handler paused by an operator"
			b.eventually("both processes to pause", func() bool { return first.has(paused) && second.has(paused) })
			b.eventually("events that began to end", func() bool { return b.isIdle() && n.inside.Load() == 0 })
			began := n.calls.Load()
			publish(100, 200)
			stopFirst()
			start(&third)
			b.eventually("a process that starts to pause", func() bool { return third.has(paused) })
			if name == "external" { // it stores events
				b.eventually("all events to be stored", func() bool { return b.ledger("h") == 200 })
			}
			if more := n.calls.Load() - began; more > 1 { // one may have been let in just before
				t.Errorf("%d events began while the handler was paused", more)
			}
			if err := store.Resume(t.Context(), "h", by); err != nil {
				t.Fatal(err)
			}
			b.eventually("all effects", func() bool { return len(b.effects("h")) == 200 })
			for id, times := range b.effects("h") {
				if times != 1 {
					t.Errorf("%s took effect %d times", id, times)
				}
			}
			b.eventually("nothing to be held", func() bool { return len(b.held("h")) == 0 })
		})
	}
}

// isIdle reports whether no transaction is open, and no process has a held event.
func (b *bench) isIdle() (is bool) {
	b.Helper()
	err := b.pool.QueryRow(b.Context(), `SELECT NOT EXISTS (SELECT FROM postroom.held WHERE claimed_by IS NOT NULL) AND NOT EXISTS (
		SELECT FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
			AND backend_type = 'client backend' AND xact_start IS NOT NULL)`).Scan(&is)
	if err != nil {
		b.Fatal(err)
	}
	return is
}

// Events that would run along with the first of their key, in its transaction, do not begin
// while an operator has paused the handler.
func TestPauseStopsEventsBehindTheirHead(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	store, by := operator.New(b.pool, operator.Config{}), postroom.Audit{Actor: "ann", Reason: "why"}
	var log lines
	cfg := b.config()
	cfg.Logger = log.logger()
	b.in = inbox.New(b.pool, b.nc, cfg)
	sub := b.ordered("h", inbox.HoldKey)
	sub.Schedule, sub.Attempts = postroom.Backoff{time.Hour}, 8
	entered, resume := make(chan struct{}), make(chan struct{})
	var runs atomic.Int64
	b.in.Handle(sub, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		if ev.ID == "k-00000" {
			if runs.Add(1) == 1 {
				return errUnavailable
			}
			close(entered)
			<-resume
		}
		return effect("h").Handle(ctx, tx, ev)
	}))
	b.run()
	const events = 20
	for i := range events {
		b.publishKey("k", i)
	}
	b.eventually("all to be held", func() bool { return len(b.held("h")) == events })
	b.exec("UPDATE postroom.held SET next_at = now() WHERE event_id = 'k-00000'")
	<-entered
	if err := store.Pause(t.Context(), "h", 0, by); err != nil {
		t.Fatal(err)
	}
	b.eventually("the pause", func() bool { return log.has("handler paused by an operator") })
	close(resume)
	b.eventually("the effect of the one that ran", func() bool { return len(b.effects("h")) > 0 })
	if n := len(b.effects("h")); n != 1 {
		t.Errorf("%d events began while the handler was paused", n-1)
	}
	if err := store.Resume(t.Context(), "h", by); err != nil {
		t.Fatal(err)
	}
	b.eventually("all effects", func() bool { return len(b.effects("h")) == events })
	b.wantOrder("h", "k", numbered("k", 0, events-1)...)
}

// A pause ends by the clock: no event runs before its end, and nobody has to resume the handler.
func TestAnOperatorsPauseEndsByItself(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	store := operator.New(b.pool, operator.Config{})
	if err := store.Pause(t.Context(), "h", 2*time.Second, postroom.Audit{Actor: "ann", Reason: "the vendor asked for it"}); err != nil {
		t.Fatal(err)
	}
	var until, began time.Time
	if err := b.pool.QueryRow(t.Context(), "SELECT until FROM postroom.pause").Scan(&until); err != nil {
		t.Fatal(err)
	}
	ran := make(chan struct{})
	b.in.Handle(b.subscription("h"), postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, _ postroom.Event) error {
		defer close(ran)
		return tx.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&began)
	}))
	b.publish("a")
	b.run()
	devtest.Receive(t, 20*time.Second, "the event to run", ran)
	if began.Before(until) {
		t.Errorf("the event ran at %s, before the end of the pause at %s", began, until)
	}
}
