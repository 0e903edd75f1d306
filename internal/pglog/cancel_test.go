package pglog_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/held"
	"github.com/postroom/postroom/internal/pglog"
)

// While a transaction cancels a due event, the relay does not read it until the transaction
// ends.
func TestRelayWaitsForTheEndOfACancel(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change string // what the transaction does with the first event
		commit bool
		want   []string
	}{
		"and was":         {"DELETE FROM postroom.held WHERE event_id = 'one'", true, nil},
		"and was not":     {"DELETE FROM postroom.held WHERE event_id = 'one'", false, []string{"one"}},
		"and rescheduled": {"UPDATE postroom.held SET next_at = now() + interval '1 hour' WHERE event_id = 'one'", true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := devtest.Pool(t)
			for _, id := range []string{"one", "two"} {
				schedule(t, pool, id, time.Hour)
			}
			term := lead(t, pglog.New(pool))
			read(t, term, 10)
			record(t, term)
			tx, err := pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
			if _, err := tx.Exec(t.Context(), "SELECT pg_advisory_xact_lock(postroom.event_lock(pos)) FROM postroom.held WHERE event_id = 'one'"); err != nil {
				t.Fatal(err)
			}
			overrideNextAt(t, pool)
			ids, _, _ := read(t, term, 10)
			wantIDs(t, ids, "two")
			if _, err := tx.Exec(t.Context(), tt.change); err != nil {
				t.Fatal(err)
			}
			ids, _, _ = read(t, term, 10) // without waiting for it
			wantIDs(t, ids)
			if tt.commit {
				err = tx.Commit(t.Context())
			} else {
				err = tx.Rollback(t.Context())
			}
			if err != nil {
				t.Fatal(err)
			}
			ids, _, _ = read(t, term, 10)
			wantIDs(t, ids, tt.want...)
		})
	}
}

// Events behind one that is being cancelled wait, too.
func TestEventsBehindAnOpenCancelWait(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	writeKeyed(t, pool, "k", "one", "two", "three")
	term := lead(t, pglog.New(pool))
	_, seqs, page := read(t, term, 10)
	hold(t, term, refusal(1), page.Events...)
	overrideNextAtOfDue(t, pool)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := tx.Exec(t.Context(), "SELECT pg_advisory_xact_lock(postroom.event_lock($1))", seqs[0]); err != nil {
		t.Fatal(err)
	}
	ids, _, _ := read(t, term, 10)
	wantIDs(t, ids)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	ids, _, _ = read(t, term, 10)
	wantIDs(t, ids, "one", "two", "three")
}

// A transaction that cancels many events and stays open delays these, and no others.
func TestDueEventsBehindManyThatAreBeingCancelled(t *testing.T) {
	t.Parallel()
	for name, size := range map[string]int{"many": 2, "of a page's size": 800_000} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := devtest.Pool(t)
			ids := []string{"a", "b", "c", "d", "e", "f", "g", "other"}
			for _, id := range ids {
				schedule(t, pool, id, time.Hour)
			}
			mustExec(t, pool, "UPDATE postroom.outbox SET data = convert_to(repeat(' ', $1), 'UTF8')", size)
			term := lead(t, pglog.New(pool))
			readAll(t, term, 100)
			record(t, term)
			tx, err := pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
			if _, err := tx.Exec(t.Context(), "SELECT pg_advisory_xact_lock(postroom.event_lock(pos)) FROM postroom.held WHERE event_id <> 'other'"); err != nil {
				t.Fatal(err)
			}
			mustExec(t, pool, "UPDATE postroom.held SET next_at = clock_timestamp() - interval '1 min' + pos * interval '1 s'")
			limit := 2
			if size > 2 {
				limit = 100 // but a page has 4 MiB
			}
			wantIDs(t, readAll(t, term, limit), "other")
			wantIDs(t, readAll(t, term, limit))
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			wantIDs(t, readAll(t, term, limit), ids[:7]...)
		})
	}
}

// readAll reads as a relay does, until there is no more now, and returns the ids.
func readAll(t *testing.T, term *pglog.Term, limit int) (all []string) {
	t.Helper()
	for range 100 {
		ids, _, page := read(t, term, limit)
		if all = append(all, ids...); !page.More && len(ids) < limit {
			return all
		}
	}
	t.Errorf("there is more after 100 reads; so far %v", all)
	return all
}

// If events become due while an operator cancels them, each is either read or cancelled: never
// both, and never neither.
func TestCancelAgainstTheRelay(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	const events = 100
	for n := range events {
		schedule(t, pool, fmt.Sprint("e", n), time.Hour)
	}
	term := lead(t, pglog.New(pool))
	for range 3 {
		read(t, term, events)
		record(t, term)
	}
	store := held.NewStore(pool, "postroom")
	set, err := store.Select(t.Context(), held.Filter{}, 0)
	if err != nil || len(set.IDs) != events {
		t.Fatalf("%d events held, %v; want %d", len(set.IDs), err, events)
	}
	// They become due one after the other, in another order than they are cancelled.
	mustExec(t, pool, "UPDATE postroom.held SET next_at = clock_timestamp() + (id * 37 % 100) * interval '5 ms'")
	var wg sync.WaitGroup
	var mu sync.Mutex
	cancelled := 0
	for _, id := range set.IDs {
		wg.Go(func() {
			r, err := store.Cancel(t.Context(), held.Set{IDs: []int64{id}}, postroom.Audit{Actor: "ann", Reason: "a try"}, nil)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			cancelled += int(r.Events)
			mu.Unlock()
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	sent := make(map[int64]bool)
	for last := false; ; {
		select {
		case <-done:
			last = true
		default:
		}
		_, seqs, _ := read(t, term, events)
		for _, seq := range seqs {
			if sent[seq] {
				t.Errorf("event %d is read twice", seq)
			}
			sent[seq] = true
		}
		if len(seqs) == 0 && last {
			var left int
			if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM postroom.held WHERE pos <> ALL ($1)", slices.Collect(maps.Keys(sent))).Scan(&left); err != nil {
				t.Fatal(err)
			}
			if left == 0 {
				break
			}
		}
	}
	var both int
	if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM postroom.archive WHERE pos = ANY ($1)", slices.Collect(maps.Keys(sent))).Scan(&both); err != nil || both != 0 || len(sent)+cancelled != events {
		t.Errorf("%d sent and %d cancelled of %d, both: %d, %v", len(sent), cancelled, events, both, err)
	}
	t.Logf("%d sent, %d cancelled", len(sent), cancelled)
}

// If the recording had stopped below a cancelled event, the next leader does not read that
// event from the log again.
func TestACancelledEventAfterACrash(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	log := pglog.New(pool)
	write(t, pool, "a")
	schedule(t, pool, "cancelled", time.Hour)
	term := lead(t, log)
	_, seqs, _ := read(t, term, 10)
	record(t, term, seqs...)
	store := held.NewStore(pool, "postroom")
	set, err := store.Select(t.Context(), held.Filter{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := store.Cancel(t.Context(), set, postroom.Audit{Actor: "ann", Reason: "a try"}, nil); err != nil || r.Events != 1 {
		t.Fatalf("cancel: %+v, %v", r, err)
	}
	mustExec(t, pool, "UPDATE postroom.relay SET high = $1, snap = pg_current_snapshot()", seqs[0])
	mustExec(t, pool, "UPDATE postroom.outbox SET not_before = clock_timestamp() - interval '1 s' WHERE event_id = 'cancelled'")
	ids, _, _ := read(t, lead(t, log), 10)
	wantIDs(t, ids)
}

// A producer cancels an event that is in held, while the recorded high is below the event's seq. A
// new term then reads the event twice in one pass: from the log and from held. It publishes the
// event only if the transaction that cancels is rolled back.
func TestAnOpenCancelOfAnEventThatIsReadTwice(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][]string{"committed": nil, "rolled back": {"cancelled"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := devtest.Pool(t)
			log := pglog.New(pool)
			fill(t, pool, 501, 1) // so many unpublished events that the recorded high stays below them
			schedule(t, pool, "cancelled", time.Hour)
			term := lead(t, log)
			read(t, term, 1000)
			record(t, term)
			var high, seq int64
			if err := pool.QueryRow(t.Context(), "SELECT r.high, h.pos FROM postroom.relay r, postroom.held h").Scan(&high, &seq); err != nil || high >= seq {
				t.Fatalf("high = %d, %v; want a high below the held event %d", high, err, seq)
			}
			mustExec(t, pool, "UPDATE postroom.outbox SET not_before = clock_timestamp() + interval '3 s' WHERE seq = $1", seq)
			mustExec(t, pool, "UPDATE postroom.held SET next_at = (SELECT not_before FROM postroom.outbox WHERE seq = $1)", seq)
			tx, err := pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
			if cancelled, err := shop.Cancel(t.Context(), tx, "cancelled"); err != nil || !cancelled {
				t.Fatalf("Cancel = %t, %v, want true: the event is not due yet", cancelled, err)
			}
			devtest.Eventually(t, time.Minute, "the event to be due", func() (due bool) {
				err := pool.QueryRow(t.Context(), "SELECT next_at < clock_timestamp() FROM postroom.held").Scan(&due)
				return err == nil && due
			})

			term = lead(t, log)
			ids, seqs, _ := read(t, term, 1000)
			if len(ids) != 501 || slices.Contains(ids, "cancelled") {
				t.Errorf("while the cancel is open, %d events are read, the cancelled one: %t; want the 501 others", len(ids), slices.Contains(ids, "cancelled"))
			}
			if name == "committed" {
				commit(t, tx)
			} else if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			more, again, _ := read(t, term, 1000)
			wantIDs(t, more, want...)
			record(t, term, append(seqs, again...)...)
			wantIDs(t, heldIDs(t, pool))
			ids, _, _ = read(t, term, 1000)
			wantIDs(t, ids)
		})
	}
}
