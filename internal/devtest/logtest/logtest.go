// Package logtest has functions for tests of the log. They write events, read them in a term,
// record them as published, prune the log, and compare results.
package logtest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/outbox"
	"github.com/postroom/postroom/relay/broker"
)

// Shop is the producer of the events.
var Shop = outbox.New(outbox.Config{Source: "/shop"})

// Named returns an event with the given id.
func Named(id string) postroom.Event {
	return postroom.Event{ID: id, Type: "order.placed", Data: []byte("{}")}
}

// Write commits events with the given ids, each in its own transaction.
func Write(t *testing.T, pool *pgxpool.Pool, ids ...string) {
	t.Helper()
	for _, id := range ids {
		err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return Shop.Write(t.Context(), tx, Named(id)) })
		if err != nil {
			t.Fatal(err)
		}
	}
}

// OpenWith returns an open transaction that has written an event. If the test does not commit it,
// OpenWith rolls it back at the test's end.
func OpenWith(t *testing.T, pool *pgxpool.Pool, id string) pgx.Tx {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) }) // fails if the test committed
	if err := Shop.Write(t.Context(), tx, Named(id)); err != nil {
		t.Fatal(err)
	}
	return tx
}

// Commit commits a transaction.
func Commit(t *testing.T, tx pgx.Tx) {
	t.Helper()
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Lead begins a term, and releases it at the test's end.
func Lead(t *testing.T, log eventlog.Source) eventlog.Term {
	t.Helper()
	term, err := log.Lead(t.Context(), "test", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = term.Release(context.Background(), eventlog.Progress{}) }) // the error is ignored, because the test checks errors itself
	return term
}

// Read calls term.Read once, and returns the page, with the ids and the seqs of its events.
func Read(t *testing.T, term eventlog.Term, limit int) (ids []string, seqs []int64, page eventlog.Page) {
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

// WantIDs fails the test if the ids that were read are not the wanted ids.
func WantIDs(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("read %v, want %v", got, want)
	}
}

// Record records events as published.
func Record(t *testing.T, term eventlog.Term, seqs ...int64) {
	t.Helper()
	RecordAll(t, term, eventlog.Progress{Published: seqs})
}

// RecordAll makes as many recordings as a progress needs.
func RecordAll(t *testing.T, term eventlog.Term, p eventlog.Progress) {
	t.Helper()
	for {
		if err := term.Record(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		if held, other := term.Unrecorded(); held+other == 0 {
			return
		}
		p = eventlog.Progress{}
	}
}

// Prune calls term.Prune until there is no more to remove. It returns how many events each call
// removed.
func Prune(t *testing.T, term eventlog.Term, keep time.Duration) []int64 {
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

// Again calls term.ReadRepublish once, and returns the page and the ids of its events. It checks
// that each event belongs to the page's republish and is not held.
func Again(t *testing.T, term eventlog.Term, limit int) (ids []string, page eventlog.RepublishPage) {
	t.Helper()
	page, err := term.ReadRepublish(t.Context(), limit)
	if err != nil {
		t.Fatal(err)
	}
	for _, ev := range page.Events {
		if ev.RepublishID != page.ID || ev.RepublishID == 0 || ev.Held {
			t.Errorf("event %s is of republish %d, held %t; the page is of %d", ev.ID, ev.RepublishID, ev.Held, page.ID)
		}
		ids = append(ids, ev.ID)
	}
	return ids, page
}

// WantLog fails the test if the ids in the log, in the order of seq, are not the wanted ids.
func WantLog(t *testing.T, pool *pgxpool.Pool, want ...string) {
	t.Helper()
	rows, _ := pool.Query(t.Context(), "SELECT event_id FROM postroom.outbox ORDER BY seq") // CollectRows reports its error
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, want) {
		t.Errorf("the log has %v, want %v", got, want)
	}
}

// Exec executes a statement.
func Exec(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(fmt.Errorf("%s: %w", sql, err))
	}
}

// Letters returns n different ids.
func Letters(n int) (ids []string) {
	for i := range n {
		ids = append(ids, fmt.Sprintf("e%03d", i))
	}
	return ids
}

// PublishAgain records that events of a republish are published.
func PublishAgain(t *testing.T, term eventlog.Term, events ...broker.Event) {
	t.Helper()
	var p eventlog.Progress
	for _, ev := range events {
		p.Republished = append(p.Republished, eventlog.RepublishResult{RepublishID: ev.RepublishID, Seq: ev.Seq})
	}
	if err := term.Record(t.Context(), p); err != nil {
		t.Fatal(err)
	}
}
