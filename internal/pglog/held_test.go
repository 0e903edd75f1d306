package pglog_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/devtest/logtest"
	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/internal/pglog"
	"github.com/postroom/postroom/relay/broker"
)

// writeKeyed commits events of a key, each in its own transaction.
func writeKeyed(t *testing.T, pool *pgxpool.Pool, key string, ids ...string) {
	t.Helper()
	for _, id := range ids {
		ev := named(id)
		ev.Key = key
		if err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return shop.Write(t.Context(), tx, ev) }); err != nil {
			t.Fatal(err)
		}
	}
}

// refusal is a failure after which the relay tries again in an hour.
func refusal(attempts int) *eventlog.Failure {
	return &eventlog.Failure{Class: "js_10169", Text: "broker: no", Attempts: attempts, After: time.Hour}
}

func dead() *eventlog.Failure {
	return &eventlog.Failure{Class: "max_payload", Text: "too large", Attempts: 1, Dead: true}
}

// hold records that a page's events are held: the first of each key failed, the
// others wait behind it.
func hold(t *testing.T, term *pglog.Term, f *eventlog.Failure, events ...broker.Event) {
	t.Helper()
	logtest.RecordAll(t, term, eventlog.Progress{Held: deferrals(f, events...)})
}

func deferrals(f *eventlog.Failure, events ...broker.Event) []eventlog.Deferral {
	var held []eventlog.Deferral
	seen := map[string]bool{}
	for _, ev := range events {
		h := eventlog.Deferral{Seq: ev.Seq, Key: ev.Key}
		if ev.Key == "" || !seen[ev.Key] {
			h.Failure = f
		}
		seen[ev.Key] = true
		held = append(held, h)
	}
	return held
}

// heldStates returns the held events, in the order of their seqs: id, state, attempts.
func heldStates(t *testing.T, pool *pgxpool.Pool) []string {
	t.Helper()
	rows, _ := pool.Query(t.Context(), `SELECT concat_ws(' ', event_id,
			CASE WHEN dead_at IS NOT NULL THEN 'dead' WHEN next_at <= now() THEN 'due' WHEN next_at IS NOT NULL THEN 'retrying' ELSE 'waiting' END, attempts)
		FROM postroom.held ORDER BY pos`)
	states, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return states
}

func wantHeld(t *testing.T, pool *pgxpool.Pool, want ...string) {
	t.Helper()
	if got := heldStates(t, pool); !slices.Equal(got, want) {
		t.Errorf("held %q, want %q", got, want)
	}
}

// overrideNextAtOfDue moves the times of due events to the past.
func overrideNextAtOfDue(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	mustExec(t, pool, "UPDATE postroom.held SET next_at = clock_timestamp() - interval '1 s' WHERE next_at IS NOT NULL")
}

// A refused event is tried again. The events of its key come out behind it in their order, and
// held is empty then.
func TestHeldEventsComeOutInTheOrderOfTheirKey(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	writeKeyed(t, pool, "k", "a", "b", "c")
	writeKeyed(t, pool, "", "free")
	term := lead(t, pglog.New(pool))
	_, _, page := read(t, term, 10)
	hold(t, term, refusal(1), page.Events...)
	wantHeld(t, pool, "a retrying 1", "b waiting 0", "c waiting 0", "free retrying 1")
	ids, _, _ := read(t, term, 10)
	wantIDs(t, ids)

	overrideNextAtOfDue(t, pool)
	ids, seqs, page := read(t, term, 10)
	wantIDs(t, ids, "a", "b", "c", "free")
	for _, ev := range page.Events {
		if !ev.Held || ev.Unordered != (ev.ID == "free") || (ev.Attempts == 1) != (ev.ID == "a" || ev.ID == "free") {
			t.Errorf("event %s: held %t, unordered %t, %d attempts", ev.ID, ev.Held, ev.Unordered, ev.Attempts)
		}
	}
	ids, _, _ = read(t, term, 10)
	wantIDs(t, ids) // all are on their way

	// a is published, b is refused, and c was not sent.
	err := term.Record(t.Context(), eventlog.Progress{
		Published: []int64{seqs[0], seqs[3]},
		Held:      []eventlog.Deferral{{Seq: seqs[1], Key: "k", Failure: refusal(1)}},
		Returned:  []int64{seqs[2]},
	})
	if err != nil {
		t.Fatal(err)
	}
	wantHeld(t, pool, "b retrying 1", "c waiting 0")
	overrideNextAtOfDue(t, pool)
	ids, seqs, _ = read(t, term, 10)
	wantIDs(t, ids, "b", "c")
	record(t, term, seqs[0])
	wantHeld(t, pool, "c due 0") // it is the first of its key now, and on its way
	record(t, term, seqs[1])
	wantHeld(t, pool)
	var high, last int64
	if err := pool.QueryRow(t.Context(), "SELECT high, (SELECT max(seq) FROM postroom.outbox) FROM postroom.relay").Scan(&high, &last); err != nil || high != last {
		t.Errorf("high = %d, %v; held events do not keep it below %d", high, err, last)
	}
}

// The key of a dead event waits until an operator decides.
func TestADeadEventHoldsItsKey(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	writeKeyed(t, pool, "k", "a", "b")
	writeKeyed(t, pool, "", "free")
	term := lead(t, pglog.New(pool))
	_, _, page := read(t, term, 10)
	hold(t, term, dead(), page.Events...)
	wantHeld(t, pool, "a dead 1", "b waiting 0", "free dead 1")
	overrideNextAtOfDue(t, pool)
	ids, _, _ := read(t, term, 10)
	wantIDs(t, ids)

	keys, err := term.HeldKeys(t.Context())
	if err != nil || !slices.Equal(keys, []string{"k"}) {
		t.Errorf("HeldKeys = %q, %v; want k", keys, err)
	}
	// An operator makes the event due like this.
	mustExec(t, pool, "UPDATE postroom.held SET dead_at = NULL, next_at = now() WHERE event_id = 'a'")
	ids, seqs, _ := read(t, term, 10)
	wantIDs(t, ids, "a", "b")
	record(t, term, seqs...)
	wantHeld(t, pool, "free dead 1")
	if keys, err := term.HeldKeys(t.Context()); err != nil || len(keys) > 0 {
		t.Errorf("HeldKeys = %q, %v; want none", keys, err)
	}
}

func TestHeldEventsRememberTheirFailures(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	writeKeyed(t, pool, "k", "a")
	term := lead(t, pglog.New(pool))
	_, _, page := read(t, term, 10)
	for n := range 12 {
		f := refusal(n + 1)
		f.Text = fmt.Sprint("text ", n+1, " \x00\xff")
		hold(t, term, f, page.Events...)
		overrideNextAtOfDue(t, pool)
		_, _, page = read(t, term, 10)
	}
	hold(t, term, dead(), page.Events...)
	var attempts int
	var class string
	var failures []byte
	var span float64
	err := pool.QueryRow(t.Context(), `SELECT attempts, class, failures, extract(epoch FROM dead_at - first_failed_at) FROM postroom.held`).
		Scan(&attempts, &class, &failures, &span)
	if err != nil {
		t.Fatal(err)
	}
	var list []struct{ At, Class, Text string }
	if err := json.Unmarshal(failures, &list); err != nil {
		t.Fatal(err)
	}
	if len(list) != 10 || !strings.HasPrefix(list[0].Text, "text 4 ??") || list[9].Class != "max_payload" || list[9].At == "" {
		t.Errorf("failures %+v, want the last ten", list)
	}
	if class != "max_payload" || attempts != 1 || span <= 0 {
		t.Errorf("class %s, %d attempts, %f s from the first failure to the last", class, attempts, span)
	}
}

// An event of a held key that becomes visible late takes its place by its seq.
func TestALateEventTakesItsPlaceInHeld(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	late := named("late")
	late.Key = "k"
	if err := shop.Write(t.Context(), tx, late); err != nil {
		t.Fatal(err)
	}
	writeKeyed(t, pool, "k", "b", "c")
	term := lead(t, pglog.New(pool))
	_, _, page := read(t, term, 10)
	hold(t, term, refusal(1), page.Events...)
	wantHeld(t, pool, "b retrying 1", "c waiting 0")
	commit(t, tx)
	_, _, page = read(t, term, 10)
	hold(t, term, nil, page.Events...) // it has its place among the events of its key
	wantHeld(t, pool, "late due 0", "b waiting 1", "c waiting 0")
	ids, seqs, _ := read(t, term, 10)
	wantIDs(t, ids, "late", "b", "c")

	// While it is on its way, b is refused once more: no two events of a key are due.
	err = term.Record(t.Context(), eventlog.Progress{
		Held:     []eventlog.Deferral{{Seq: seqs[1], Key: "k", Failure: refusal(2)}},
		Returned: seqs[2:],
	})
	if err != nil {
		t.Fatal(err)
	}
	wantHeld(t, pool, "late due 0", "b waiting 2", "c waiting 0")
}

// A crash between holding an event and the next recording loses no event, and no event of a
// key passes those that are held.
func TestHeldEventsSurviveCrashes(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	log := pglog.New(pool)
	writeKeyed(t, pool, "k", "a", "b")
	term := lead(t, log)
	_, _, page := read(t, term, 10)

	term = lead(t, log) // before anything was recorded
	ids, _, page2 := read(t, term, 10)
	wantIDs(t, ids, "a", "b")
	hold(t, term, refusal(1), page2.Events...)
	wantHeld(t, pool, "a retrying 1", "b waiting 0")

	// This is the state after a recording that stopped below the held events.
	mustExec(t, pool, "UPDATE postroom.relay SET high = $1, snap = pg_current_snapshot()", page.Events[0].Seq-1)
	writeKeyed(t, pool, "", "c")
	term = lead(t, log)
	ids, seqs, _ := read(t, term, 10)
	wantIDs(t, ids, "c") // a and b are taken from held, not from the log
	record(t, term, seqs...)
	overrideNextAtOfDue(t, pool)
	ids, _, _ = read(t, term, 10)
	wantIDs(t, ids, "a", "b")

	term = lead(t, log) // after they were read, before they were recorded as published
	ids, seqs, _ = read(t, term, 10)
	wantIDs(t, ids, "a", "b")
	record(t, term, seqs...)
	wantHeld(t, pool)
}

// If a recording fails while its connection works, Release stores what it should have stored.
func TestHoldingSurvivesAFailedRecording(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	writeKeyed(t, pool, "k", "a")
	term := lead(t, pglog.New(pool))
	_, _, page := read(t, term, 10)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := term.Record(ended, eventlog.Progress{Held: deferrals(dead(), page.Events...)}); err == nil {
		t.Fatal("Record with a context that has ended succeeded")
	}
	if err := term.Release(t.Context(), eventlog.Progress{}); err != nil {
		t.Fatal(err)
	}
	wantHeld(t, pool, "a dead 1")
}

// A former leader cannot change held.
func TestHoldingIsFenced(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	log := pglog.New(pool)
	writeKeyed(t, pool, "k", "a", "b")
	writeKeyed(t, pool, "", "free")
	term := lead(t, log)
	_, _, page := read(t, term, 10)
	hold(t, term, refusal(1), page.Events[:2]...)
	overrideNextAtOfDue(t, pool)
	_, seqs, _ := read(t, term, 10)
	before := heldStates(t, pool)
	lead(t, log)
	for name, p := range map[string]eventlog.Progress{
		"published": {Published: seqs},
		"refused":   {Held: []eventlog.Deferral{{Seq: seqs[0], Key: "k", Failure: dead()}}},
		"new":       {Held: deferrals(dead(), page.Events[2])},
	} {
		if err := term.Record(t.Context(), p); !errors.Is(err, eventlog.ErrLeaseLost) {
			t.Errorf("%s: Record = %v, want ErrLeaseLost", name, err)
		}
	}
	if after := heldStates(t, pool); !slices.Equal(before, after) {
		t.Errorf("a former leader made %q of %q", after, before)
	}
}

// A long queue behind a key comes in pieces, each after the one before. A dead event in the
// middle stops it.
func TestALongQueueBehindAKey(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	mustExec(t, pool, `INSERT INTO postroom.outbox (digest, source, event_id, type, subject, key, data)
		SELECT decode(repeat('00', 16), 'hex'), '/shop', n::text, 'a.b', 'a.b', 'k', '' FROM generate_series(1, 350) n`)
	term := lead(t, pglog.New(pool))
	_, _, page := read(t, term, 1000)
	hold(t, term, refusal(1), page.Events...)
	overrideNextAtOfDue(t, pool)
	mustExec(t, pool, "UPDATE postroom.held SET dead_at = now(), class = 'x' WHERE event_id = '250'")
	var all []string
	for range 10 {
		ids, seqs, page := read(t, term, 100)
		if len(ids) > 100 {
			t.Fatalf("%d events of one key in a pass", len(ids))
		}
		if i := slices.IndexFunc(page.Events, func(ev broker.Event) bool { return ev.LastHeld }); i >= 0 {
			t.Errorf("%s is said to be the last of its key, and others wait behind it", page.Events[i].ID)
		}
		all = append(all, ids...)
		record(t, term, seqs...)
	}
	if len(all) != 249 || all[0] != "1" || all[248] != "249" || !slices.IsSortedFunc(all, func(a, b string) int {
		if len(a) != len(b) {
			return len(a) - len(b)
		}
		return strings.Compare(a, b)
	}) {
		t.Errorf("published %d events, want the 249 before the dead one, in order: %q", len(all), all)
	}
}

// Wrong states cannot be written down.
func TestHeldRefusesWrongStates(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	insert := `INSERT INTO postroom.held (handler, pos, chain, next_at, dead_at, class, logged_at, source, event_id, type, subject, content_type, data)
		VALUES ('outbox', $1, $2, $3, $4, $5, now(), '/shop', 'x', 'a.b', 'a.b', 'text/plain', '')`
	now := time.Now()
	k, class := "k", "js_1"
	mustExec(t, pool, insert, 1, &k, &now, nil, nil)
	tests := []struct {
		name       string
		pos        int
		key        *string
		next, dead *time.Time
		class      *string
		constraint string
	}{
		{"due and dead", 2, &k, &now, &now, &class, "held_due_or_dead"},
		{"neither due nor dead nor behind a key", 2, nil, nil, nil, nil, "held_reachable"},
		{"dead of nothing", 2, &k, nil, &now, nil, "held_dead_why"},
		{"held twice", 1, nil, &now, nil, nil, "held_outgoing"},
		{"two of a key due", 2, &k, &now, nil, nil, "held_chain_due"},
	}
	for _, tt := range tests {
		_, err := pool.Exec(t.Context(), insert, tt.pos, tt.key, tt.next, tt.dead, tt.class)
		if err == nil || !strings.Contains(err.Error(), tt.constraint) {
			t.Errorf("%s: %v, want a violation of %s", tt.name, err, tt.constraint)
		}
	}
}

// If a late event was published, that is recorded even if nothing above it changed. So a crash
// hours later does not publish it again.
func TestALateEventIsRecordedOnAQuietLog(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	log := pglog.New(pool)
	late := openWith(t, pool, "late")
	write(t, pool, "a")
	term := lead(t, log)
	_, seqs, _ := read(t, term, 10)
	record(t, term, seqs...)
	commit(t, late)
	ids, seqs, _ := read(t, term, 10)
	wantIDs(t, ids, "late")
	record(t, term, seqs...)

	term = lead(t, log)
	ids, _, _ = read(t, term, 10)
	wantIDs(t, ids)
}
