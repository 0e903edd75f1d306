package deadletter_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/deadletter"
	"github.com/postroom/postroom/internal/devtest"
)

// These tests show what the conditions in the statements are for.

// heldNow returns the state of each event, in the order of their ids.
func (n *rig) heldNow() string {
	n.Helper()
	return strings.Join(n.texts(`SELECT id || ' ' || CASE WHEN dead_at IS NOT NULL THEN 'dead' WHEN claimed_by IS NOT NULL THEN 'running'
		WHEN next_at IS NOT NULL THEN 'due' ELSE 'waiting' END FROM postroom.held ORDER BY id`), ", ")
}

// stepped makes one step of a replay.
func (n *rig) stepped(id int64) {
	n.Helper()
	if _, err := n.store.Step(n.Context(), id); err != nil {
		n.Fatal(err)
	}
}

// outcomesOf returns the outcomes of the events of a replay, in the order of their ids.
func (n *rig) outcomesOf(id int64) string {
	n.Helper()
	return strings.Join(n.texts("SELECT held || ' ' || coalesce(outcome, 'open') FROM postroom.replay_event WHERE replay = $1 ORDER BY held", id), ", ")
}

func (n *rig) wantSame(what, got, want string) {
	n.Helper()
	if got != want {
		n.Errorf("%s: %s, want %s", what, got, want)
	}
}

// A replay releases an event that is dead and the first of its key. It releases no event that
// another operator has released, and none that waits behind another.
func TestReplayReleasesOnlyDeadEvents(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, is       string // the change of events 1 and 2 in SQL; there are three events
		only           []int64
		held, outcomes string
	}{
		{"all are dead", "chain = chain", nil, "1 due, 2 due", "1 open, 2 open"},
		{"one is not dead any more", "dead_at = NULL, next_at = now(), claimed_by = 'w' WHERE id = 1", nil, "1 running, 2 due", "1 not_dead, 2 open"},
		{"one is of another replay", "replay = 0 WHERE id = 1", nil, "1 dead, 2 due", "1 not_dead, 2 open"},
		{"one comes behind a dead one of its key", "chain = 'k', pos = id", []int64{2}, "1 dead, 2 waiting", "2 open"},
		{"one comes before one of its key that is due", "chain = 'k', pos = id, dead_at = nullif(dead_at, (SELECT dead_at FROM postroom.held WHERE id = 2)), next_at = CASE WHEN id = 2 THEN now() END", []int64{1}, "1 waiting, 2 due", "1 open"},
	} {
		n := newRig(t)
		n.seed(2, 1, 1)
		job := n.replay(deadletter.Filter{IDs: tt.only, All: tt.only == nil}, deadletter.ReplayOptions{})
		n.exec("UPDATE postroom.held SET " + tt.is)
		n.stepped(job.ID)
		n.wantSame(tt.name, n.heldNow(), tt.held)
		n.wantSame(tt.name, n.outcomesOf(job.ID), tt.outcomes)
	}
}

// Only an outgoing event counts as logged when it is replayed as new: an event of a handler keeps
// the time at which it was logged.
func TestAsNewIsForOutgoingEvents(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	n.seed(1, 1, 1)
	n.exec("UPDATE postroom.held SET logged_at = '2026-01-01'")
	n.stepped(n.replay(deadletter.Filter{All: true}, deadletter.ReplayOptions{AsNew: true}).ID)
	n.want("released, and logged when it was", 1, "SELECT count(*) FROM postroom.held WHERE next_at IS NOT NULL AND logged_at = '2026-01-01'")
}

// If an event is discarded before its turn, the replay reports it as discarded.
func TestReplayReportsAnEventDiscardedBeforeItsTurn(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	n.seed(2, 1, 1)
	job := n.replay(deadletter.Filter{All: true}, deadletter.ReplayOptions{})
	if _, err := n.store.Discard(t.Context(), deadletter.Filter{IDs: []int64{1}}, deadletter.ChangeOptions{}, n.by); err != nil {
		t.Fatal(err)
	}
	n.stepped(job.ID)
	n.wantSame("the replay", n.outcomesOf(job.ID), "1 discarded, 2 open")
}

// A resumed replay gets back the events that it left out, if they are still dead and in no other
// replay. It does not get back events that it tried.
func TestResumeTakesUpEventsThatWereLeftOut(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	n.seed(4, 1, 1)
	job := n.replay(deadletter.Filter{All: true}, deadletter.ReplayOptions{StopAt: new(1.0)})
	n.stepped(job.ID)
	n.exec("UPDATE postroom.held SET dead_at = now(), next_at = NULL WHERE id = 1") // it failed
	n.stepped(job.ID)
	if _, err := n.store.CancelReplay(t.Context(), job.ID, n.by); err != nil {
		t.Fatal(err)
	}
	n.wantSame("cancelled", n.outcomesOf(job.ID), "1 failed, 2 withdrawn, 3 withdrawn, 4 withdrawn")
	n.replay(deadletter.Filter{IDs: []int64{2}}, deadletter.ReplayOptions{})
	n.exec("UPDATE postroom.held SET dead_at = NULL, next_at = now() WHERE id = 3") // another operator released it
	if _, err := n.store.ResumeReplay(t.Context(), job.ID, n.by); err != nil {
		t.Fatal(err)
	}
	n.wantSame("resumed", n.outcomesOf(job.ID), "1 failed, 2 withdrawn, 3 withdrawn, 4 open")
}

// If a replay is cancelled, the events that it released and that no process has begun are dead
// again. Events that run go on. Outgoing events are not taken back, because the relay may be
// publishing them.
func TestCancelTakesBackEventsThatHaveNotBegun(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	n.seed(8, 1, 1) // the eighth died first
	n.exec("UPDATE postroom.held SET handler = 'outbox', dedupe_key = NULL, pos = 1 WHERE id = 7")
	died := n.texts("SELECT dead_at::text FROM postroom.held WHERE id = 5")
	job := n.replay(deadletter.Filter{IDs: []int64{1, 2, 3, 4, 5, 7, 8}}, deadletter.ReplayOptions{StopAt: new(1.0), Canary: 6})
	n.stepped(job.ID)
	n.wantSame("released", n.heldNow(), "1 dead, 2 due, 3 due, 4 due, 5 due, 6 dead, 7 due, 8 due")
	n.exec("UPDATE postroom.held SET dead_at = NULL, next_at = now() WHERE id = 1") // another operator released it
	n.exec("UPDATE postroom.held SET claimed_by = 'w', next_at = now() + interval '1 minute' WHERE id = 4")
	n.exec("UPDATE postroom.replay_event SET outcome = 'failed', ended_at = now() WHERE held = 2") // it has been released again since then
	n.exec("UPDATE postroom.replay SET failed = 1")

	// While the cancel waits to take the events back, event 3 begins to run, and event 8 dies.
	tx, err := n.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	var pid int
	if err := tx.QueryRow(t.Context(), "UPDATE postroom.held SET claimed_by = 'w', next_at = now() + interval '1 minute' WHERE id = 3 RETURNING pg_backend_pid()").Scan(&pid); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "UPDATE postroom.held SET dead_at = now(), next_at = NULL WHERE id = 8"); err != nil {
		t.Fatal(err)
	}
	cancelled := make(chan error, 1)
	go func() {
		_, err := n.store.CancelReplay(t.Context(), job.ID, n.by)
		cancelled <- err
	}()
	devtest.Eventually(t, patience, "the cancel waits for the event", func() bool {
		return n.number("SELECT count(*) FROM pg_stat_activity WHERE $1::int = ANY (pg_blocking_pids(pid))", pid) == 1
	})
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-cancelled; err != nil {
		t.Fatal(err)
	}
	n.wantSame("held", n.heldNow(), "1 due, 2 due, 3 running, 4 running, 5 dead, 6 dead, 7 due, 8 dead")
	n.wantSame("the replay", n.outcomesOf(job.ID), "1 withdrawn, 2 failed, 3 open, 4 open, 5 withdrawn, 7 open, 8 open")
	if got := n.texts("SELECT dead_at::text FROM postroom.held WHERE id = 5"); !slices.Equal(got, died) {
		t.Errorf("it died at %s, and was taken back as of %s", died, got)
	}
}

// After a cancel, an event that a process gives back without having begun it is dead again. So
// is an event whose process died. Neither process can settle the event.
func TestEventsReleasedByAWorkerAfterACancelAreDead(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	n.seed(4, 1, 1)
	died := n.texts("SELECT dead_at::text FROM postroom.held ORDER BY id")
	job := n.replay(deadletter.Filter{All: true}, deadletter.ReplayOptions{})
	n.stepped(job.ID)
	n.exec("UPDATE postroom.held SET claimed_by = 'w', next_at = now() + interval '1 minute', epoch = 7")
	if _, err := n.store.CancelReplay(t.Context(), job.ID, n.by); err != nil {
		t.Fatal(err)
	}
	n.wantSame("cancelled", n.heldNow(), "1 running, 2 running, 3 running, 4 running")
	n.exec("UPDATE postroom.held SET claimed_by = NULL, next_at = now() WHERE id = 1")                       // its process gave it back
	n.exec("UPDATE postroom.held SET next_at = now() - interval '1 second' WHERE id = 2")                    // its claim ran out
	n.exec("UPDATE postroom.held SET claimed_by = NULL, next_at = now() + interval '1 minute' WHERE id = 3") // it waits for another attempt
	n.stepped(job.ID)
	n.wantSame("after a step", n.heldNow(), "1 dead, 2 dead, 3 dead, 4 running")
	n.wantSame("the replay", n.outcomesOf(job.ID), "1 withdrawn, 2 withdrawn, 3 withdrawn, 4 open")
	n.want("of former claims", 0, "SELECT count(*) FROM postroom.held WHERE id < 4 AND (epoch = 7 OR claimed_by IS NOT NULL)")
	n.want("that may have ended a process", 1, "SELECT count(*) FROM postroom.held WHERE solitary")
	n.exec("DELETE FROM postroom.held WHERE id = 4") // it succeeded
	n.stepped(job.ID)
	if got, err := n.store.GetReplay(t.Context(), job.ID); err != nil || got.State != deadletter.ReplayCancelled || got.Succeeded != 1 || got.Skipped != 3 {
		t.Errorf("at the end: %+v, %v", got, err)
	}
	if got := n.texts("SELECT dead_at::text FROM postroom.held ORDER BY id"); !slices.Equal(got, died[:3]) {
		t.Errorf("they died at %s, and are dead as of %s", died[:3], got)
	}
}

// A replay also stops if it has released all of its events: those that no process has begun are
// dead as before.
func TestReplayStopsAlsoIfAllEventsAreReleased(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name           string
		stopAt         float64
		failed         int // how many of 40 events failed
		state          deadletter.ReplayState
		skipped, going int
	}{
		{"too few ended", 0.1, 9, deadletter.ReplayRunning, 0, 31},
		{"too many failed", 0.1, 10, deadletter.ReplayRunning, 29, 1}, // it waits for the one that runs
		{"the first failed", 0, 1, deadletter.ReplayRunning, 38, 1},
		{"it never stops", 1, 30, deadletter.ReplayRunning, 0, 10},
		{"all failed, and nothing is left to stop", 0.1, 40, deadletter.ReplayDone, 0, 0},
	} {
		n := newRig(t)
		n.seed(40, 1, 1)
		job := n.replay(deadletter.Filter{All: true}, deadletter.ReplayOptions{StopAt: &tt.stopAt})
		n.stepped(job.ID)
		n.exec("UPDATE postroom.held SET claimed_by = 'w', next_at = now() + interval '1 minute' WHERE id = 40")
		n.exec("UPDATE postroom.held SET dead_at = now(), next_at = NULL, claimed_by = NULL WHERE id <= $1", tt.failed)
		n.stepped(job.ID)
		got, err := n.store.GetReplay(t.Context(), job.ID)
		if err != nil || got.State != tt.state || got.Failed != tt.failed || got.Skipped != tt.skipped || got.Open() != tt.going {
			t.Errorf("%s: %+v, %v", tt.name, got, err)
		}
		if tt.skipped == 0 {
			continue
		}
		n.exec("DELETE FROM postroom.held WHERE id = 40") // it succeeded
		n.stepped(job.ID)
		if got, err := n.store.GetReplay(t.Context(), job.ID); err != nil || got.State != deadletter.ReplayStopped || got.Succeeded != 1 {
			t.Errorf("%s, at the end: %+v, %v", tt.name, got, err)
		}
	}
}

// If the only event of a canary that ran failed, and no other can take the place of those that were left
// out, the replay stops: events that did not run prove nothing.
func TestCanaryNeedsAnEventThatSucceeds(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	n.seed(10, 1, 1)
	n.exec("UPDATE postroom.held SET chain = 'k', key = 'k', pos = id")
	job := n.replay(deadletter.Filter{All: true}, deadletter.ReplayOptions{Canary: 10})
	n.stepped(job.ID)
	n.want("released of the key", 10, "SELECT count(*) FROM postroom.held WHERE dead_at IS NULL")
	n.exec("UPDATE postroom.held SET dead_at = now(), next_at = NULL WHERE id = 1") // the first of the key
	n.stepped(job.ID)
	if got, err := n.store.GetReplay(t.Context(), job.ID); err != nil || got.State != deadletter.ReplayStopped || got.Failed != 1 || got.Skipped != 9 {
		t.Errorf("the first of the key failed: %+v, %v", got, err)
	}
}

// Others take the place of events of the canary that were left out: the share of failures is that of the
// whole canary. A resumed replay has another canary.
func TestOthersTakeThePlaceOfWhatTheCanaryLeftOut(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	n.seed(40, 1, 1)
	n.exec("UPDATE postroom.held SET chain = 'k', key = 'k', pos = id WHERE id > 35") // they died first
	job := n.replay(deadletter.Filter{All: true}, deadletter.ReplayOptions{Canary: 10, StopAt: new(0.1)})
	n.stepped(job.ID)
	n.exec("UPDATE postroom.held SET dead_at = now(), next_at = NULL WHERE id = 36") // the first of the key: four wait behind it
	n.exec("DELETE FROM postroom.held WHERE dead_at IS NULL AND chain IS NULL")      // they succeeded
	for range 2 {
		n.stepped(job.ID)
	}
	n.want("released in place of what was left out", 4, "SELECT count(*) FROM postroom.held WHERE dead_at IS NULL")
	n.exec("DELETE FROM postroom.held WHERE dead_at IS NULL")
	n.stepped(job.ID)
	if got, err := n.store.GetReplay(t.Context(), job.ID); err != nil || got.Phase != deadletter.PhaseRest || got.Succeeded != 9 || got.Failed != 1 {
		t.Errorf("one of a canary of ten failed: %+v, %v", got, err)
	}

	if _, err := n.store.CancelReplay(t.Context(), job.ID, n.by); err != nil {
		t.Fatal(err)
	}
	if _, err := n.store.ResumeReplay(t.Context(), job.ID, n.by); err != nil {
		t.Fatal(err)
	}
	for _, f := range []deadletter.Filter{{Key: "k"}, {IDs: []int64{20, 19, 18, 17, 16, 15}}} { // ten events of the new canary
		if _, err := n.store.Discard(t.Context(), f, deadletter.ChangeOptions{}, n.by); err != nil {
			t.Fatal(err)
		}
	}
	for range 5 {
		n.stepped(job.ID)
	}
	n.want("released in place of what was discarded", 10, "SELECT count(*) FROM postroom.held WHERE dead_at IS NULL")
}

// A discard locks the events that it has read until it has moved them.
func TestDiscardLocksTheEventsThatItMoves(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	n.seed(2, 1, 1)
	tx, err := n.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	rows, _ := tx.Query(t.Context(), n.store.LockToDiscard(), []int64{1})
	if ids, err := pgx.CollectRows(rows, pgx.RowTo[int64]); err != nil || !slices.Equal(ids, []int64{1}) {
		t.Fatalf("%v, %v", ids, err)
	}
	n.want("locked", 1, "SELECT count(*) FROM postroom.held WHERE id NOT IN (SELECT id FROM postroom.held FOR UPDATE SKIP LOCKED)")
}

// Discard looks again when it has the locks. If an event was released meanwhile, Discard
// neither moves it nor counts it in the audit.
func TestDiscardSkipsEventsThatAreNoLongerDead(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	n.seed(2, 1, 1)
	n.exec("UPDATE postroom.held SET dead_at = NULL, next_at = now() WHERE id = 2")
	rows, _ := n.pool.Query(t.Context(), n.store.LockToDiscard(), []int64{1, 2}) // CollectRows reports the error
	if ids, err := pgx.CollectRows(rows, pgx.RowTo[int64]); err != nil || !slices.Equal(ids, []int64{1}) {
		t.Errorf("dead still: %v, %v; want 1", ids, err)
	}
}

// The earlier revisions of an event are kept as long as the event. After that they are removed when
// they are older than the time of the purge. Replays are removed in the same way.
func TestPurgeOfTheHistory(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	n.seed(4, 1, 1)
	for id := range int64(4) {
		if _, err := n.store.Edit(t.Context(), id+1, deadletter.Edit{Data: []byte(`{"edited": true}`)}, n.by); err != nil {
			t.Fatal(err)
		}
	}
	n.exec("UPDATE postroom.revision SET replaced_at = now() - interval '2 h' WHERE held < 4")
	if _, err := n.store.Discard(t.Context(), deadletter.Filter{IDs: []int64{2}}, deadletter.ChangeOptions{}, n.by); err != nil {
		t.Fatal(err)
	}
	n.exec("DELETE FROM postroom.held WHERE id IN (3, 4)") // they were settled
	n.exec(`INSERT INTO postroom.replay (actor, filter, attempts, canary, stop_at, as_new, phase, items, state, ended_at)
		SELECT 'ann', '{}', 1, 0, 1, false, 'rest', 0, 'done', now() - i * interval '40 min' FROM generate_series(1, 3) i`)
	if _, err := n.store.Purge(t.Context(), io.Discard, deadletter.PurgeOptions{Before: time.Now().Add(-time.Hour)}, n.by); err != nil && !errors.Is(err, deadletter.ErrNoMatch) {
		t.Fatal(err)
	}
	n.wantSame("revisions of", strings.Join(n.texts("SELECT DISTINCT held::text FROM postroom.revision ORDER BY 1"), " "), "1 2 4")
	n.want("replays", 1, "SELECT count(*) FROM postroom.replay")
}
