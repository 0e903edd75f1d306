package inbox_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
)

// recordDeaths makes the OnDead of the bench's inbox write each event that becomes dead to table
// death. fails says how often OnDead first fails for an event.
func (b *bench) recordDeaths(fails int) *inbox.Config {
	b.Helper()
	b.exec("CREATE TABLE death (handler text, event text, attempts int, class text, error text)")
	var mu sync.Mutex
	failed := make(map[string]int)
	cfg := b.config()
	cfg.OnDead = func(ctx context.Context, tx pgx.Tx, l inbox.Letter) error {
		if _, err := tx.Exec(ctx, "INSERT INTO death VALUES ($1, $2, $3, $4, $5)", l.Handler, l.Event.ID, l.Attempts, l.Class, l.Error); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		if failed[l.Event.ID]++; failed[l.Event.ID] <= fails {
			return errors.New("not now")
		}
		return nil
	}
	return &cfg
}

// deaths returns the rows of table death, as "event attempts class".
func (b *bench) deaths() []string {
	b.Helper()
	rows, _ := b.pool.Query(b.Context(), "SELECT event || ' ' || attempts || ' ' || class FROM death ORDER BY 1")
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		b.Fatal(err)
	}
	return all
}

var errFails = errors.New("it fails")

// bad is a handler that fails for each event whose id begins with "bad".
func bad(name string) postroom.Handler {
	return postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		if strings.HasPrefix(ev.ID, "bad") {
			return errFails
		}
		return effect(name).Handle(ctx, tx, ev)
	})
}

// OnDead is called once for each event that becomes dead, for every kind of handler, at the
// first attempt and at a later one.
func TestOnDead(t *testing.T) {
	t.Parallel()
	ways := map[string]func(sub *inbox.Subscription){
		"plain":   func(*inbox.Subscription) {},
		"batch":   func(sub *inbox.Subscription) { sub.Batch = 10 },
		"ordered": func(sub *inbox.Subscription) { sub.Order = inbox.HoldKey },
		"skips":   func(sub *inbox.Subscription) { sub.Order = inbox.SkipKey },
	}
	for way, change := range ways {
		for _, attempts := range []int{1, 2} {
			t.Run(fmt.Sprint(way, " ", attempts), func(t *testing.T) {
				t.Parallel()
				b := newBench(t)
				b.in = inbox.New(b.pool, b.nc, *b.recordDeaths(0))
				sub := b.subscription("h")
				sub.Attempts, sub.Pause = attempts, inbox.Pause{Off: true}
				change(&sub)
				b.in.Handle(sub, bad("h"))
				b.publish("good-1", "bad-1", "good-2", "bad-2")
				b.run()
				b.eventually("all to be decided", func() bool { return b.dead("h") == 2 && len(b.effects("h")) == 2 })
				if got, want := fmt.Sprint(b.deaths()), fmt.Sprintf("[bad-1 %d error bad-2 %d error]", attempts, attempts); got != want {
					t.Errorf("deaths: %s, want %s", got, want)
				}
			})
		}
	}
}

// OnDead is also called for external handlers, for messages that are no events, and for
// conflicts of Accept.
func TestOnDeadIsCalledForEachKindOfEvent(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.in = inbox.New(b.pool, b.nc, *b.recordDeaths(0))
	sub := b.subscription("h")
	b.in.Handle(sub, effect("h"))
	b.in.HandleExternal(inbox.Subscription{Name: "calls", Attempts: 2, Schedule: postroom.Backoff{time.Millisecond}, Workers: 1},
		func(context.Context, *inbox.Attempt) error { return errFails })
	b.in.Handle(inbox.Subscription{Name: "permanent", Workers: 1}, postroom.HandlerFunc(func(context.Context, pgx.Tx, postroom.Event) error {
		return postroom.Permanent(errFails)
	}))
	if _, err := b.in.AcceptAll(t.Context(), accepted("calls", "call", "1"), accepted("calls", "call", "2"), accepted("permanent", "never", "1")); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(b.deaths()); got != "[call 0 conflict]" {
		t.Errorf("deaths after Accept: %s", got)
	}
	b.publishEvent(postroom.Event{ID: "bad", Source: "/shop", Type: b.stream + ".placed", Data: []byte("1")})
	b.publishEvent(postroom.Event{ID: "bad", Source: "/shop", Type: b.stream + ".placed", Data: []byte("2")})
	b.run()
	b.eventually("all to be decided", func() bool { return b.dead("h") == 1 && b.dead("calls") == 2 && b.dead("permanent") == 1 })
	if got, want := fmt.Sprint(b.deaths()), "[bad 0 conflict call 0 conflict call 2 error never 1 permanent]"; got != want {
		t.Errorf("deaths: %s, want %s", got, want)
	}
}

// If OnDead fails, the event does not become dead. What OnDead wrote is rolled back, and the
// last attempt is made again.
func TestEventIsNotDeadIfOnDeadFails(t *testing.T) {
	t.Parallel()
	for _, attempts := range []int{1, 2} {
		t.Run(fmt.Sprint(attempts, " attempts"), func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.in = inbox.New(b.pool, b.nc, *b.recordDeaths(1))
			sub := b.subscription("h")
			sub.Attempts = attempts
			b.in.Handle(sub, bad("h"))
			b.publish("bad")
			b.run()
			b.eventually("the event to wait", func() bool {
				o := b.held("h")["/shop bad"]
				return o.State == "due" && o.Attempts == attempts-1 && o.Failures == attempts
			})
			var wait float64
			if err := b.pool.QueryRow(t.Context(), "SELECT extract(epoch FROM next_at - now()) FROM postroom.held").Scan(&wait); err != nil || wait < 10 || wait > 60 {
				t.Errorf("its last attempt is made again in %v s, %v, want a minute", wait, err)
			}
			if got := b.deaths(); len(got) != 0 {
				t.Errorf("deaths: %v, want the rows of OnDead rolled back", got)
			}
			b.exec("UPDATE postroom.held SET next_at = now()")
			b.eventually("its death", func() bool { return b.dead("h") == 1 })
			if got, want := fmt.Sprint(b.deaths()), fmt.Sprintf("[bad %d error]", attempts); got != want {
				t.Errorf("deaths: %s, want %s", got, want)
			}
		})
	}
}

// The database records a failed attempt, and the answer is lost. The inbox records the failure once,
// calls OnDead once, and says once that the event is dead. It does not take that for a lost claim.
func TestFailureWhoseAnswerIsLostIsRecordedOnce(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"COMMIT", "ROLLBACK"} { // with OnDead and without it
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			once := &sync.Once{}
			lose := func(tx pgx.Tx) { tx.Conn().PgConn().Conn().(*cutter).off.Store(false) }
			b := newBenchOn(t, poolWith(t, func(cfg *pgxpool.Config) {
				cfg.MaxConns = 10
				cfg.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
					conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
					c := &cutter{Conn: conn, of: end, once: once}
					c.off.Store(true)
					return c, err
				}
			}), devtest.NATS(t))
			cfg, deaths := b.recordDeaths(0), "[]"
			if record := cfg.OnDead; end == "COMMIT" {
				deaths = "[bad 2 error]"
				cfg.OnDead = func(ctx context.Context, tx pgx.Tx, l inbox.Letter) error {
					lose(tx)
					return record(ctx, tx, l)
				}
			} else {
				cfg.OnDead = nil
			}
			var out lockedBuffer
			cfg.Logger = slog.New(slog.NewTextHandler(&out, nil))
			b.in = inbox.New(b.pool, b.nc, *cfg)
			sub, runs := b.subscription("h"), 0
			sub.Attempts, sub.Workers = 2, 1
			b.in.Handle(sub, postroom.HandlerFunc(func(_ context.Context, tx pgx.Tx, _ postroom.Event) error {
				if runs++; runs == 2 && end == "ROLLBACK" {
					lose(tx)
				}
				return errFails
			}))
			b.publish("bad")
			stop := b.run()
			b.eventually("the death to be counted", func() bool { return b.counted("h", "dead") > 0 || b.count(lostClaims) > 0 })
			stop()
			want := heldEntry{Key: "/shop bad", State: "dead", Attempts: 2, Class: "error", Failures: 2}
			if got := b.held("h")["/shop bad"]; got != want {
				t.Errorf("held: %+v, want %+v", got, want)
			}
			if got := fmt.Sprint(b.deaths()); got != deaths {
				t.Errorf("deaths: %s, want %s", got, deaths)
			}
			if dead, claims := b.counted("h", "dead"), b.count(lostClaims); dead != 1 || claims != 0 {
				t.Errorf("%d deaths and %d lost claims are counted, want 1 and 0", dead, claims)
			}
			if n := strings.Count(out.String(), `msg="event dead"`); n != 1 {
				t.Errorf("the log says %d times that the event is dead, want once", n)
			}
			fired := true
			once.Do(func() { fired = false })
			if !fired {
				t.Error("no answer was lost: the test shows nothing")
			}
		})
	}
}

// If OnDead fails for a conflict, the conflict is not stored, and its message is delivered
// again.
func TestConflictIsDeliveredAgainIfOnDeadFails(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.in = inbox.New(b.pool, b.nc, *b.recordDeaths(1))
	sub := b.subscription("h")
	sub.Order = inbox.HoldKey // an ordered handler tries again soon
	b.in.Handle(sub, effect("h"))
	b.in.Declare(inbox.Subscription{Name: "bill"})
	first, second := accepted("bill", "a", "1"), accepted("bill", "a", "2")
	if _, err := b.in.AcceptAll(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	if got, err := b.in.AcceptAll(t.Context(), second); err == nil || len(b.held("bill")) != 1 {
		t.Errorf("AcceptAll = %v, %v; want an error, and the conflict not held: %v", got, err, b.held("bill"))
	}
	if got, err := b.in.AcceptAll(t.Context(), second); err != nil || got[0] != inbox.Conflict || len(b.held("bill")) != 2 {
		t.Errorf("AcceptAll again = %v, %v", got, err)
	}
	for _, data := range []string{"1", "2"} {
		b.publishEvent(postroom.Event{ID: "bad", Source: "/shop", Type: b.stream + ".placed", Data: []byte(data)})
	}
	b.run()
	b.eventually("the conflict to be held", func() bool { return b.dead("h") == 1 })
	if got, want := fmt.Sprint(b.deaths()), "[a 0 conflict bad 0 conflict]"; got != want {
		t.Errorf("deaths: %s, want %s", got, want)
	}
}

// The last attempt at an event did not end, and OnDead fails again and again. It ends no process, so the
// event does not become dead without it.
func TestAnOnDeadThatFailsIsNoOnDeadThatEndsTheProcess(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.holdOne("h")
	b.exec("UPDATE postroom.held SET claimed_by = 'gone', next_at = now() - interval '1 s', attempts = 5")
	b.in = inbox.New(b.pool, b.nc, *b.recordDeaths(8))
	b.in.Handle(b.subscription("h"), effect("h"))
	b.run()
	b.eventually("its death", func() bool {
		b.exec("UPDATE postroom.held SET next_at = now() - interval '1 s' WHERE dead_at IS NULL")
		return b.dead("h") == 1
	})
	if got := fmt.Sprint(b.deaths()); got != "[bad 5 crash]" {
		t.Errorf("deaths: %s, want the event", got)
	}
}

// The key of a replayed event cannot be made, and OnDead fails again and again. No attempt is lost.
func TestAnOnDeadThatFailsForAnEventWithoutItsKey(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	sub := b.subscription("h")
	sub.DedupeKey = func(postroom.Event) string { return "" }
	b.in.Handle(sub, effect("h"))
	stop := b.run()
	b.publish("bad")
	b.eventually("its death", func() bool { return b.dead("h") == 1 })
	stop()
	b.in = inbox.New(b.pool, b.nc, *b.recordDeaths(8))
	b.in.Handle(sub, effect("h"))
	b.overrideDeadNextAtAndAttempts("h", "/shop bad")
	b.run()
	devtest.Eventually(t, 20*time.Second, "its death after the replay", func() bool {
		b.exec("UPDATE postroom.held SET next_at = now() - interval '1 s' WHERE dead_at IS NULL AND claimed_by IS NULL")
		return b.dead("h") == 1
	})
	if got := fmt.Sprint(b.deaths()); got != "[bad 1 dedupe_key]" {
		t.Errorf("deaths: %s, want the event", got)
	}
}

// If OnDead always fails for an event that cannot run, an ordered handler gets beyond it.
func TestOnDeadThatAlwaysFailsStopsNoOthers(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	cfg := b.config()
	cfg.OnDead = func(context.Context, pgx.Tx, inbox.Letter) error { return errors.New("never") }
	b.in = inbox.New(b.pool, b.nc, cfg)
	b.in.Handle(b.ordered("o", inbox.HoldKey), effect("o"))
	b.publishRaw(&nats.Msg{Subject: b.stream + ".placed", Header: nats.Header{"ce-id": {"a", "b"}}})
	b.publishKeyed(20, 50)
	stop := b.run()
	b.eventually("the others' effects", func() bool { return b.made("o", "%") == 1000 })
	if floor := b.floorAt("o"); floor != 0 {
		t.Errorf("the floor is %d, beyond an event that is not decided", floor)
	}
	stop()
	cfg = b.config()
	b.in = inbox.New(b.pool, b.nc, cfg)
	b.in.Handle(b.ordered("o", inbox.HoldKey), effect("o"))
	b.run()
	b.eventually("the event to be dead", func() bool { return b.dead("o") == 1 })
	b.eventually("the floor", func() bool { return b.floorAt("o") == 1001 })
	if n := b.outOfOrder("o"); n > 0 {
		t.Errorf("%d effects out of order", n)
	}
}

// While OnDead runs for an event of one handler, the failed events of other handlers are held and run
// again.
func TestOnDeadThatTakesLongDelaysNoOtherHandler(t *testing.T) {
	t.Parallel()
	for _, batch := range []int{1, 5} {
		t.Run(fmt.Sprintf("batch %d", batch), func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			cfg := b.config()
			began, handled := make(chan struct{}), make(chan struct{})
			cfg.OnDead = func(ctx context.Context, _ pgx.Tx, _ inbox.Letter) error {
				close(began)
				select {
				case <-handled:
				case <-ctx.Done():
					t.Error("the other handler waited for OnDead")
				}
				return nil
			}
			b.in = inbox.New(b.pool, b.nc, cfg)
			sub := b.subscription("dies")
			sub.Workers, sub.Batch, sub.Attempts = 1, batch, 1
			b.in.Handle(sub, bad("dies"))
			var runs atomic.Int32
			other := b.subscription("other")
			other.Types = []string{b.stream + ".other"}
			b.in.Handle(other, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
				if runs.Add(1) == 1 {
					return errFails
				}
				close(handled)
				return effect("other").Handle(ctx, tx, ev)
			}))
			b.publish("bad 1")
			b.run()
			devtest.Receive(t, 20*time.Second, "OnDead to begin", began)
			b.publishEvent(postroom.Event{ID: "1", Source: "/shop", Type: b.stream + ".other", Data: []byte("1")})
			b.eventually("both to be decided", func() bool { return b.dead("dies") == 1 && b.effects("other")["1"] == 1 })
		})
	}
}

// OnDead takes long for the events of one handler. That delays no event of another handler.
func TestOnDeadThatTakesLongDelaysOnlyItsHandler(t *testing.T) {
	t.Parallel()
	const many = 30
	for way, kill := range map[string]func(b *bench){
		"conflicts of an external handler": func(b *bench) {
			for _, data := range []string{"1", "2"} {
				for i := range many {
					b.publishEvent(postroom.Event{ID: fmt.Sprint("x", i), Source: "/shop", Type: b.stream + ".o", Data: []byte(data)})
				}
				b.eventually("the events to be decided", func() bool { return b.ledger("o") == many })
			}
		},
		"messages that are no events, at an ordered external handler": func(b *bench) {
			for range many {
				b.publishRaw(&nats.Msg{Subject: b.stream + ".p", Header: nats.Header{"ce-time": {"never"}}, Data: []byte("1")})
			}
		},
	} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			cfg := b.config()
			began := make(chan struct{}, 1)
			cfg.OnDead = func(ctx context.Context, _ pgx.Tx, _ inbox.Letter) error {
				select {
				case began <- struct{}{}:
				default:
				}
				<-ctx.Done()
				return ctx.Err()
			}
			b.in = inbox.New(b.pool, b.nc, cfg)
			nothing := func(context.Context, *inbox.Attempt) error { return nil }
			b.in.HandleExternal(inbox.Subscription{Name: "o", Stream: b.stream, Types: []string{b.stream + ".o"}, Workers: 4}, nothing)
			b.in.HandleExternal(inbox.Subscription{Name: "p", Stream: b.stream, Types: []string{b.stream + ".p"}, Workers: 1, Order: inbox.HoldKey}, nothing)
			b.in.HandleExternal(inbox.Subscription{Name: "calls", Stream: b.stream, Types: []string{b.stream + ".placed"}, Workers: 1},
				func(_ context.Context, a *inbox.Attempt) error {
					a.OnSuccess(func(ctx context.Context, tx pgx.Tx) error { return effect("calls").Handle(ctx, tx, a.Event) })
					return nil
				})
			b.in.Handle(b.subscription("other"), effect("other"))
			b.run()
			b.publish("before")
			b.eventually("an event before", func() bool { return len(b.effects("calls")) == 1 && len(b.effects("other")) == 1 })
			kill(b)
			devtest.Receive(t, 20*time.Second, "OnDead to begin", began)
			b.publish(ids("after", many)...)
			devtest.Eventually(t, 5*time.Second, "the events of other handlers", func() bool { return len(b.effects("calls")) == 1+many && len(b.effects("other")) == 1+many })
		})
	}
}

// Two workers have events that become dead. Neither waits until the other's call of OnDead has ended.
func TestWorkersCallOnDeadAtTheSameTime(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	cfg := b.config()
	var calls sync.WaitGroup
	calls.Add(2)
	cfg.OnDead = func(ctx context.Context, _ pgx.Tx, _ inbox.Letter) error {
		both := make(chan struct{})
		go func() { calls.Done(); calls.Wait(); close(both) }()
		select {
		case <-both:
		case <-ctx.Done():
			t.Error("the other worker waited")
		}
		return nil
	}
	b.in = inbox.New(b.pool, b.nc, cfg)
	sub := b.subscription("dies")
	sub.Workers, sub.Attempts = 2, 1
	b.in.Handle(sub, bad("dies"))
	b.publish("bad 1", "bad 2")
	b.run()
	b.eventually("both to be dead", func() bool { return b.dead("dies") == 2 })
}

// An event of an ordered handler becomes dead, and waits until OnDead has ended for another event. The
// next event of its key comes meanwhile, and waits behind the dead one.
func TestNoEventOvertakesOneThatBecomesDead(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	began, ran := make(chan struct{}), make(chan struct{}, 1)
	cfg := b.config()
	cfg.OnDead = func(_ context.Context, _ pgx.Tx, l inbox.Letter) error {
		if l.Event.Key == "k" {
			return nil
		}
		close(began)
		select {
		case <-ran:
			t.Error("the next event of the key ran")
		case <-time.After(time.Second):
		}
		return nil
	}
	b.in = inbox.New(b.pool, b.nc, cfg)
	sub := b.ordered("o", inbox.HoldKey)
	sub.DedupeKey = func(ev postroom.Event) string {
		if ev.ID == "k-00001" {
			return ev.ID
		}
		return ""
	}
	b.in.HandleExternal(sub, func(context.Context, *inbox.Attempt) error {
		ran <- struct{}{}
		return nil
	})
	b.run()
	b.publishKey("another", 0)
	devtest.Receive(t, 20*time.Second, "OnDead to begin", began)
	b.publishKey("k", 0)
	b.publishKey("k", 1)
	b.eventually("the next event to wait", func() bool { return b.held("o")["k-00001"].State == "waiting" })
}

// If a handler committed its transaction itself and OnDead fails, the handler does not run again.
func TestCommittedHandlerDoesNotRunAgainIfOnDeadFails(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	cfg := b.config()
	cfg.OnDead = func(context.Context, pgx.Tx, inbox.Letter) error { return errors.New("never") }
	b.in = inbox.New(b.pool, b.nc, cfg)
	var calls atomic.Int64
	commits := postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		calls.Add(1)
		err := effect("h").Handle(ctx, tx, ev)
		_, failed := tx.Exec(ctx, "COMMIT")
		return errors.Join(err, failed)
	})
	b.in.Handle(b.subscription("h"), commits)
	b.in.Handle(inbox.Subscription{Name: "held", Workers: 1}, commits)
	if _, err := b.in.AcceptAll(t.Context(), accepted("held", "b", "1")); err != nil {
		t.Fatal(err)
	}
	b.publish("a")
	b.run()
	b.eventually("both to be dead", func() bool { return b.dead("h") == 1 && b.dead("held") == 1 })
	if n := calls.Load(); n != 2 {
		t.Errorf("the handlers ran %d times, want twice", n)
	}
}

// LogOutcomes logs one line for each delivery, with its outcome.
func TestLogOutcomes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	cfg := b.config()
	var out lockedBuffer
	cfg.Logger = slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	cfg.LogOutcomes = slog.LevelDebug
	b.in = inbox.New(b.pool, b.nc, cfg)
	sub := b.subscription("h")
	sub.Attempts = 2
	b.in.Handle(sub, bad("h"))
	b.publish("good", "bad", "good")
	b.run()
	want := []string{
		"outcome=done event_id=good", "outcome=duplicate event_id=good", "outcome=held event_id=bad", "outcome=dead event_id=bad",
	}
	b.eventually("the lines", func() bool {
		for _, w := range want {
			if strings.Count(out.String(), `msg="delivery ended" handler=h `+w) != 1 {
				return false
			}
		}
		return true
	})
	for line := range strings.Lines(out.String()) {
		whole := strings.Contains(line, "level=DEBUG") && strings.Contains(line, " duration=") && strings.Contains(line, " attempt=")
		if strings.Contains(line, "delivery ended") && !whole {
			t.Errorf("a line lacks its level, duration or attempt: %s", line)
		}
	}
}

// lockedBuffer is a buffer that several goroutines write to.
type lockedBuffer struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

// OnDead fails for many messages at an ordered handler. They wait, and do not stop the events behind
// them.
func TestManyMessagesThatAnOrderedReaderCannotHold(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	cfg := b.config()
	cfg.OnDead = func(context.Context, pgx.Tx, inbox.Letter) error { return errFails }
	b.in = inbox.New(b.pool, b.nc, cfg)
	b.in.Handle(b.ordered("o", inbox.HoldKey), effect("o"))
	for range 200 {
		b.publishRaw(&nats.Msg{Subject: b.stream + ".placed", Header: nats.Header{"ce-time": {"never"}}, Data: []byte("1")})
	}
	b.publish("good")
	b.run()
	b.eventually("the event behind them", func() bool { return b.effects("o")["good"] == 1 })
}

// OnDead fails for one event of a key at an ordered handler: it is a conflict, and blocks no other
// event. The key has many later events. Neither they nor an event of another key wait. When OnDead
// succeeds, the conflict is held. It does not take effect, even if the other event's row has expired.
func TestAKeyWithAnEventThatCannotBeHeld(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	cfg := b.config()
	var tells atomic.Bool
	cfg.OnDead = func(context.Context, pgx.Tx, inbox.Letter) error {
		if !tells.Load() {
			return errFails
		}
		return nil
	}
	b.in = inbox.New(b.pool, b.nc, cfg)
	b.in.Handle(b.ordered("o", inbox.HoldKey), effect("o"))
	event := func(id, key, data string) {
		b.publishEvent(postroom.Event{ID: id, Source: "/shop", Type: b.stream + ".placed", Key: key, Data: []byte(data)})
	}
	event("x", "k", "1")
	event("x", "k", "2")
	for _, id := range ids("k", 2200) {
		event(id, "k", "1")
	}
	event("z", "z", "1")
	b.run()
	b.eventually("the event of another key", func() bool { return b.effects("o")["z"] == 1 })
	b.eventually("the events of the key", func() bool { return len(b.effects("o")) == 2202 })
	b.exec("DELETE FROM postroom.inbox WHERE dedupe_key = '/shop x'") // as if it had expired
	tells.Store(true)
	b.eventually("the conflict to be dead", func() bool { return b.dead("o") == 1 })
	if n := b.effects("o")["x"]; n != 1 {
		t.Errorf("the event of the conflict took effect %d times", n)
	}
}
