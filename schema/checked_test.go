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

// The migration by which rows say that they are checked copies nothing, and leaves
// producers what they could do: those that say nothing are checked as before, and
// those that have a column grant each may say it.
func TestCheckedMigrationIsAdditive(t *testing.T) {
	t.Parallel()
	pool := devtest.EmptyPool(t)
	upTo(t, pool, 13)
	role := pgx.Identifier{one[string](t, pool, "SELECT current_database() || '_checked'")}.Sanitize()
	exec(t, pool, "CREATE ROLE "+role)
	defer exec(t, pool, "DROP OWNED BY "+role+"; DROP ROLE "+role)
	exec(t, pool, "SELECT postroom.grant_producer('"+role+"')")
	exec(t, pool, insertEvent("postroom", map[string]string{"event_id": "'before'", "headers": `'{"a": "1"}'`, "key": "'k'"}))
	const files = `SELECT string_agg(pg_relation_filepath(oid), ' ' ORDER BY relname) FROM pg_class
		WHERE relnamespace = 'postroom'::regnamespace AND relname LIKE 'outbox%' AND relkind IN ('r', 'i')`
	const rows = "SELECT jsonb_agg(to_jsonb(o) - 'checked' ORDER BY seq)::text FROM postroom.outbox o"
	wantFiles, wantRows := one[string](t, pool, files), one[string](t, pool, rows)

	step(t, pool, 14)
	for sql, want := range map[string]string{files: wantFiles, rows: wantRows} {
		if got := one[string](t, pool, sql); got != want {
			t.Errorf("%s = %s, want %s as before", sql, got, want)
		}
	}

	migrate(t, pool, "")
	as := func(set map[string]string) error {
		return pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), "SET LOCAL ROLE "+role); err != nil {
				return err
			}
			_, err := tx.Exec(t.Context(), insertEvent("postroom", set))
			return err
		})
	}
	for name, set := range map[string]map[string]string{
		"says nothing":         {"headers": `'{"a": "1"}'`},
		"says that it checked": {"checked": "true"},
	} {
		if err := as(set); err != nil {
			t.Errorf("a producer that %s: %v", name, err)
		}
	}
	var pg *pgconn.PgError
	err := as(map[string]string{"headers": `'{"Nats-Rollup": "secret"}'`, "data": "'secret'"})
	if !errors.As(err, &pg) || pg.Code != "23514" || pg.ConstraintName != "headers_names" {
		t.Fatalf("a bad header by a producer: %v, want 23514 of headers_names", err)
	}
	if text := fmt.Sprintf("%+v", *pg); strings.Contains(text, "secret") {
		t.Errorf("the error quotes the event: %s", text)
	}
}

// The database takes the word of a row that says it is checked: nothing is looked at
// twice where the Go package has looked.
func TestCheckedRowsAreNotCheckedAgain(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	exec(t, pool, insertEvent("postroom", map[string]string{"type": "'a..b'", "checked": "true"}))
	wantViolation(t, pool, insertEvent("postroom", map[string]string{"type": "'a..b'"}), "subject_syntax")
}

// Headers are measured as they travel, also those whose values are no texts.
func TestSizeOfHeadersAsTheyTravel(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	// An array of a text of n quotes travels as 2n + 4 bytes, behind a name of one.
	quotes := func(n int) map[string]string {
		return map[string]string{"headers": fmt.Sprintf(`jsonb_build_object('a', jsonb_build_array(repeat('"', %d)))`, n)}
	}
	exec(t, pool, insertEvent("postroom", quotes(16381)))
	wantViolation(t, pool, insertEvent("postroom", quotes(16382)), "headers_size")
}
