package inbox_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
)

const lostClaims = "postroom.inbox.lease_lost"

// secondProcess is another process with the same handlers. The bench's inbox stays the first one.
func (b *bench) secondProcess(register func(in *inbox.Inbox)) *bench {
	b.Helper()
	other := *b
	other.anew(nil)
	register(other.in)
	other.run()
	return &other
}

// claimEnds returns when the claim on an event ends, counted from its acceptance.
func (b *bench) claimEnds(id string) time.Duration {
	b.Helper()
	var seconds float64
	err := b.pool.QueryRow(b.Context(), `SELECT extract(epoch FROM next_at - held_at)::float8 FROM postroom.held
		WHERE event_id = $1 AND claimed_by IS NOT NULL AND epoch = 1`, id).Scan(&seconds)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0
	}
	if err != nil {
		b.Fatal(err)
	}
	return time.Duration(seconds * float64(time.Second))
}

// blocking is a step's function that reports each call, and waits.
func blocking(v *vendor, entered chan<- string, resume <-chan struct{}) inbox.ExternalHandler {
	return func(ctx context.Context, attempt *inbox.Attempt) error {
		result, err := inbox.Step(ctx, attempt, "charge", func(ctx context.Context, key string) (string, error) {
			entered <- attempt.Event.ID
			<-resume
			return v.charge(context.WithoutCancel(ctx), key)
		})
		attempt.OnSuccess(noting("h", attempt.Event.ID))
		if err == nil && len(result) == 0 {
			err = errors.New("no result")
		}
		return err
	}
}

// A call may take longer than a claim lasts, even if another transaction locks another event
// meanwhile.
func TestClaimsAreRenewed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	v := newVendor(t)
	entered, resume := make(chan string, 10), make(chan struct{})
	sub := inbox.Subscription{Name: "h", Workers: 2, VendorWindow: time.Hour}
	register := func(in *inbox.Inbox) { in.HandleExternal(sub, blocking(v, entered, resume)) }
	lasts := func(cfg *inbox.Config) { cfg.AckWait = 5 * time.Second }
	b.anew(lasts)
	register(b.in)
	b.accept("h", "long", "locked")
	b.run()
	<-entered
	<-entered
	locking, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := locking.Exec(t.Context(), "SELECT FROM postroom.held WHERE event_id = 'locked' FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	other := *b
	other.anew(lasts)
	register(other.in)
	other.run()
	until := b.claimEnds("long") + 10*time.Second // twice as long as a claim lasts
	b.eventually("its claim to be renewed", func() bool { return b.claimEnds("long") > until })
	if err := locking.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	close(resume)
	b.waitUntilNoneHeld("h")
	b.wantOnce("h", "long", "locked")
	// The event was locked for longer than its claim, so the other process may have taken it
	// over.
	b.eventually("both to be counted", func() bool { return b.counted("h", "done")+other.counted("h", "done") >= 2 })
	if mine, others := b.counted("h", "done"), other.counted("h", "done"); mine < 1 || mine+others != 2 {
		t.Errorf("the processes finished %d and %d events", mine, others)
	}
}

// A process stalls until its claim has expired, and another process takes the event over. The first
// process settles nothing, and its context says why. The vendor sees only one key.
func TestStalledOwnerOfACallSettlesNothing(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		fails bool // whether the first owner's call fails
	}{{"its call succeeds", false}, {"its call fails", true}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			v := newVendor(t)
			entered, resume, told := make(chan struct{}), make(chan struct{}), make(chan error, 1)
			sub := inbox.Subscription{Name: "h", Workers: 1, VendorWindow: time.Hour}
			b.in.HandleExternal(sub, func(ctx context.Context, attempt *inbox.Attempt) error {
				_, err := inbox.Step(ctx, attempt, "charge", func(ctx context.Context, key string) (string, error) {
					result, err := v.charge(ctx, key)
					close(entered)
					<-resume
					<-ctx.Done() // the renewal finds the claim gone
					told <- context.Cause(ctx)
					if tt.fails {
						err = errors.New("broken")
					}
					return result, err
				})
				attempt.OnSuccess(noting("h", "first"))
				return err
			})
			b.accept("h", "e")
			b.run()
			<-entered
			other := b.secondProcess(func(in *inbox.Inbox) {
				in.HandleExternal(sub, func(ctx context.Context, attempt *inbox.Attempt) error {
					attempt.OnSuccess(noting("h", "second"))
					_, err := inbox.Step(ctx, attempt, "charge", v.charge)
					return err
				})
			})
			b.eventually("the other process to take over and finish", func() bool {
				b.exec("UPDATE postroom.held SET next_at = now() - interval '1 s' WHERE epoch = 1") // as if it did not renew
				return other.counted("h", "done") == 1
			})
			close(resume)
			b.eventually("the loss to be counted", func() bool { return b.count(lostClaims) == 1 })
			if err := <-told; errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the first owner got: %v", err)
			}
			b.wantOnce("h", "second")
			if got := v.seen(); len(got) != 1 || v.total() != 2 {
				t.Errorf("the vendor saw %v, want one key twice", got)
			}
			rows := b.receipts("h")
			if len(rows) != 1 || !rows[0].Done || rows[0].Unanswered != 2 {
				t.Errorf("receipts: %+v", rows)
			}
			if mine, others := b.counted("h", "done"), other.count(lostClaims); mine != 0 || others != 0 {
				t.Errorf("the first owner finished %d, the second lost %d", mine, others)
			}
		})
	}
}

// Another process has the event. If the first owner begins another step, it makes no call.
func TestAStalledOwnerBeginsNoStep(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	v := newVendor(t)
	takenOver := make(chan struct{})
	b.in.HandleExternal(inbox.Subscription{Name: "h", Workers: 1}, func(ctx context.Context, attempt *inbox.Attempt) error {
		b.exec("UPDATE postroom.held SET epoch = epoch + 1, claimed_by = 'other', next_at = now() + interval '1 h'")
		close(takenOver)
		_, err := inbox.Step(context.WithoutCancel(ctx), attempt, "charge", v.charge)
		return errors.Join(err, errors.New("or so it seems"))
	})
	b.accept("h", "e")
	b.run()
	<-takenOver
	b.eventually("the loss to be counted", func() bool { return b.count(lostClaims) == 1 })
	if v.total() != 0 || len(b.receipts("h")) > 0 {
		t.Errorf("%d calls, receipts %+v", v.total(), b.receipts("h"))
	}
	want := heldEntry{Key: "/shop e", State: "claimed", Attempts: 1}
	if got := b.held("h")["/shop e"]; got != want {
		t.Errorf("held: %+v, want %+v", got, want)
	}
}

// Another process has the event and has not finished it. The first owner settles nothing, with
// or without effects.
func TestAStalledOwnerSettlesNothing(t *testing.T) {
	t.Parallel()
	for _, effects := range []bool{true, false} {
		b := newBench(t)
		b.in.HandleExternal(inbox.Subscription{Name: "h", Workers: 1}, func(_ context.Context, attempt *inbox.Attempt) error {
			if effects {
				attempt.OnSuccess(noting("h", attempt.Event.ID))
			}
			b.exec("UPDATE postroom.held SET epoch = epoch + 1, claimed_by = 'other', next_at = now() + interval '1 h'")
			return nil
		})
		b.accept("h", "e")
		b.run()
		b.eventually("the loss to be counted", func() bool { return b.count(lostClaims) == 1 })
		b.wantOnce("h")
		if got, want := b.held("h")["/shop e"], (heldEntry{Key: "/shop e", State: "claimed", Attempts: 1}); got != want {
			t.Errorf("with effects %t: held %+v, want %+v", effects, got, want)
		}
	}
}

// A stop waits for a running call.
func TestAStopDrainsCalls(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	v := newVendor(t)
	entered, resume := make(chan string, 1), make(chan struct{})
	b.in.HandleExternal(inbox.Subscription{Name: "h", Workers: 1}, blocking(v, entered, resume))
	b.accept("h", "first", "second")
	stop := b.run()
	which := <-entered
	stopped := make(chan struct{})
	go func() { stop(); close(stopped) }()
	until := b.claimEnds(which) + 2*time.Second
	b.eventually("its claim to be renewed", func() bool { return b.claimEnds(which) > until })
	close(resume)
	<-stopped
	b.wantOnce("h", which)
	rest := b.held("h")
	for _, o := range rest {
		if o.State != "due" || o.Attempts != 0 {
			t.Errorf("the attempt that did not begin: %+v", o)
		}
	}
	if len(rest) != 1 || v.total() != 1 {
		t.Errorf("held %v, %d calls, want the other event and one call", rest, v.total())
	}
}

// If a stop does not wait for a call, that costs no attempt. The next process calls again with
// the same key.
func TestAStopEndsCalls(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.anew(func(cfg *inbox.Config) { cfg.DrainTimeout = 50 * time.Millisecond })
	v := newVendor(t, hanging)
	sub := inbox.Subscription{Name: "h", Workers: 1, VendorWindow: time.Hour}
	b.in.HandleExternal(sub, charging(v))
	b.accept("h", "e")
	stop := b.run()
	b.eventually("the call", func() bool { return v.total() == 1 })
	stop()
	want := heldEntry{Key: "/shop e", State: "due"}
	if got := b.held("h")["/shop e"]; got != want {
		t.Errorf("held: %+v, want %+v", got, want)
	}
	b.anew(nil)
	var number atomic.Int32
	b.in.HandleExternal(sub, func(ctx context.Context, attempt *inbox.Attempt) error {
		number.Store(int32(attempt.Number)) //nolint:gosec // few
		return charging(v)(ctx, attempt)
	})
	b.run()
	b.waitUntilNoneHeld("h")
	if got := v.seen(); len(got) != 1 || v.total() != 2 || number.Load() != 1 {
		t.Errorf("the vendor saw %v, want one key twice; attempt %d, want 1", got, number.Load())
	}
}

// If steps cannot be noted, that costs no attempt, and a call is repeated only with its key.
func TestOutageWhileAStepIsNotedCostsNoAttempt(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, begin, end string }{
		{"the table takes no row", "ALTER TABLE postroom.receipt RENAME TO gone", "ALTER TABLE postroom.gone RENAME TO receipt"},
		{"the table does not answer", "BEGIN; LOCK TABLE postroom.receipt", "ROLLBACK"},
	}
	for _, tt := range tests {
		for _, when := range []string{"before the call", "in the call"} {
			t.Run(tt.name+", "+when, func(t *testing.T) {
				t.Parallel()
				b := newBench(t)
				v := newVendor(t)
				conn, err := b.pool.Acquire(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Release()
				do := func(sql string) {
					if _, err := conn.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
						t.Error(err)
					}
				}
				var runs, most atomic.Int32
				sub := inbox.Subscription{Name: "h", Workers: 1, VendorWindow: time.Hour, Timeout: 2 * time.Second}
				b.in.HandleExternal(sub, func(ctx context.Context, attempt *inbox.Attempt) error {
					most.Store(max(most.Load(), int32(attempt.Number))) //nolint:gosec // few
					first := runs.Add(1) == 1
					if first && when == "before the call" {
						do(tt.begin)
					}
					_, err := inbox.Step(ctx, attempt, "charge", func(ctx context.Context, key string) (string, error) {
						if first && when == "in the call" {
							do(tt.begin)
						}
						return v.charge(ctx, key)
					})
					attempt.OnSuccess(noting("h", attempt.Event.ID))
					return err
				})
				b.accept("h", "e")
				b.run()
				b.eventually("a second run", func() bool { return runs.Load() > 1 })
				do(tt.end)
				b.waitUntilNoneHeld("h")
				b.wantOnce("h", "e")
				if got := v.seen(); len(got) != 1 {
					t.Errorf("the vendor saw %v, want one key", got)
				}
				if n := b.counted("h", "held"); n != 0 || most.Load() != 1 {
					t.Errorf("%d failures were recorded, and attempt %d was made, want only the first", n, most.Load())
				}
			})
		}
	}
}

// The database takes most of an attempt's time, so too little is left for the vendor. That
// costs no attempt.
func TestSlowNotesCostNoAttempt(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	v := newVendor(t, hanging)
	lock, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lock.Exec(t.Context(), "LOCK TABLE postroom.receipt"); err != nil {
		t.Fatal(err)
	}
	const patience = 12 * time.Second
	var last atomic.Int32
	sub := inbox.Subscription{Name: "h", Workers: 1, VendorWindow: time.Hour, Timeout: patience}
	b.in.HandleExternal(sub, func(ctx context.Context, attempt *inbox.Attempt) error {
		if last.Swap(int32(attempt.Number)) == 0 { //nolint:gosec // few
			time.AfterFunc(patience/2+time.Second, func() { _ = lock.Rollback(context.Background()) })
		}
		return charging(v)(ctx, attempt)
	})
	b.accept("h", "e")
	b.run()
	b.waitUntilNoneHeld("h")
	if n := b.counted("h", "held"); v.total() != 2 || n != 0 || last.Load() != 1 {
		t.Errorf("%d calls, %d failures were noted, and the last attempt was %d, want two, none, and the first", v.total(), n, last.Load())
	}
}

// The server goes away during a call and comes back. The same attempt goes on, and notes the
// call's result then.
func TestAttemptGoesOnIfTheDatabaseGoesAwayInACall(t *testing.T) {
	t.Parallel()
	server := devtest.OwnPostgres(t, durable)
	b := newBenchOn(t, migrated(t, server.URL()), devtest.NATS(t))
	v := newVendor(t)
	called, resume := make(chan string, 1), make(chan struct{})
	var runs atomic.Int32
	handler := blocking(v, called, resume)
	b.anew(func(cfg *inbox.Config) { cfg.AckWait = time.Minute }) // the claim outlives the outage
	b.in.HandleExternal(inbox.Subscription{Name: "h", Workers: 1}, func(ctx context.Context, attempt *inbox.Attempt) error {
		runs.Add(1)
		return handler(ctx, attempt)
	})
	b.accept("h", "e")
	b.run()
	<-called
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	close(resume)
	b.eventually("the vendor's answer", func() bool { return v.total() == 1 })
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.eventually("its end", func() bool {
		var n int
		err := b.pool.QueryRow(t.Context(), "SELECT count(*) FROM postroom.held").Scan(&n)
		return err == nil && n == 0
	})
	b.wantOnce("h", "e")
	if v.total() != 1 || runs.Load() != 1 {
		t.Errorf("%d calls in %d runs, want one", v.total(), runs.Load())
	}
}
