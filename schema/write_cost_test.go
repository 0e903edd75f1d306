package schema_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postroom/postroom/internal/devtest"
)

// The migration that makes writing cheaper leaves the log and its rules as they
// are, also for a role that may call no function but what it was granted.
func TestWriteCostMigrationIsAdditive(t *testing.T) {
	t.Parallel()
	pool := devtest.EmptyPool(t)
	exec(t, pool, "ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC")
	upTo(t, pool, 4)
	role := pgx.Identifier{one[string](t, pool, "SELECT current_database() || '_cost'")}.Sanitize()
	exec(t, pool, "CREATE ROLE "+role)
	defer exec(t, pool, "DROP OWNED BY "+role+"; DROP ROLE "+role)
	exec(t, pool, "SELECT postroom.grant_producer('"+role+"')")
	exec(t, pool, insertEvent("postroom", map[string]string{"event_id": "'before'", "headers": `'{"a": "1"}'`, "key": "'k'", "occurred_at": "now()"}))
	const file, rows = "SELECT pg_relation_filepath('postroom.outbox')", "SELECT jsonb_agg(to_jsonb(o) - 'checked' ORDER BY seq)::text FROM postroom.outbox o"
	const rules = `SELECT string_agg(conname, ' ' ORDER BY conname) FROM pg_constraint
		WHERE connamespace = 'postroom'::regnamespace AND contypid <> 0 AND conname <> 'headers_rules' AND NOT starts_with(conname, 'inbox_') AND NOT starts_with(conname, 'held_') AND NOT starts_with(conname, 'idempotency_')`
	wantFile, wantRows, wantRules := one[string](t, pool, file), one[string](t, pool, rows), one[string](t, pool, rules)

	migrate(t, pool, "")
	for sql, want := range map[string]string{file: wantFile, rows: wantRows, rules: wantRules} {
		if got := one[string](t, pool, sql); got != want {
			t.Errorf("%s = %s, want %s as before", sql, got, want)
		}
	}

	as := func(sql string) error {
		return pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), "SET LOCAL ROLE "+role); err != nil {
				return err
			}
			_, err := tx.Exec(t.Context(), sql)
			return err
		})
	}
	if err := as(insertEvent("postroom", map[string]string{"headers": `'{"a": "1"}'`})); err != nil {
		t.Errorf("an event with headers by a producer: %v", err)
	}
	var pg *pgconn.PgError
	err := as(insertEvent("postroom", map[string]string{"headers": `'{"Nats-Rollup": "secret"}'`, "data": "'secret'"}))
	if !errors.As(err, &pg) || pg.Code != "23514" || pg.ConstraintName != "headers_names" {
		t.Fatalf("a bad header by a producer: %v, want 23514 of headers_names", err)
	}
	if text := fmt.Sprintf("%+v", *pg); strings.Contains(text, "secret") {
		t.Errorf("the error quotes the event: %s", text)
	}
}

// All lengths that a text may have, and none besides.
func TestLengthsOfTexts(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	for _, domain := range []string{"identifier", "label", "media_type"} {
		for n, ok := range map[int]bool{0: false, 1: true, 254: true, 255: true, 256: false, 257: false, 70_000: false} {
			_, err := pool.Exec(t.Context(), fmt.Sprintf("SELECT repeat('x', %d)::postroom.checked_%s", n, domain))
			var pg *pgconn.PgError
			if errors.As(err, &pg) == ok || !ok && pg.ConstraintName != domain+"_length" {
				t.Errorf("%s of %d bytes: %v, want it taken: %t", domain, n, err, ok)
			}
		}
	}
}
