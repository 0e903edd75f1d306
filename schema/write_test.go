package schema_test

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/schema"
)

// upTo migrates an empty database to a version, as its code of the time did.
func upTo(t testing.TB, db schema.DB, version int) {
	t.Helper()
	script, err := schema.Print("")
	if err != nil {
		t.Fatal(err)
	}
	steps, err := schema.Migrations("")
	if err != nil {
		t.Fatal(err)
	}
	if version < len(steps) {
		script = script[:strings.Index(script, fmt.Sprintf("\n-- Migration %d:", version+1))] + "\nCOMMIT;"
	}
	err = pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), strings.TrimSuffix(strings.TrimPrefix(script, "BEGIN ISOLATION LEVEL READ COMMITTED;"), "COMMIT;"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// step applies the migration of a number, on top of those before it.
func step(t testing.TB, pool *pgxpool.Pool, version int) {
	t.Helper()
	steps, err := schema.Migrations("")
	if err != nil {
		t.Fatal(err)
	}
	exec(t, pool, steps[version-1].SQL)
	exec(t, pool, fmt.Sprintf("INSERT INTO postroom.migration (version, name, serves_from) VALUES (%d, '%s', 1)", version, steps[version-1].Name))
}

// What version 1 wrote stays, without a copy of the table, and what it writes
// with goes on working.
func TestWriteMigrationIsAdditive(t *testing.T) {
	t.Parallel()
	pool := devtest.EmptyPool(t)
	upTo(t, pool, 1)
	exec(t, pool, insertEvent("postroom", map[string]string{"event_id": "'before'", "occurred_at": "now()", "trace_state": "'a=b'"}))
	const file, rows = "SELECT pg_relation_filepath('postroom.outbox')", "SELECT jsonb_agg(to_jsonb(o) - 'not_before' - 'checked' ORDER BY seq)::text FROM postroom.outbox o"
	wantFile, wantRows := one[string](t, pool, file), one[string](t, pool, rows)

	migrate(t, pool, "")
	if got := one[string](t, pool, file); got != wantFile {
		t.Error("the migration copied the log")
	}
	if got := one[string](t, pool, rows); got != wantRows {
		t.Errorf("rows = %s, want %s", got, wantRows)
	}
	if n := one[int](t, pool, "SELECT min(serves_from) FROM postroom.migration WHERE version <= 2"); n != 1 {
		t.Errorf("serves from %d, want 1", n)
	}

	// The statement with which version 1 wrote, and what it read back.
	exec(t, pool, `WITH input AS (
		    SELECT * FROM unnest('{after,before}'::text[], ARRAY[decode(repeat('11', 16), 'hex'), decode(repeat('22', 16), 'hex')],
		        '{a,a}'::text[], '{a,a}'::text[], '{k,k}'::text[], '{text/plain,text/plain}'::text[], '{NULL,NULL}'::text[], '{NULL,NULL}'::text[],
		        '{2026-01-02,NULL}'::timestamptz[], '{NULL,NULL}'::text[], '{a=b,NULL}'::text[], '{NULL,NULL}'::jsonb[], '{x,x}'::bytea[])
		        WITH ORDINALITY AS i (event_id, digest, type, subject, key, content_type, correlation_id, causation_id,
		                              occurred_at, trace_parent, trace_state, headers, data, n)
		), written AS (
		    INSERT INTO postroom.outbox (source, event_id, digest, type, subject, key, content_type, correlation_id,
		                                 causation_id, occurred_at, trace_parent, trace_state, headers, data)
		    SELECT '/shop'::text, event_id, digest, type, subject, key, content_type, correlation_id,
		           causation_id, occurred_at, trace_parent, trace_state, headers, data
		    FROM input ORDER BY n
		    ON CONFLICT (source, event_id) DO NOTHING
		    RETURNING event_id
		)
		SELECT i.n::int, o.digest = i.digest AS same
		FROM input i LEFT JOIN postroom.outbox o ON o.source = '/shop' AND o.event_id = i.event_id
		WHERE NOT EXISTS (SELECT FROM written w WHERE w.event_id = i.event_id)`)
	if got := one[string](t, pool, "SELECT string_agg(event_id, ' ' ORDER BY seq) FROM postroom.outbox WHERE not_before IS NULL"); got != "before after" {
		t.Errorf("events %q, want before and after", got)
	}
}

// A violated constraint of a table quotes the whole row in the server's log,
// with its data; one of a domain does not.
func TestFaultsOfAnEventDoNotQuoteIt(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	if n := one[int](t, pool, "SELECT count(*) FROM pg_constraint WHERE conrelid = 'postroom.outbox'::regclass AND contype = 'c'"); n != 0 {
		t.Errorf("outbox has %d constraints of the table, want its rules elsewhere: they are faster, too", n)
	}
}

func TestEveryFunctionHasAComment(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	rows, _ := pool.Query(t.Context(), `SELECT proname::text FROM pg_proc
		WHERE pronamespace = 'postroom'::regnamespace AND length(coalesce(obj_description(oid, 'pg_proc'), '')) < 20`) // CollectRows reports the error
	without, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(without) > 0 {
		t.Errorf("functions without a comment: %v (%v)", without, err)
	}
}

// Functions are the same in a schema of another name, but for that name. They run with
// the rights of their caller, save the two that check what a producer may not read:
// nothing of these is looked up by the caller's path.
func TestFunctionsInAnotherSchema(t *testing.T) {
	t.Parallel()
	pool := devtest.EmptyPool(t)
	functions := func(name string) []string {
		rows, _ := pool.Query(t.Context(), `SELECT replace(replace(pg_get_functiondef(oid), quote_ident($1) || '.', ''), format('"%s"', $1), $1)
			|| prosecdef FROM pg_proc WHERE pronamespace = quote_ident($1)::regnamespace ORDER BY 1`, name) // CollectRows reports the error
		texts, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		for i := range texts {
			texts[i] = strings.ReplaceAll(strings.ReplaceAll(texts[i], name+".", ""), "'"+name+"'", "")
		}
		return texts
	}
	migrate(t, pool, "")
	migrate(t, pool, "shop")
	got, want := functions("shop"), functions("postroom")
	if len(want) < 4 || !slices.Equal(got, want) {
		t.Errorf("schema shop has\n%s\nschema postroom has\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	ofTheOwner := regexp.MustCompile(`^CREATE OR REPLACE FUNCTION (check_unchecked|unchecked)\(\)\n(.*\n)* SET search_path TO 'pg_catalog', 'pg_temp'\n`)
	for _, text := range append(got, want...) {
		if !strings.HasSuffix(text, "false") && !ofTheOwner.MatchString(text) {
			t.Errorf("a function that does not run with its caller's rights:\n%s", text)
		}
		if strings.Contains(text, "postroom") {
			t.Errorf("a function names the schema postroom:\n%s", text)
		}
	}
}

// An event that was neither inserted nor is there, because its twin was deleted
// meanwhile, is not taken for stored: the transaction is to be tried again.
func TestRefuseConflictMissesWhatIsGone(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	_, err := pool.Exec(t.Context(), "SELECT postroom.refuse_conflict('/shop', ARRAY['gone'], ARRAY[decode(repeat('00', 16), 'hex')])")
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code != "40001" {
		t.Errorf("refuse_conflict = %v, want 40001", err)
	}
}
