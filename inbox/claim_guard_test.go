package inbox_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
)

// holdMany is holdOne for several events.
func (b *bench) holdMany(name string, ids ...string) {
	b.Helper()
	sub := b.subscription(name)
	sub.Schedule, sub.Attempts = postroom.Backoff{time.Hour}, 8
	b.in.Handle(sub, failing(name, errors.New("not now")))
	stop := b.run()
	b.publish(ids...)
	b.eventually("the events to be held", func() bool { return len(b.held(name)) == len(ids) })
	stop()
	b.in = inbox.New(b.pool, b.nc, b.config())
}

// If another transaction has locked a held event, others can still be claimed.
func TestClaimsPassOverLockedEvents(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.holdMany("h", "bad 1", "bad 2")
	b.exec("UPDATE postroom.held SET next_at = now() - CASE event_id WHEN 'bad 1' THEN interval '1 s' ELSE '0 s' END")
	tx, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := tx.Exec(t.Context(), "SELECT FROM postroom.held WHERE event_id = 'bad 1' FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	b.in.Handle(b.subscription("h"), effect("h"))
	b.run()
	b.eventually("the other event's effect", func() bool { return b.effects("h")["bad 2"] == 1 })
	b.wantOnce("h", "bad 2")
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.eventually("both effects", func() bool { return len(b.effects("h")) == 2 })
}

// A stalled process notes no failure of an event that another process has claimed since,
// whether it notices that in its transaction or only afterwards.
func TestAStalledOwnerCannotFail(t *testing.T) {
	t.Parallel()
	for name, fails := range map[string]error{"an error": errors.New("too late"), "one that spends rounds": errContention} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.holdOne("h")
			b.exec("UPDATE postroom.held SET next_at = now()")
			entered, resume := make(chan struct{}, maxRuns), make(chan struct{})
			b.in.Handle(b.subscription("h"), postroom.HandlerFunc(func(context.Context, pgx.Tx, postroom.Event) error {
				entered <- struct{}{}
				<-resume
				return fails
			}))
			b.run()
			<-entered
			b.exec("UPDATE postroom.held SET epoch = epoch + 1, claimed_by = 'other', next_at = now() + interval '1 h', attempts = attempts + 1")
			close(resume)
			b.eventually("the loss to be counted", func() bool { return b.count("postroom.inbox.lease_lost") == 1 })
			want := heldEntry{Key: "/shop bad", State: "claimed", Attempts: 3, Class: "error", Failures: 1}
			if got := b.held("h")["/shop bad"]; got != want {
				t.Errorf("held: %+v, want %+v", got, want)
			}
		})
	}
}

// maxRuns is more than the number of times that a handler runs for one attempt.
const maxRuns = 20

// A stalled process does not give back an event that another process has claimed since.
func TestAStalledOwnerCannotRelease(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.holdOne("h")
	b.exec("UPDATE postroom.held SET next_at = now()")
	cfg := b.config()
	cfg.DrainTimeout = 50 * time.Millisecond
	b.in = inbox.New(b.pool, b.nc, cfg)
	entered := make(chan struct{})
	b.in.Handle(b.subscription("h"), postroom.HandlerFunc(func(ctx context.Context, _ pgx.Tx, _ postroom.Event) error {
		close(entered)
		<-ctx.Done() // the process stops
		return ctx.Err()
	}))
	stop := b.run()
	<-entered
	b.exec("UPDATE postroom.held SET epoch = epoch + 1, claimed_by = 'other', next_at = now() + interval '1 h', attempts = attempts + 1")
	stop()
	want := heldEntry{Key: "/shop bad", State: "claimed", Attempts: 3, Class: "error", Failures: 1}
	if got := b.held("h")["/shop bad"]; got != want {
		t.Errorf("held: %+v, want %+v", got, want)
	}
}

// If the answer to a claim is lost, a process gives back the events that it claimed without
// knowing. It keeps the events of which it knows, because they run. It does not touch events of
// other processes.
func TestProcessGivesBackOnlyItsOwnOrphans(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.holdMany("h", "bad orphan", "bad known", "bad of another", "bad elsewhere")
	b.exec("INSERT INTO postroom.inbox (handler, dedupe_key, digest) SELECT 'other', dedupe_key, digest FROM postroom.inbox WHERE dedupe_key = '/shop bad elsewhere'")
	b.exec("UPDATE postroom.held SET handler = 'other' WHERE event_id = 'bad elsewhere'")
	b.exec("UPDATE postroom.held SET claimed_by = CASE event_id WHEN 'bad of another' THEN 'another' ELSE 'this' END, attempts = 2, next_at = now() + interval '1 h'")
	var known int64
	if err := b.pool.QueryRow(t.Context(), "SELECT id FROM postroom.held WHERE handler = 'h' AND event_id = 'bad known'").Scan(&known); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the statement is sent again
		if err := inbox.GiveBackOrphans(t.Context(), b.in, "this", []string{"h"}, []int64{known}); err != nil {
			t.Fatal(err)
		}
	}
	for _, handler := range []string{"h", "other"} {
		for key, got := range b.held(handler) {
			want := heldEntry{Key: key, State: "claimed", Attempts: 2, Class: "error", Failures: 1}
			if handler == "h" && key == "/shop bad orphan" {
				want.State, want.Attempts = "due", 1
			}
			if got != want {
				t.Errorf("%s: held %+v, want %+v", handler, got, want)
			}
		}
	}
	if h, other := len(b.held("h")), len(b.held("other")); h != 3 || other != 1 {
		t.Errorf("%d and %d are held, want 3 and 1", h, other)
	}
}
