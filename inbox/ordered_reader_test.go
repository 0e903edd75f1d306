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
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
)

// reader returns the process that reads for a handler, or an empty text.
func (b *bench) reader(name string) (reader string) {
	b.Helper()
	err := b.pool.QueryRow(b.Context(), "SELECT coalesce((SELECT reader FROM postroom.subscription WHERE handler = $1 AND reader_until > now()), '')", name).Scan(&reader)
	if err != nil {
		b.Fatal(err)
	}
	return reader
}

// readers returns how many consumers the stream has.
func (b *bench) readers() (n int) {
	b.Helper()
	stream, err := b.js.Stream(b.Context(), b.stream)
	if err != nil {
		b.Fatal(err)
	}
	for range stream.ListConsumers(b.Context()).Info() {
		n++
	}
	return n
}

// A reader that stops gives its lease up. Another goes on from its floor, long before the
// lease would run out.
func TestStandByTakesOver(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var stops []func()
	for range 2 {
		cfg := b.config()
		cfg.AckWait = time.Hour
		b.in = inbox.New(b.pool, b.nc, cfg)
		b.in.Handle(b.ordered("o", inbox.HoldKey), effect("o"))
		stops = append(stops, b.run())
		b.eventually("one to read", func() bool { return b.reader("o") != "" })
	}
	b.publishFromTo(3, 0, 10)
	b.eventually("the first effects", func() bool { return b.made("o", "%") == 30 })
	first := b.reader("o")
	stops[0]()
	if floor := b.floorAt("o"); floor != 30 {
		t.Errorf("the floor is noted at %d when the reader has stopped, want 30", floor)
	}
	began := time.Now()
	b.publishFromTo(3, 10, 11)
	b.eventually("the next effects", func() bool { return b.made("o", "%") == 33 })
	took := time.Since(began)
	if now := b.reader("o"); now == first || now == "" {
		t.Errorf("%q reads, and %q did before", now, first)
	}
	var takeovers int
	if err := b.pool.QueryRow(t.Context(), "SELECT takeovers FROM postroom.subscription").Scan(&takeovers); err != nil || takeovers != 0 {
		t.Errorf("%d take-overs without a word (%v), want none", takeovers, err)
	}
	if n := b.counted("o", "duplicate"); n > 0 {
		t.Errorf("%d events were read again", n)
	}
	t.Logf("the stand-by had the next effects after %s", took)
}

// If a former reader decides an event, the inbox row prevents a second effect. It can record
// nothing.
func TestStalledReader(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	release := make(chan struct{})
	blocked := orBlocked{effect("o"), "a-00001", release}
	var begun atomic.Bool
	b.in.Handle(b.ordered("o", inbox.HoldKey), postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		if ev.ID == blocked.at {
			begun.Store(true)
		}
		return blocked.Handle(ctx, tx, ev)
	}))
	b.run()
	b.publishKey("a", 0)
	b.eventually("the first effect", func() bool { return b.floorAt("o") == 1 })
	b.publishKey("a", 1)
	b.publishKey("a", 2)
	b.publishKey("b", 0)
	b.eventually("the other key's effect", func() bool { return b.made("o", "b%") == 1 })
	b.eventually("it to begin", begun.Load)
	b.exec("UPDATE postroom.subscription SET epoch = epoch + 1, reader = 'elsewhere/1/x', reader_until = 'infinity', floor = 0, floor_id = NULL, floor_stored_at = NULL")
	b.eventually("it to read no longer", func() bool { return b.readers() == 0 })
	close(release)
	b.eventually("the events that it had begun", func() bool { return b.made("o", "a-00001") == 1 })
	b.exec("UPDATE postroom.subscription SET reader = NULL, reader_until = NULL")
	b.eventually("the last effect", func() bool { return b.made("o", "a-00002") == 1 })
	b.eventually("the floor", func() bool { return b.floorAt("o") == 4 })
	b.wantOrder("o", "a", numbered("a", 0, 2)...)
	b.wantOnce("o", "a-00000", "a-00001", "a-00002", "b-00000")
	if n := b.counted("o", "duplicate"); n < 3 {
		t.Errorf("%d duplicates: the floor was noted by one who did not read any more", n)
	}
}

// If the database does not answer, a reader cannot renew its lease. It stops when the lease
// ends, not when the statement times out, because another may read by then.
func TestReaderStopsWhenItsLeaseEndsDuringARenewal(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	cfg := b.config()
	cfg.AckWait = 2 * time.Second
	b.in = inbox.New(b.pool, b.nc, cfg)
	b.in.Handle(b.ordered("o", inbox.HoldKey), effect("o"))
	b.run()
	b.publishKey("a", 0)
	b.eventually("the first effect", func() bool { return b.floorAt("o") == 1 })
	tx, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SELECT FROM postroom.subscription FOR UPDATE"); err != nil { // a renewal waits for it
		t.Fatal(err)
	}
	began := time.Now()
	looked, gap := began, time.Duration(0) // a stall of the machine shows as a gap between two looks
	b.eventually("it to read no longer", func() bool {
		is := b.readers() == 0
		gap = max(gap, time.Since(looked))
		looked = time.Now()
		return is
	})
	if took := time.Since(began); took > 8*time.Second+gap {
		t.Errorf("it read for %s with a lease of %s that was not renewed; the machine stalled for %s at most", took, cfg.AckWait, gap)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.publishKey("a", 1)
	b.eventually("it to read again", func() bool { return b.made("o", "a-00001") == 1 })
}

// If readers die again and again at the same place, one of the events that they read may be
// the cause. These events run alone.
func TestEventsAtWhichReadersDieRunAlone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.in.Handle(b.ordered("o", inbox.HoldKey), effect("o"))
	b.exec(`CREATE TABLE suspect (event text); CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF NEW.solitary THEN INSERT INTO suspect VALUES (NEW.event_id); END IF; RETURN NEW; END $$;
		CREATE TRIGGER note AFTER INSERT ON postroom.held FOR EACH ROW EXECUTE FUNCTION note()`)
	stop := b.run()
	b.publishKey("a", 0)
	b.eventually("the first effect", func() bool { return b.floorAt("o") == 1 })
	stop()
	b.exec("UPDATE postroom.subscription SET takeovers = 3, reader = 'elsewhere/1/x', reader_until = now()") // the fourth is ours
	b.in = inbox.New(b.pool, b.nc, b.config())
	b.in.Handle(b.ordered("o", inbox.HoldKey), effect("o"))
	b.publishFromTo(3, 0, 5)
	b.run()
	b.eventually("all effects", func() bool { return b.made("o", "%") == 16 && b.heldCount("o") == 0 })
	var suspects int
	if err := b.pool.QueryRow(t.Context(), "SELECT count(*) FROM suspect").Scan(&suspects); err != nil || suspects != 15 {
		t.Errorf("%d suspects (%v), want 15", suspects, err)
	}
	if n := b.outOfOrder("o"); n > 0 {
		t.Errorf("%d effects out of order", n)
	}
	b.eventually("the count to begin anew", func() bool {
		var takeovers int
		err := b.pool.QueryRow(t.Context(), "SELECT takeovers FROM postroom.subscription").Scan(&takeovers)
		return err == nil && takeovers == 0
	})
}

func TestOrderedHandlersRefuseBadSettings(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for name, tt := range map[string]struct {
		change func(*inbox.Subscription)
		want   string
	}{
		"batch":     {func(s *inbox.Subscription) { s.Batch = 2 }, "Batch"},
		"stream":    {func(s *inbox.Subscription) { s.Stream, s.Types = "", nil }, "Stream"},
		"isolation": {func(s *inbox.Subscription) { s.Isolation = pgx.Serializable }, "Isolation"},
		"unknown":   {func(s *inbox.Subscription) { s.Order = 3 }, "Order"},
		"pool":      {func(s *inbox.Subscription) { s.Workers = 18 }, "pool_max_conns"}, // 18 and the lease's, of 20
	} {
		in := inbox.New(b.pool, b.nc, inbox.Config{})
		sub := b.ordered("o", inbox.HoldKey)
		tt.change(&sub)
		in.Handle(sub, effect("o"))
		if err := in.Check(t.Context()); !errors.Is(err, postroom.ErrUnrecoverable) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: Check = %v, want a refusal that names %s", name, err, tt.want)
		}
	}
	sub := b.ordered("o", inbox.HoldKey)
	sub.Workers, sub.Isolation = 17, pgx.ReadCommitted
	b.in.Handle(sub, effect("o"))
	if err := b.in.Check(t.Context()); err != nil {
		t.Errorf("Check = %v", err)
	}
	if _, err := b.in.Accept(t.Context(), "o", postroom.Event{Source: "/s", Type: b.stream + ".placed"}); !errors.Is(err, inbox.ErrOrdered) {
		t.Errorf("Accept = %v, want ErrOrdered", err)
	}
}

// An ordered handler has no consumer that a stream could keep events for.
func TestOrderedHandlerNeedsAStreamThatKeepsEvents(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, retention := range []jetstream.RetentionPolicy{jetstream.InterestPolicy, jetstream.WorkQueuePolicy} {
		b.stream = nats.NewInbox()[len("_INBOX."):]
		if _, err := b.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: b.stream, Subjects: []string{b.stream + ".>"}, Retention: retention}); err != nil {
			t.Fatal(err)
		}
		in := inbox.New(b.pool, b.nc, inbox.Config{})
		in.Handle(b.ordered("o", inbox.HoldKey), effect("o"))
		if err := in.Check(t.Context()); !errors.Is(err, postroom.ErrUnrecoverable) || !strings.Contains(err.Error(), "limits retention") {
			t.Errorf("%s: Check = %v, want a refusal", retention, err)
		}
	}
}

// Every process of an ordered handler, not only the reader, must see what was committed while the
// process waited for a key.
func TestOrderedHandlerNeedsReadCommitted(t *testing.T) {
	t.Parallel()
	b := newBenchOn(t, poolWith(t, func(cfg *pgxpool.Config) {
		cfg.MaxConns, cfg.ConnConfig.RuntimeParams["default_transaction_isolation"] = 10, "repeatable read"
	}), devtest.NATS(t))
	b.exec(led)
	b.in.Handle(b.ordered("o", inbox.HoldKey), effect("o"))
	ctx, cancel := context.WithTimeout(t.Context(), devtest.Patience(t, 20*time.Second))
	defer cancel()
	if err := b.in.Run(ctx); !errors.Is(err, inbox.ErrIsolation) || !errors.Is(err, postroom.ErrUnrecoverable) {
		t.Errorf("Run = %v, want ErrIsolation, refused", err)
	}
}

// An ordered handler that calls vendors: one event of a key at a time, in its order.
func TestOrderedExternalHandler(t *testing.T) {
	t.Parallel()
	const keys, each = 10, 20
	b := newBenchOn(t, poolWith(t, func(cfg *pgxpool.Config) { cfg.MaxConns = 24 }), devtest.NATS(t))
	var mu sync.Mutex
	busy, seen, beside := map[string]bool{}, map[string]bool{}, 0
	enter := func(ev postroom.Event) (first bool) {
		mu.Lock()
		defer mu.Unlock()
		if busy[ev.Key] {
			beside++
		}
		first = !seen[ev.ID]
		busy[ev.Key], seen[ev.ID] = true, true
		return first
	}
	for range 2 {
		b.in = inbox.New(b.pool, b.nc, b.config())
		sub := b.ordered("o", inbox.HoldKey)
		sub.Workers, sub.VendorWindow = 8, time.Hour
		b.in.HandleExternal(sub, func(ctx context.Context, attempt *inbox.Attempt) error {
			first := enter(attempt.Event)
			defer func() {
				mu.Lock()
				defer mu.Unlock()
				busy[attempt.Event.Key] = false
			}()
			if first && len(attempt.Event.ID)%2 == 0 && attempt.Event.ID[len(attempt.Event.ID)-1] == '7' {
				return errors.New("not now")
			}
			attempt.OnSuccess(func(ctx context.Context, tx pgx.Tx) error { return effect("o").Handle(ctx, tx, attempt.Event) })
			return nil
		})
		b.run()
	}
	b.publishKeyed(keys, each)
	b.publish("x1", "x2") // without a key
	b.eventually("all effects", func() bool { return b.made("o", "%") == keys*each+2 && b.heldCount("o") == 0 })
	if n := b.outOfOrder("o"); n > 0 {
		t.Errorf("%d effects out of order, or twice", n)
	}
	if beside > 0 {
		t.Errorf("an event ran %d times at the same time as another of its key", beside)
	}
}

// A settlement that takes long holds up no key but its own.
func TestSlowSettlementOfAnOrderedExternalHandler(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	release, entered := make(chan struct{}), make(chan struct{})
	var once sync.Once
	sub := b.ordered("o", inbox.HoldKey)
	sub.Workers = 4
	b.in.HandleExternal(sub, func(_ context.Context, attempt *inbox.Attempt) error {
		attempt.OnSuccess(func(ctx context.Context, tx pgx.Tx) error {
			if attempt.Event.ID == "a-00000" {
				once.Do(func() { close(entered) })
				<-release
			}
			return effect("o").Handle(ctx, tx, attempt.Event)
		})
		return nil
	})
	b.run()
	b.publishKey("a", 0)
	<-entered
	b.publishKey("a", 1)
	for i := range 5 {
		b.publishKey(fmt.Sprint("b", i), 0)
	}
	devtest.Eventually(t, 5*time.Second, "the other keys' effects", func() bool { return b.made("o", "b%") == 5 })
	close(release)
	b.eventually("all effects", func() bool { return b.made("o", "%") == 7 })
	b.wantOrder("o", "a", numbered("a", 0, 1)...)
}

// The clock is set back by an hour after a reader died. Another process reads at once.
func TestAReaderCannotReadLongerThanItsLease(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	stop := b.startBackfill(inbox.HoldKey, effect("h"))
	b.publishKey("a", 0)
	b.eventually("the first effect", func() bool { return b.floorAt("h") == 1 })
	stop()
	b.exec("UPDATE postroom.subscription SET reader = 'elsewhere/1/x', reader_until = now() + interval '1 hour'")
	b.startBackfill(inbox.HoldKey, effect("h"))
	b.publishKey("a", 1)
	b.eventually("the second effect", func() bool { return b.floorAt("h") == 2 })
}

// Processes of an ordered handler end without giving up their lease while the stream has no event
// for it. So no event can have ended them, and the next event does not run alone.
func TestIdleReadersThatEndSuspectNoEvent(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	alone := make(chan bool, 10)
	deploy := func() (stop func()) {
		b.in = inbox.New(b.pool, b.nc, b.config())
		b.in.Handle(b.ordered("o", inbox.HoldKey), postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
			var solitary bool
			if err := b.pool.QueryRow(ctx, "SELECT EXISTS (SELECT FROM postroom.held WHERE solitary AND event_id = $1)", ev.ID).Scan(&solitary); err != nil {
				return err
			}
			alone <- solitary
			return effect("o").Handle(ctx, tx, ev)
		}))
		return b.run()
	}
	stop := deploy()
	b.publish("first")
	b.eventually("the first event", func() bool { return len(b.effects("o")) == 1 })
	if <-alone {
		t.Error("the first event ran alone")
	}
	b.eventually("its floor to be recorded", func() bool {
		var floor int
		return b.pool.QueryRow(t.Context(), "SELECT floor FROM postroom.subscription").Scan(&floor) == nil && floor == 1
	})
	for range 5 {
		b.exec("UPDATE postroom.subscription SET reader = 'ended', epoch = epoch + 1") // as if the process had ended: it can release nothing
		stop()
		b.exec("UPDATE postroom.subscription SET reader_until = now()")
		stop = deploy()
		b.eventually("the next process to read", func() bool {
			var reader string
			return b.pool.QueryRow(t.Context(), "SELECT reader FROM postroom.subscription").Scan(&reader) == nil && reader != "ended"
		})
	}
	b.eventually("the count to begin anew", func() bool {
		var takeovers int
		err := b.pool.QueryRow(t.Context(), "SELECT takeovers FROM postroom.subscription").Scan(&takeovers)
		return err == nil && takeovers == 0
	})
	b.publish("next")
	b.eventually("the next event", func() bool { return len(b.effects("o")) == 2 })
	if <-alone {
		t.Error("the next event ran alone, although it was in no process that ended")
	}
}
