package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
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

func TestFailures(t *testing.T) {
	t.Parallel()
	failing := errors.New("not now")
	tests := []struct {
		name string
		fail func(ctx context.Context, tx pgx.Tx) error
	}{
		{"an error", func(context.Context, pgx.Tx) error { return failing }},
		{"an error that says when", func(context.Context, pgx.Tx) error { return postroom.RetryAfter(20*time.Millisecond, failing) }},
		{"a goroutine that is ended", func(context.Context, pgx.Tx) error { runtime.Goexit(); return nil }},
		{"a panic", func(context.Context, pgx.Tx) error { panic("no") }},
		{"a statement that fails", func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "SELECT 1/0")
			return err
		}},
		{"a statement whose failure is overlooked", func(ctx context.Context, tx pgx.Tx) error {
			_, _ = tx.Exec(ctx, "SELECT 1/0")
			return nil
		}},
		{"a constraint that fails at the commit", func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "INSERT INTO checked VALUES (1), (1)")
			return err
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.exec("CREATE TABLE checked (id int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
			var mu sync.Mutex
			runs := map[string]int{}
			b.in.Handle(b.subscription("flaky"), postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
				if err := effect("flaky").Handle(ctx, tx, ev); err != nil {
					return err
				}
				mu.Lock()
				runs[ev.ID]++
				first := runs[ev.ID] == 1
				mu.Unlock()
				if first && ev.ID == "bad" {
					return tt.fail(ctx, tx)
				}
				return nil
			}))
			b.run()
			b.publish("bad", "good")
			b.eventually("both effects", func() bool { return len(b.effects("flaky")) == 2 })
			b.drained()
			b.wantOnce("flaky", "bad", "good")
			if got := b.ledger("flaky"); got != 2 {
				t.Errorf("%d inbox rows, want 2", got)
			}
		})
	}
}

func TestAFailedHandlerLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.in.Handle(b.subscription("broken"), postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		return errors.Join(effect("broken").Handle(ctx, tx, ev), errors.New("always"))
	}))
	stop := b.run()
	b.publish("a")
	b.eventually("its death", func() bool { return b.dead("broken") == 1 })
	stop()
	b.wantOnce("broken")
	want := heldEntry{Key: "/shop a", State: "dead", Attempts: 5, Class: "error", Failures: 5}
	if got := b.held("broken")["/shop a"]; got != want {
		t.Errorf("held: %+v, want %+v", got, want)
	}
}

func TestOneFailingEventDoesNotStopTheOthers(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	sub := b.subscription("mixed")
	sub.Workers = 1
	b.in.Handle(sub, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		if ev.ID == "bad" {
			return errors.New("always")
		}
		return effect("mixed").Handle(ctx, tx, ev)
	}))
	b.run()
	b.publishRaw(&nats.Msg{Subject: b.stream + ".placed", Header: nats.Header{"ce-id": {"1", "2"}}}) // undecodable
	b.publish("bad")
	var want []string
	for i := range 50 {
		want = append(want, fmt.Sprint("good", i))
	}
	b.publish(want...)
	b.eventually("the good ones", func() bool { return len(b.effects("mixed")) == len(want) })
	b.wantOnce("mixed", want...)
	b.eventually("the bad ones to be dead", func() bool { return b.dead("mixed") == 2 })
}

func TestReadOnlyDatabaseCostsNoAttempt(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.in.Handle(b.subscription("billing"), effect("billing"))
	b.exec("ALTER TABLE postroom.inbox RENAME TO gone") // if a statement of the inbox fails, that is not the event's fault
	b.run()
	b.publish("a")
	b.eventually("the event to be delivered", func() bool {
		stream, err := b.js.Stream(t.Context(), b.stream)
		if err != nil {
			return false
		}
		for info := range stream.ListConsumers(t.Context()).Info() {
			return info.NumAckPending == 1
		}
		return false
	})
	b.exec("ALTER TABLE postroom.gone RENAME TO inbox")
	b.eventually("the effect", func() bool { return len(b.effects("billing")) == 1 })
	if got := b.counted("billing", "held"); got != 0 {
		t.Errorf("%d attempts were counted although the inbox could write no row", got)
	}
}

// After a failover, the connections of the pool lead to a server that takes no writes, and new
// connections would lead to one that does. The inbox leaves the old connections, at its start, while it
// runs, and when it accepts an event. That costs no attempt.
func TestAnInboxLeavesAServerThatTakesNoWrites(t *testing.T) {
	t.Parallel()
	b := newBenchOn(t, devtest.Pool(t), devtest.NATS(t))
	pool, err := pgxpool.New(t.Context(), b.pool.Config().ConnString()+"&pool_max_conns=8")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	b.in = inbox.New(pool, b.nc, b.config())
	b.in.Handle(b.subscription("h"), effect("h"))
	devtest.TakeNoWrites(t, pool)
	b.publish("start")
	b.run()
	b.eventually("the first effect", func() bool { return len(b.effects("h")) == 1 })
	devtest.TakeNoWrites(t, pool)
	b.publish("run")
	b.eventually("the second effect", func() bool { return len(b.effects("h")) == 2 })
	if got := b.counted("h", "held"); got != 0 {
		t.Errorf("%d attempts were counted although the inbox could write no row", got)
	}
	devtest.TakeNoWrites(t, pool)
	ev := postroom.Event{ID: "accepted", Source: "/shop", Type: b.stream + ".placed", ContentType: "application/json", Data: []byte("1")}
	b.eventually("the event to be accepted", func() bool {
		_, err := b.in.Accept(t.Context(), "h", ev)
		return err == nil
	})
}

// An event is not acknowledged before it is held. That is so if it is held alone, and if the holder
// holds it together with others.
func TestNothingIsAcknowledgedBeforeItIsHeld(t *testing.T) {
	t.Parallel()
	pending := func(b *bench, n int) func() bool {
		return func() bool {
			all := b.consumers()
			return len(all) == 1 && all[0].NumAckPending == n && all[0].NumPending == 0
		}
	}
	for _, external := range []bool{false, true} {
		t.Run(fmt.Sprintf("external %t", external), func(t *testing.T) {
			t.Parallel()
			b := newBenchOn(t, devtest.Pool(t), devtest.NATS(t))
			if external {
				b.in.HandleExternal(b.subscription("h"), func(context.Context, *inbox.Attempt) error { return nil })
			} else {
				b.in.Handle(b.subscription("h"), effect("h"))
			}
			b.exec("ALTER TABLE postroom.held RENAME TO gone")
			b.run()
			b.publishRaw(&nats.Msg{Subject: b.stream + ".placed", Header: nats.Header{"ce-id": {"1", "2"}}}) // undecodable
			want := 1
			if external {
				b.publish("a")
				want = 2
			}
			b.eventually("the events to be delivered", pending(b, want))
			// The inbox tries to hold each event again and again. By then the test would see an
			// acknowledgement that came too early.
			b.eventually("some tries to hold them", func() bool {
				var failed int
				err := b.pool.QueryRow(b.Context(), "SELECT xact_rollback FROM pg_stat_database WHERE datname = current_database()").Scan(&failed)
				return err == nil && failed >= 3
			})
			if !pending(b, want)() {
				t.Fatal("an event that could not be held is acknowledged")
			}
			b.exec("ALTER TABLE postroom.gone RENAME TO held")
			b.eventually("all to be held or done", pending(b, 0))
			if n := b.dead("h"); n != 1 {
				t.Errorf("%d events are dead, want only the one that cannot be decoded", n)
			}
		})
	}
}

func TestDatabaseOutage(t *testing.T) {
	t.Parallel()
	server := devtest.OwnPostgres(t, durable)
	pool := migrated(t, server.URL())
	b := newBenchOn(t, pool, devtest.NATS(t))
	b.in.Handle(b.subscription("billing"), effect("billing"))
	b.run()
	b.publish("before")
	b.eventually("the first effect", func() bool { return len(b.effects("billing")) == 1 })
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	b.publish("during 1", "during 2", "during 3")
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.eventually("all effects", func() bool {
		var n int
		err := pool.QueryRow(t.Context(), "SELECT count(DISTINCT event) FROM effect").Scan(&n)
		return err == nil && n == 4
	})
	b.drained()
	b.wantOnce("billing", "before", "during 1", "during 2", "during 3")
	if got := b.counted("billing", "held"); got != 0 {
		t.Errorf("the outage cost %d attempts, want none", got)
	}
}

// More events fail than a consumer has pending by default.
func TestAThousandFailingEventsDoNotStopTheOthers(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	sub := b.subscription("mixed")
	sub.Schedule, sub.Attempts, sub.Workers = postroom.Backoff{time.Hour}, 8, 4
	sub.Pause.Off = true // otherwise the handler would pause
	b.in.Handle(sub, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		if ev.ID != "good" {
			return errors.New("always")
		}
		return effect("mixed").Handle(ctx, tx, ev)
	}))
	for i := range 1100 {
		b.publish(fmt.Sprint("bad", i))
	}
	b.publish("good")
	b.run()
	b.eventually("the good one", func() bool { return len(b.effects("mixed")) == 1 })
}

// Events of a key run in one transaction. If one of them leaves rows open, the connection is of no
// use, but only that event has failed.
func TestAnEventThatLeavesRowsOpenIsBlamed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := newScript("h")
	s.set("k-00000", errors.New("not yet"))
	sub := b.ordered("h", inbox.HoldKey)
	sub.Schedule, sub.Attempts = postroom.Backoff{10 * time.Millisecond}, 2
	b.in.Handle(sub, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		if err := s.Handle(ctx, tx, ev); err != nil || ev.ID != "k-00003" {
			return err
		}
		_, err := tx.Query(ctx, "SELECT n FROM generate_series(1, $1::int) n", 100000) // and does not close the rows
		return err
	}))
	for i := range 6 {
		b.publishKey("k", i)
	}
	b.run()
	b.eventually("all to be held", func() bool { return len(b.held("h")) == 6 && b.dead("h") == 1 })
	s.set("k-00000", nil)
	b.overrideDeadNextAtAndAttempts("h", "/shop k-00000")
	b.eventuallyStates("h", map[string]string{"k-00003": "dead", "k-00004": "waiting", "k-00005": "waiting"})
	if o := b.held("h")["/shop k-00003"]; o.Failures != 2 {
		t.Errorf("held: %+v", o)
	}
	b.wantOnce("h", numbered("k", 0, 2)...)
}

// A handler runs out of time in a statement and hides the error of its context. That is one attempt,
// and one run, however the handler wraps the error.
func TestATimeoutIsOneRun(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		own   time.Duration // the time that the handler gives its statement
		batch int
		class string
	}{
		{"the time of the inbox", time.Minute, 1, "timeout"},
		{"the time of the inbox, in a batch", time.Minute, 10, "timeout"},
		{"a time of its own", 50 * time.Millisecond, 1, "error"},
		{"a time of its own, in a batch", 50 * time.Millisecond, 10, "error"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			sub := b.batched(c.batch)
			sub.Timeout, sub.Attempts, sub.Schedule = 500*time.Millisecond, 2, postroom.Backoff{10 * time.Millisecond}
			var runs atomic.Int32
			b.in.Handle(sub, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
				if ev.ID != "bad" {
					return effect("h").Handle(ctx, tx, ev)
				}
				runs.Add(1)
				ctx, cancel := context.WithTimeout(ctx, c.own)
				defer cancel()
				_, err := tx.Exec(ctx, "SELECT pg_sleep(60)")
				return fmt.Errorf("the report is not done: %v", err) //nolint:errorlint // as users do
			}))
			b.publish("a", "bad", "c")
			b.run()
			b.eventually("its death", func() bool { return b.held("h")["/shop bad"].State == "dead" })
			if o := b.held("h")["/shop bad"]; o.Class != c.class || o.Attempts != 2 {
				t.Errorf("held: %+v", o)
			}
			if n := int(runs.Load()); n != 2 && c.batch == 1 || n > 3 { // a batch runs again with savepoints, which is no attempt
				t.Errorf("%d runs for two attempts", n)
			}
			b.wantOnce("h", "a", "c")
		})
	}
}

// A held event waits for a row that another session has locked. The rounds of its transaction take
// longer than its claim, but the claim does not run out: that would look like a crash, and the event
// would then run alone, while all other handlers wait.
func TestRoundsEndBeforeTheClaim(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.exec("CREATE TABLE account AS SELECT 1 AS id")
	lock, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := lock.Exec(t.Context(), "SELECT FROM account FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	sub := b.subscription("h")
	sub.Timeout, sub.Attempts, sub.Schedule = 2*time.Second, 3, postroom.Backoff{10 * time.Millisecond}
	var held atomic.Bool
	handler := postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, _ postroom.Event) error {
		if !held.Swap(true) {
			return errors.New("held first")
		}
		if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '700ms'"); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "UPDATE account SET id = id")
		return err
	})
	b.publish("a")
	for range 2 { // one looks for claims of the other that ran out
		b.in = inbox.New(b.pool, b.nc, b.config())
		b.in.Handle(sub, handler)
		b.run()
	}
	b.eventually("its death", func() bool { return b.held("h")["/shop a"].State == "dead" })
	if o := b.held("h")["/shop a"]; o.Solitary || o.Class != "contention" || o.Failures != 3 {
		t.Errorf("held: %+v, want three failures of its own and no crash", o)
	}
}
