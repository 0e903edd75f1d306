package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
)

// holdOne makes the handler fail once, with the next attempt in an hour, and stops the inbox. After
// that the test itself claims the event, in place of a process.
func (b *bench) holdOne(name string) {
	b.Helper()
	sub := b.subscription(name)
	sub.Schedule, sub.Attempts = postroom.Backoff{time.Hour}, 8
	b.in.Handle(sub, failing(name, errors.New("not now")))
	stop := b.run()
	b.publish("bad")
	b.eventually("the event to be held", func() bool { return len(b.held(name)) == 1 })
	stop()
	b.in = inbox.New(b.pool, b.nc, b.config())
}

// If a claim ran out, its process died, perhaps because of this event. From then on the event
// runs alone. If its last attempt does not end, no other follows.
func TestEventOfAClaimThatRanOutRunsAlone(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		attempts int
		want     heldEntry
	}{
		{4, heldEntry{Key: "/shop bad", State: "dead", Attempts: 5, Solitary: true, Class: "error", Failures: 2}},
		{5, heldEntry{Key: "/shop bad", State: "dead", Attempts: 5, Solitary: true, Class: "crash", Failures: 2}},
	} {
		b := newBench(t)
		b.holdOne("h")
		b.exec("UPDATE postroom.held SET claimed_by = 'gone', next_at = now() - interval '1 s', attempts = $1", tt.attempts)
		var runs atomic.Int32
		b.in.Handle(b.subscription("h"), postroom.HandlerFunc(func(context.Context, pgx.Tx, postroom.Event) error {
			runs.Add(1)
			return errors.New("not now")
		}))
		b.run()
		b.eventually("its death", func() bool { return b.dead("h") == 1 })
		if got := b.held("h")["/shop bad"]; got != tt.want {
			t.Errorf("held: %+v, want %+v", got, tt.want)
		}
		if got, want := runs.Load(), int32(5-tt.attempts); got != want { //nolint:gosec // one or none
			t.Errorf("after %d attempts it was run %d times, want %d", tt.attempts, got, want)
		}
	}
}

// While a process lives, no other process takes its claim.
func TestAClaimIsRespected(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.holdOne("h")
	b.exec("UPDATE postroom.held SET claimed_by = 'other', next_at = now() + interval '1 s', attempts = 2")
	var at atomic.Int64
	b.in.Handle(b.subscription("h"), postroom.HandlerFunc(func(context.Context, pgx.Tx, postroom.Event) error {
		at.Store(time.Now().UnixNano())
		return nil
	}))
	began := time.Now()
	b.run()
	b.eventually("the run", func() bool { return len(b.held("h")) == 0 })
	if got := time.Unix(0, at.Load()).Sub(began); got < 700*time.Millisecond {
		t.Errorf("it ran %s after the start, while another process had it for a second", got)
	}
}

// A process that stalled cannot settle the event, and its effect is rolled back.
func TestAStalledOwnerCannotSettle(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.holdOne("h")
	b.exec("UPDATE postroom.held SET next_at = now()")
	entered, resume := make(chan struct{}), make(chan struct{})
	b.in.Handle(b.subscription("h"), postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		close(entered)
		<-resume
		return effect("h").Handle(ctx, tx, ev)
	}))
	b.run()
	<-entered
	b.exec("UPDATE postroom.held SET epoch = epoch + 1, claimed_by = 'other', next_at = now() + interval '1 h', attempts = attempts + 1")
	close(resume)
	b.eventually("the loss to be counted", func() bool { return b.count("postroom.inbox.lease_lost") == 1 })
	b.wantOnce("h")
	want := heldEntry{Key: "/shop bad", State: "claimed", Attempts: 3, Class: "error", Failures: 1}
	if got := b.held("h")["/shop bad"]; got != want {
		t.Errorf("held: %+v, want %+v", got, want)
	}
}

// Claimed events that wait behind slow runs are given back, so that another process runs them.
func TestClaimsBehindSlowRunsAreGivenBack(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	entered, resume := make(chan struct{}), make(chan struct{})
	b.in.Handle(inbox.Subscription{Name: "h", Workers: 1}, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		close(entered) // panics if a second event begins
		<-resume
		return effect("h").Handle(ctx, tx, ev)
	}))
	for _, id := range []string{"a", "b", "c"} {
		if _, err := b.in.Accept(t.Context(), "h", accepted("", id, "1").Event); err != nil {
			t.Fatal(err)
		}
	}
	b.run()
	<-entered
	t.Cleanup(func() { close(resume) })
	other := inbox.New(b.pool, b.nc, b.config())
	other.Handle(inbox.Subscription{Name: "h", Workers: 1}, effect("h"))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- other.Run(ctx) }()
	b.eventually("the other process to run the waiting event", func() bool { return len(b.effects("h")) == 2 })
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	for key, o := range b.held("h") {
		if o.State != "claimed" || o.Attempts != 1 {
			t.Errorf("%s is held as %+v, want one that runs, with one attempt", key, o)
		}
	}
}

// A shutdown costs no attempt, whether an event runs or is only claimed.
func TestShutdownReleasesClaims(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	sub := b.subscription("h")
	sub.Schedule, sub.Attempts, sub.Workers = postroom.Backoff{time.Hour}, 8, 8
	b.in.Handle(sub, failing("h", errors.New("not now")))
	stop := b.run()
	for i := range 10 {
		b.publish(fmt.Sprint("bad", i))
	}
	b.eventually("the events to be held", func() bool { return len(b.held("h")) == 10 })
	stop()

	cfg := b.config()
	cfg.DrainTimeout = 50 * time.Millisecond
	b.in = inbox.New(b.pool, b.nc, cfg)
	b.exec("UPDATE postroom.held SET next_at = now()")
	entered := make(chan struct{}, 100)
	b.in.Handle(sub, postroom.HandlerFunc(func(ctx context.Context, _ pgx.Tx, _ postroom.Event) error {
		entered <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}))
	stop = b.run()
	<-entered
	stop()
	for key, o := range b.held("h") {
		if o.State != "due" || o.Attempts != 1 {
			t.Errorf("%s: %+v, want it due, with the one attempt that failed", key, o)
		}
	}
}

// A claim is given back once, even if the statement is sent again because its answer was lost.
// Giving it back twice would take two attempts off.
func TestAClaimIsGivenBackOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.holdOne("h")
	release := devtest.SQL(t, "internal/ledger/sql/release.sql")
	b.exec("UPDATE postroom.held SET claimed_by = 'ours', epoch = 7, attempts = 2, next_at = now() + interval '1 h'")
	var id int64
	if err := b.pool.QueryRow(t.Context(), "SELECT id FROM postroom.held").Scan(&id); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		b.exec(release, id, 7, time.Duration(0))
	}
	var attempts int
	if err := b.pool.QueryRow(t.Context(), "SELECT attempts FROM postroom.held WHERE claimed_by IS NULL AND next_at <= now()").Scan(&attempts); err != nil || attempts != 1 {
		t.Errorf("%d attempts (%v), want the one that was made", attempts, err)
	}
}

// If the database goes away while an event is claimed, that costs no attempt.
func TestOutageDuringAClaimCostsNoAttempt(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.holdOne("h")
	b.exec("UPDATE postroom.held SET next_at = now()")
	var runs atomic.Int32
	b.in.Handle(b.subscription("h"), postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		if runs.Add(1) == 1 {
			_, err := tx.Exec(ctx, "SELECT pg_terminate_backend(pg_backend_pid())")
			return err
		}
		return effect("h").Handle(ctx, tx, ev)
	}))
	b.run()
	b.eventually("the effect", func() bool { return len(b.effects("h")) == 1 })
	b.eventually("no event to be held", func() bool { return len(b.held("h")) == 0 })
	if got := b.counted("h", "held"); got != 0 {
		t.Errorf("%d attempts were spent", got)
	}
}

// A process runs the types for which it has a handler, and no others.
func TestProcessClaimsOnlyTypesThatItTakes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	types := []string{b.stream + ".placed", b.stream + ".paid"}
	sub := b.subscription("h")
	sub.Types, sub.Schedule, sub.Attempts = types, postroom.Backoff{time.Hour}, 8
	b.in.Handle(sub, postroom.HandlerFunc(func(context.Context, pgx.Tx, postroom.Event) error { return errors.New("not now") }))
	stop := b.run()
	for _, name := range types {
		b.publishEvent(postroom.Event{ID: name, Source: "/shop", Type: name, Data: []byte("1")})
	}
	b.eventually("both to be held", func() bool { return len(b.held("h")) == 2 })
	stop()
	b.exec("UPDATE postroom.held SET next_at = now(), solitary = NOT solitary") // both ways to claim
	for _, name := range types {
		b.in = inbox.New(b.pool, b.nc, b.config())
		sub.Types = []string{name}
		b.in.Handle(sub, effect("h"))
		stop := b.run()
		b.eventually("its effect", func() bool { return b.effects("h")[name] == 1 })
		stop()
		if name == types[0] {
			b.wantOnce("h", name)
		}
	}
	b.wantOnce("h", types...)
}

// If the answer to a claim was lost, the process that made the claim gives it back, and that costs
// no attempt.
func TestClaimWithALostAnswerIsGivenBack(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.holdOne("h")
	sub := b.subscription("h")
	sub.Schedule, sub.Attempts = postroom.Backoff{time.Hour}, 8
	b.in.Handle(sub, postroom.HandlerFunc(func(context.Context, pgx.Tx, postroom.Event) error { return errors.New("not now") }))
	name := inbox.LoseAnswer(b.in)
	b.exec("UPDATE postroom.held SET claimed_by = $1, next_at = now() + interval '1 h', attempts = 2", name)
	b.run()
	want := heldEntry{Key: "/shop bad", State: "due", Attempts: 2, Class: "error", Failures: 2}
	b.eventually("its second attempt", func() bool { return b.held("h")["/shop bad"] == want })
}

// A deploy lowers Attempts while an event waits for its next attempt. No process ended, so the event
// is not dead because of a crash, and OnDead is called until it succeeds.
func TestFewerAttemptsAreNoCrash(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	sub := b.subscription("h")
	sub.Attempts, sub.Schedule = 20, postroom.Backoff{time.Millisecond, time.Millisecond, time.Millisecond, time.Millisecond, time.Millisecond, time.Millisecond, time.Millisecond, time.Hour}
	b.in.Handle(sub, bad("h"))
	stop := b.run()
	b.publish("bad")
	b.eventually("eight attempts", func() bool { return b.held("h")["/shop bad"].Attempts == 8 })
	stop()

	b.in = inbox.New(b.pool, b.nc, *b.recordDeaths(8))
	sub.Attempts = 3
	b.in.Handle(sub, bad("h"))
	b.run()
	devtest.Eventually(t, 20*time.Second, "the event to be dead", func() bool {
		b.exec("UPDATE postroom.held SET next_at = now() WHERE dead_at IS NULL AND claimed_by IS NULL")
		return b.dead("h") == 1
	})
	if got := b.deaths(); !slices.Equal(got, []string{"bad 8 error"}) {
		t.Errorf("OnDead was called for %q", got)
	}
	want := heldEntry{Key: "/shop bad", State: "dead", Attempts: 8, Class: "error", Failures: 8}
	if got := b.held("h")["/shop bad"]; got != want {
		t.Errorf("held: %+v, want %+v", got, want)
	}
}
