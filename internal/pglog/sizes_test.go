package pglog_test

import (
	crand "crypto/rand"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/pglog"
)

func TestSizes(t *testing.T) {
	t.Parallel()
	cfg, err := pgxpool.ParseConfig(devtest.DatabaseURL(t))
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = 1 // so that the test sees all plans that are kept
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	log := pglog.New(pool)
	empty, err := log.Sizes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if empty.First != 0 || empty.Last != 0 || empty.Oldest != 0 {
		t.Errorf("Sizes of an empty log = %+v, want zero seqs and age", empty)
	}
	if empty.Log == 0 || empty.Held == 0 || empty.Inbox == 0 {
		t.Errorf("Sizes of an empty log = %+v, want the pages that indexes begin with", empty)
	}

	write(t, pool, "a", "b", "c", "d")
	mustExec(t, pool, "DELETE FROM postroom.outbox WHERE event_id = 'a'")
	overrideCreatedAt(t, pool, 72*time.Hour, "b")
	overrideCreatedAt(t, pool, 100*time.Hour, "c") // not the first row, and Oldest is the age of the first
	large := named("large")
	large.ContentType, large.Data = "application/octet-stream", make([]byte, 500_000)
	_, _ = crand.Read(large.Data) // never fails
	if err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return shop.Write(t.Context(), tx, large) }); err != nil {
		t.Fatal(err)
	}
	mustExec(t, pool, "INSERT INTO postroom.inbox (handler, dedupe_key) SELECT 'h', n::text FROM generate_series(1, 1000) n")
	got, err := log.Sizes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got.First != 2 || got.Last != 5 {
		t.Errorf("seqs %d to %d, want 2 to 5", got.First, got.Last)
	}
	if got.Oldest < 72*time.Hour || got.Oldest > 73*time.Hour {
		t.Errorf("Oldest = %s, want 72 h", got.Oldest)
	}
	if grown := got.Log - empty.Log; grown < 500_000 {
		t.Errorf("a large value made the log %d bytes larger", grown)
	}
	if got.Held != empty.Held || got.Inbox < empty.Inbox+1000*20 {
		t.Errorf("held %d then %d bytes, inbox %d then %d", empty.Held, got.Held, empty.Inbox, got.Inbox)
	}

	overrideCreatedAt(t, pool, -200*time.Hour, "b") // as after a clock was set back
	if got, err = log.Sizes(t.Context()); err != nil || got.First != 2 || got.Oldest.Round(time.Hour) != 100*time.Hour {
		t.Errorf("First = %d, Oldest = %s, %v, want 2, and the 100 h of the next event", got.First, got.Oldest, err)
	}
	mustExec(t, pool, "UPDATE postroom.outbox SET created_at = now() + interval '1 h'")
	if got, err = log.Sizes(t.Context()); err != nil || got.Oldest != 0 {
		t.Errorf("Oldest = %s, %v, want 0: all times are in the future", got.Oldest, err)
	}
	var kept int
	err = pool.QueryRow(t.Context(), "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%pg_total_relation_size%'").Scan(&kept)
	if err != nil || kept > 1 { // the plan of this query itself is kept
		t.Errorf("%d plans are cached, %v: one made while the log was empty would scan it later", kept-1, err)
	}

	if _, err := log.WithSchema("no such; schema").Sizes(t.Context()); !errors.Is(err, postroom.ErrUnrecoverable) {
		t.Errorf("Sizes with an invalid name = %v, want a refusal", err)
	}
	if _, err := log.WithSchema("elsewhere").Sizes(t.Context()); err == nil || !strings.Contains(err.Error(), "read sizes") {
		t.Errorf("Sizes of a schema that does not exist = %v", err)
	}
}
