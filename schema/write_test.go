package schema_test

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postroom/postroom/internal/devtest"
)

// If a constraint of a table is violated, the server's log quotes the whole row with its data. For
// a constraint of a domain it does not. The one constraint of the table casts to a domain.
func TestFaultsOfAnEventDoNotQuoteIt(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	if n := one[int](t, pool, "SELECT count(*) FROM pg_constraint WHERE conrelid = 'postroom.outbox'::regclass AND contype = 'c' AND conname <> 'outbox_headers'"); n != 0 {
		t.Errorf("outbox has %d more constraints of the table, want its rules elsewhere: they are faster, too", n)
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

// Functions in a schema with another name differ only in that name. They run with the rights of
// their caller. The exceptions are functions that do what a producer or an operator may not do:
// they look up nothing by the caller's search path.
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
	ofTheOwner := regexp.MustCompile(`^CREATE OR REPLACE FUNCTION (check_unchecked\(\)|unchecked\(\)|cancel\(source text, id text\)|forget\(.*\)|decide_saga\(.*\))\n(.*\n)* SET search_path TO 'pg_catalog', 'pg_temp'\n`)
	for _, text := range append(got, want...) {
		if !strings.HasSuffix(text, "false") && !ofTheOwner.MatchString(text) {
			t.Errorf("a function that does not run with its caller's rights:\n%s", text)
		}
		if strings.Contains(text, "postroom") {
			t.Errorf("a function names the schema postroom:\n%s", text)
		}
	}
}

// If an event was not inserted because its twin was there, and the twin was deleted meanwhile,
// the database reports an error after which a program tries the transaction again.
func TestRefuseConflictReportsADeletedTwin(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	_, err := pool.Exec(t.Context(), "SELECT postroom.refuse_conflict('/shop', ARRAY['gone'], ARRAY[decode(repeat('00', 16), 'hex')])")
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code != "40001" {
		t.Errorf("refuse_conflict = %v, want 40001", err)
	}
}
