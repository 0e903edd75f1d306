package republish_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/eventlog"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/pglog"
	"github.com/postroom/postroom/outbox"
	"github.com/postroom/postroom/republish"
)

var shop = outbox.New(outbox.Config{Source: "/shop"})

// named returns an event with an id to be recognised by.
func named(id string) postroom.Event {
	return postroom.Event{ID: id, Type: "order.placed", Data: []byte("{}")}
}

// write commits events with the given ids, each in a transaction of its own.
func write(t *testing.T, pool *pgxpool.Pool, ids ...string) {
	t.Helper()
	for _, id := range ids {
		err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return shop.Write(t.Context(), tx, named(id)) })
		if err != nil {
			t.Fatal(err)
		}
	}
}

// read returns the ids and seqs of one pass.
func read(t *testing.T, term eventlog.Term, limit int) (ids []string, seqs []int64, page eventlog.Page) {
	t.Helper()
	page, err := term.Read(t.Context(), limit, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, ev := range page.Events {
		ids, seqs = append(ids, ev.ID), append(seqs, ev.Seq)
	}
	return ids, seqs, page
}

func wantIDs(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("read %v, want %v", got, want)
	}
}

func record(t *testing.T, term eventlog.Term, seqs ...int64) {
	t.Helper()
	if err := term.Record(t.Context(), eventlog.Progress{Published: seqs}); err != nil {
		t.Fatal(err)
	}
}

// lead begins a term, which is given back at the test's end.
func lead(t *testing.T, pool *pgxpool.Pool) eventlog.Term {
	t.Helper()
	term, err := pglog.New(pool).Lead(t.Context(), "test", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = term.Release(context.Background(), eventlog.Progress{}) }) // the test has its own errors
	return term
}

// publishedLog returns a log with events of which all are published, what publishes them
// again, and the term that published them.
func publishedLog(t *testing.T, ids ...string) (*pgxpool.Pool, *republish.Rewinds, eventlog.Term) {
	t.Helper()
	pool := devtest.Pool(t)
	write(t, pool, ids...)
	term := lead(t, pool)
	_, seqs, _ := read(t, term, 1000)
	record(t, term, seqs...)
	return pool, republish.New(pool), term
}

func letters(n int) (ids []string) {
	for i := range n {
		ids = append(ids, fmt.Sprintf("e%03d", i))
	}
	return ids
}

func rewind(t *testing.T, log *republish.Rewinds, o republish.Order) republish.Rewind {
	t.Helper()
	o.Actor = "ann"
	r, err := log.Rewind(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// again looks once at the rewinds of a term.
func again(t *testing.T, term eventlog.Term, limit int) (ids []string, page eventlog.Rewound) {
	t.Helper()
	page, err := term.Rewound(t.Context(), limit)
	if err != nil {
		t.Fatal(err)
	}
	for _, ev := range page.Events {
		if ev.Rewind != page.ID || ev.Rewind == 0 || ev.Held {
			t.Errorf("event %s is of rewind %d, held %t; the page is of %d", ev.ID, ev.Rewind, ev.Held, page.ID)
		}
		ids = append(ids, ev.ID)
	}
	return ids, page
}

// publishAgain records that events of a rewind are published.
func publishAgain(t *testing.T, term eventlog.Term, events ...eventlog.Logged) {
	t.Helper()
	var p eventlog.Progress
	for _, ev := range events {
		p.Repeated = append(p.Repeated, eventlog.Repeated{Rewind: ev.Rewind, Seq: ev.Seq})
	}
	if err := term.Record(t.Context(), p); err != nil {
		t.Fatal(err)
	}
}

func wantRewind(t *testing.T, log *republish.Rewinds, id int64, state republish.State, published, skipped, held int64) {
	t.Helper()
	r, err := log.Find(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if r.State != state || r.Published != published || r.Skipped != skipped || r.Held != held {
		t.Errorf("rewind %d is %s: %d published, %d skipped, %d held; want %s: %d, %d, %d",
			id, r.State, r.Published, r.Skipped, r.Held, state, published, skipped, held)
	}
	if (r.State == republish.Running) != r.EndedAt.IsZero() {
		t.Errorf("rewind %d is %s and ended at %s", id, r.State, r.EndedAt)
	}
}

// wantAudit compares what operators did: who, what, how many, why.
func wantAudit(t *testing.T, pool *pgxpool.Pool, want ...string) {
	t.Helper()
	rows, _ := pool.Query(t.Context(), "SELECT concat_ws(' ', actor, action, events, nullif(reason, '')) FROM postroom.audit ORDER BY id")
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, want) {
		t.Errorf("audit %q, want %q", got, want)
	}
}

// prune takes steps until there is no more to do, and returns how many events
// each removed.
func prune(t *testing.T, term eventlog.Term, keep time.Duration) []int64 {
	t.Helper()
	var steps []int64
	for range 1000 {
		removed, more, err := term.Prune(t.Context(), keep)
		if err != nil {
			t.Fatal(err)
		}
		steps = append(steps, removed)
		if !more {
			return steps
		}
	}
	t.Fatal("1000 steps, and there is still more to prune")
	return nil
}

// wantLog compares the ids in the log, by seq.
func wantLog(t *testing.T, pool *pgxpool.Pool, want ...string) {
	t.Helper()
	rows, _ := pool.Query(t.Context(), "SELECT event_id FROM postroom.outbox ORDER BY seq")
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, want) {
		t.Errorf("the log has %v, want %v", got, want)
	}
}

func mustExec(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(fmt.Errorf("%s: %w", sql, err))
	}
}
