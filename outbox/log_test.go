package outbox_test

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
	"github.com/postroom/postroom/outbox"
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

// openWith returns a transaction that has written an event and is not committed.
func openWith(t *testing.T, pool *pgxpool.Pool, id string) pgx.Tx {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) }) // committed by then, where all goes well
	if err := shop.Write(t.Context(), tx, named(id)); err != nil {
		t.Fatal(err)
	}
	return tx
}

func commit(t *testing.T, tx pgx.Tx) {
	t.Helper()
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
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

// lead begins a term, which is given back at the test's end.
func lead(t *testing.T, log *outbox.Log) eventlog.Term {
	t.Helper()
	term, err := log.Lead(t.Context(), "test", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = term.Release(context.Background(), eventlog.Progress{}) }) // a test of the log has its own errors
	return term
}

func mustExec(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(fmt.Errorf("%s: %w", sql, err))
	}
}
