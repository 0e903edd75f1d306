package pglog_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/internal/pglog"
)

// schedule commits an event that is to be published later.
func schedule(t *testing.T, pool *pgxpool.Pool, id string, in time.Duration) {
	t.Helper()
	ev := named(id)
	ev.NotBefore = time.Now().Add(in)
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return shop.Write(t.Context(), tx, ev) })
	if err != nil {
		t.Fatal(err)
	}
}

// heldIDs returns the ids of the held events, in the order of their seqs.
func heldIDs(t *testing.T, pool *pgxpool.Pool) []string {
	t.Helper()
	rows, _ := pool.Query(t.Context(), "SELECT event_id FROM postroom.held ORDER BY pos")
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// overrideNextAt moves the times of held events to the past: tests move rows, not clocks.
func overrideNextAt(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	mustExec(t, pool, "UPDATE postroom.held SET next_at = clock_timestamp() - interval '1 s'")
}

// If a pass over all due events takes long, the next passes look only at those that became due lately. An
// event with an earlier time is read too, a little later, for example if an operator's transaction took
// long. While such an event waits, each pass looks at all.
func TestDueEventsAreReadAfterALongPass(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	term := lead(t, pglog.New(pool))
	looks := func(took time.Duration, want ...string) {
		t.Helper()
		term.OverrideTimeOfWholePass(took)
		ids, seqs, _ := read(t, term, 10)
		wantIDs(t, ids, want...)
		record(t, term, seqs...)
	}
	due := func(id string, since time.Duration) {
		t.Helper()
		mustExec(t, pool, "UPDATE postroom.held SET next_at = clock_timestamp() - $2::interval WHERE event_id = $1", id, since)
	}
	for _, id := range []string{"a", "b", "c", "d"} {
		schedule(t, pool, id, time.Hour)
	}
	looks(0)
	wantIDs(t, heldIDs(t, pool), "a", "b", "c", "d")
	due("a", time.Hour)
	term.OverrideTimeOfWholePass(0)
	ids, seqs, _ := read(t, term, 10) // an event that has been due for long was waiting
	wantIDs(t, ids, "a")
	due("b", time.Hour)
	looks(time.Hour, "b")
	record(t, term, seqs...)
	looks(0) // no event that has been due for long waits now
	due("c", time.Hour)
	looks(time.Hour)
	due("c", 30*time.Second)
	looks(time.Hour, "c")
	due("d", time.Hour)
	looks(time.Hour)
	looks(0, "d")
}

func TestScheduledEventsAreHeldUntilTheyAreDue(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	write(t, pool, "a")
	schedule(t, pool, "later", time.Hour)
	schedule(t, pool, "past", -time.Hour)
	write(t, pool, "b")

	term := lead(t, pglog.New(pool))
	ids, seqs, _ := read(t, term, 10)
	wantIDs(t, ids, "a", "past", "b")
	wantIDs(t, heldIDs(t, pool)) // by the recording, not before
	record(t, term, seqs...)
	wantIDs(t, heldIDs(t, pool), "later")
	var high, last int64
	if err := pool.QueryRow(t.Context(), "SELECT high, (SELECT max(seq) FROM postroom.outbox) FROM postroom.relay").Scan(&high, &last); err != nil || high != last {
		t.Errorf("high = %d, %v; a held event does not keep it below %d", high, err, last)
	}
	ids, _, _ = read(t, term, 10)
	wantIDs(t, ids)

	overrideNextAt(t, pool)
	ids, seqs, page := read(t, term, 10)
	wantIDs(t, ids, "later")
	if at := time.Until(page.Events[0].LoggedAt); at < 50*time.Minute {
		t.Errorf("LoggedAt is in %s, want the time it was scheduled for: the later of the two", at)
	}
	ids, _, _ = read(t, term, 10)
	wantIDs(t, ids) // it is on its way
	record(t, term, seqs...)
	wantIDs(t, heldIDs(t, pool))
	ids, _, _ = read(t, term, 10)
	wantIDs(t, ids)
}

// A crash loses no scheduled event. Until it is held, the next term reads it from the log. Until it
// is recorded as published, the next term reads it from held.
func TestScheduledEventsSurviveCrashes(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	log := pglog.New(pool)
	schedule(t, pool, "later", time.Hour)
	term := lead(t, log)
	read(t, term, 10)

	term = lead(t, log) // before anything was recorded
	ids, _, _ := read(t, term, 10)
	wantIDs(t, ids)
	record(t, term)
	wantIDs(t, heldIDs(t, pool), "later")
	overrideNextAt(t, pool)
	ids, _, _ = read(t, term, 10)
	wantIDs(t, ids, "later")

	term = lead(t, log) // after it was read, before it was recorded as published
	ids, seqs, _ := read(t, term, 10)
	wantIDs(t, ids, "later")
	record(t, term, seqs...)
	wantIDs(t, heldIDs(t, pool))
}

// If a recording fails while its connection works, Release stores what it should have stored.
func TestScheduledEventsSurviveAFailedRecording(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	schedule(t, pool, "later", time.Hour)
	term := lead(t, pglog.New(pool))
	read(t, term, 10)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := term.Record(ended, eventlog.Progress{}); err == nil {
		t.Fatal("Record with a context that has ended succeeded")
	}
	if err := term.Release(t.Context(), eventlog.Progress{}); err != nil {
		t.Fatal(err)
	}
	wantIDs(t, heldIDs(t, pool), "later")
}

// A former leader can neither hold nor release an event.
func TestHeldEventsAreFenced(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	log := pglog.New(pool)
	schedule(t, pool, "one", time.Hour)
	term := lead(t, log)
	read(t, term, 10)
	record(t, term)
	schedule(t, pool, "two", time.Hour)
	overrideNextAt(t, pool)
	ids, seqs, _ := read(t, term, 10)
	wantIDs(t, ids, "one")
	lead(t, log)
	if err := term.Record(t.Context(), eventlog.Progress{Published: seqs}); err == nil {
		t.Error("a former leader recorded")
	}
	wantIDs(t, heldIDs(t, pool), "one")
}

// If an event is both in held and in the log above the recorded high, a term publishes it
// once, in whichever table it reads it first.
func TestEventInHeldAndInTheLogIsPublishedOnce(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	log := pglog.New(pool)
	write(t, pool, "a")
	schedule(t, pool, "both", time.Hour)
	write(t, pool, "c")
	term := lead(t, log)
	_, seqs, _ := read(t, term, 10)
	record(t, term, seqs...)
	overrideNextAt(t, pool)
	// This is the state after a crash, if the last recording stopped before the event.
	mustExec(t, pool, "UPDATE postroom.relay SET high = $1, snap = pg_current_snapshot(); ", seqs[0])
	mustExec(t, pool, "UPDATE postroom.outbox SET not_before = clock_timestamp() - interval '1 s' WHERE event_id = 'both'")

	term = lead(t, log)
	var all []string
	for range 5 {
		ids, seqs, _ := read(t, term, 1)
		all = append(all, ids...)
		record(t, term, seqs...)
	}
	counts := map[string]int{}
	for _, id := range all {
		counts[id]++
	}
	if counts["both"] == 0 || counts["c"] == 0 {
		t.Errorf("published %v, want both and c", all)
	}
	wantIDs(t, heldIDs(t, pool))
}

// A deadline rings only when all is read that was committed before its time, even if the relay was
// away and the log has a backlog of several pages. Later events of the backlog do not hold it up.
func TestDueEventsWaitForTheLog(t *testing.T) {
	t.Parallel()
	for _, where := range []string{"log", "held"} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			pool := devtest.Pool(t)
			log := pglog.New(pool)
			schedule(t, pool, "deadline", time.Hour)
			if where == "held" {
				term := lead(t, log)
				read(t, term, 10)
				record(t, term)
				wantIDs(t, heldIDs(t, pool), "deadline")
			}
			write(t, pool, names("in-time", 35)...)
			mustExec(t, pool, "UPDATE postroom.outbox SET created_at = created_at - interval '2 h', not_before = not_before - interval '2 h'")
			mustExec(t, pool, "UPDATE postroom.held SET next_at = next_at - interval '2 h'")
			write(t, pool, names("later", 35)...)

			term := lead(t, log)
			var all []string
			for range 12 {
				ids, seqs, _ := read(t, term, 10)
				all = append(all, ids...)
				record(t, term, seqs...)
			}
			at := slices.Index(all, "deadline")
			if len(all) != 71 || at < slices.Index(all, "in-time-34") || at > slices.Index(all, "later-34") {
				t.Errorf("the deadline is at %d of %d, want it after the events of before its time and before the last one: %v", at, len(all), all)
			}
		})
	}
}

// A refused event is tried again at its time, however many scheduled events wait for the log.
func TestRetriesDoNotWaitForTheLog(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	log := pglog.New(pool)
	term := lead(t, log)
	write(t, pool, "refused")
	for _, id := range names("deadline", 15) {
		schedule(t, pool, id, time.Hour)
	}
	_, _, page := read(t, term, 20)
	hold(t, term, refusal(1), page.Events[0])
	record(t, term)
	write(t, pool, names("in-time", 30)...)
	mustExec(t, pool, "UPDATE postroom.outbox SET created_at = created_at - interval '2 h'")
	mustExec(t, pool, "UPDATE postroom.held SET next_at = clock_timestamp() - CASE event_id WHEN 'refused' THEN interval '1 s' ELSE interval '1 h' END")
	ids, _, _ := read(t, lead(t, log), 10)
	wantIDs(t, ids, append(names("in-time", 10), "refused")...)
}

// names returns n names with a common beginning.
func names(begin string, n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("%s-%d", begin, i))
	}
	return all
}
