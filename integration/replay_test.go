package integration

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/deadletter"
	"github.com/postroom/postroom/internal/devtest"
)

// operatorTask says which replay an operator's process is to run.
type operatorTask struct{ Job int64 }

// runOperator is the process that runs a replay.
func runOperator() error {
	var d operatorTask
	ctx, pool, nc, err := connect(&d, func(cfg *pgxpool.Config, _ *nats.Conn) { cfg.MaxConns = 2 })
	if err != nil {
		return err
	}
	defer nc.Close()
	defer pool.Close()
	job, err := deadletter.New(pool, deadletter.Config{}).RunReplay(ctx, d.Job, deadletter.RunOptions{})
	if err == nil && job.State != deadletter.ReplayDone {
		err = fmt.Errorf("the replay is %s", job.State)
	}
	return err
}

// insertDead inserts n dead events of a handler, as if all of them had failed an hour ago.
func (d *depot) insertDead(handler string, n int) {
	d.Helper()
	d.exec("INSERT INTO postroom.inbox (handler, dedupe_key) SELECT $1, '/shop e' || i FROM generate_series(1, $2::int) i", handler, n)
	d.exec(`INSERT INTO postroom.held (handler, dedupe_key, dead_at, attempts, class, cause, failures, first_failed_at, logged_at,
			source, event_id, type, subject, key, content_type, data)
		SELECT $1, '/shop e' || i, now() - interval '1 hour', 5, 'error', decode(md5('a'), 'hex'), '[{"text": "no"}]', now(), now(),
			'/shop', 'e' || i, $3, $3, 'k' || i % 1000, 'text/plain', ''
		FROM generate_series(1, $2::int) i`, handler, n, d.typed("placed"))
	d.exec("ANALYZE")
}

// again returns n of the events, as if the broker delivers them once more.
func (d *depot) again(n int) []postroom.Event {
	events := make([]postroom.Event, n)
	for i := range events {
		events[i] = postroom.Event{ID: fmt.Sprintf("e%d", i+1), Source: "/shop", Type: d.typed("placed"), Key: fmt.Sprintf("k%d", (i+1)%1000)}
	}
	return events
}

// Thousands of dead events are replayed, ten thousand with POSTROOM_SOAK=1: with a canary, with kills
// of the operator's process and of a handler's, with a cancel and a resume. Meanwhile the broker delivers a part of them
// again. Each takes effect once, and the audit is complete.
func TestReplayOfTenThousand(t *testing.T) {
	const handler = "ledger.move"
	events := 3000
	if os.Getenv("POSTROOM_SOAK") == "1" {
		events = 10_000
	}
	d := openDepot(t)
	d.insertDead(handler, events)
	store, by := deadletter.New(d.pool, deadletter.Config{}), postroom.Audit{Actor: "ann", Reason: "mended"}
	// A replayed event has one attempt, so the timeout has to be long enough for a busy
	// machine.
	work := job{Stream: d.stream, Handlers: []string{handler}, Workers: 4, Attempts: 5, Timeout: 5 * time.Second, AckWait: time.Second}
	first, second := d.startInbox(work), d.startInbox(work)

	replay, err := store.CreateReplay(t.Context(), deadletter.Filter{Handler: handler}, deadletter.ReplayOptions{Canary: 50}, by)
	if err != nil {
		t.Fatal(err)
	}
	now := func() deadletter.Replay {
		t.Helper()
		j, err := store.GetReplay(t.Context(), replay.ID)
		if err != nil {
			t.Fatal(err)
		}
		return j
	}
	operator := d.startRole("operator", operatorTask{replay.ID})
	devtest.Eventually(t, depotPatience, "the canary to have passed", func() bool { return now().Succeeded > events/10 })
	d.publish(d.again(events * 2 / 5)...) // some are finished, some are released, some are still dead
	operator.signal(syscall.SIGKILL)
	first.signal(syscall.SIGKILL)
	<-operator.done
	<-first.done
	if j := now(); j.State != deadletter.ReplayRunning || j.Remaining() == 0 {
		t.Fatalf("killed too late: %+v", j)
	}
	third := d.startInbox(work)

	// No process runs the replay. The released events run, and no others are released.
	devtest.Eventually(t, depotPatience, "the released events to be decided", func() bool {
		return d.number("SELECT count(*) FROM postroom.held WHERE next_at IS NOT NULL") == 0
	})
	idle := now()
	if idle.State != deadletter.ReplayRunning || d.number("SELECT count(*) FROM effect") > idle.Released {
		t.Errorf("while no process runs it: %+v", idle)
	}

	// Another operator goes on with it, and cancels it.
	ctx, stop := context.WithCancel(t.Context())
	_, err = store.RunReplay(ctx, replay.ID, deadletter.RunOptions{Progress: func(j deadletter.Replay) {
		if j.Succeeded > events*2/5 {
			stop()
		}
	}})
	if err == nil {
		t.Fatal("the replay ended before it was cancelled")
	}
	if _, err := store.CancelReplay(t.Context(), replay.ID, by); err != nil {
		t.Fatal(err)
	}
	cancelled, err := store.RunReplay(t.Context(), replay.ID, deadletter.RunOptions{})
	if err != nil || cancelled.State != deadletter.ReplayCancelled || cancelled.Failed != 0 || cancelled.Succeeded+cancelled.Skipped != events {
		t.Fatalf("cancelled: %+v, %v", cancelled, err)
	}
	if dead := d.number("SELECT count(*) FROM postroom.held WHERE dead_at < now() - interval '50 minutes'"); dead != cancelled.Skipped {
		t.Errorf("%d are dead as they were, want %d", dead, cancelled.Skipped)
	}

	if _, err := store.ResumeReplay(t.Context(), replay.ID, by); err != nil {
		t.Fatal(err)
	}
	d.startRole("operator", operatorTask{replay.ID})
	devtest.Eventually(t, depotPatience, "the replay to be done", func() bool { return now().State == deadletter.ReplayDone })
	d.waitUntilIdle(handler)
	second.stop(t)
	third.stop(t)

	if j := now(); j.Events != events || j.Released != events || j.Succeeded != events || j.Failed != 0 || j.Skipped != 0 {
		t.Errorf("done: %+v", j)
	}
	effects, different := d.number("SELECT count(*) FROM effect"), d.number("SELECT count(DISTINCT event) FROM effect")
	if effects != events || different != events || d.number("SELECT count(*) FROM postroom.held") != 0 {
		t.Errorf("%d effects of %d events, %d held", effects, different, d.number("SELECT count(*) FROM postroom.held"))
	}
	left := cancelled.Skipped
	for action, n := range map[string]int{"replay": events, "cancel": left, "resume": left} {
		if rows := d.number("SELECT count(*) FROM postroom.audit WHERE replay = $1 AND action = $2 AND events = $3 AND actor = 'ann' AND reason = 'mended'",
			replay.ID, action, n); rows != 1 {
			t.Errorf("%d rows in the audit for a %s of %d events, want 1", rows, action, n)
		}
	}
	if n := d.number("SELECT count(*) FROM postroom.replay_event WHERE replay = $1 AND outcome = 'succeeded'", replay.ID); n != events {
		t.Errorf("%d items succeeded, want %d", n, events)
	}
}
