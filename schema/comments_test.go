package schema_test

import (
	"regexp"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/internal/devtest"
)

// plainColumns are names of columns that need no comment: they mean the same in each table.
var plainColumns = []string{
	"only_one", "id", "created_at", "ended_at", "applied_at", "started_at", "asked_at", "at", "actor", "reason",
	"handler", "handlers", "replay", "source", "event_id", "type", "subject", "content_type", "correlation_id",
	"causation_id", "occurred_at", "trace_parent", "trace_state", "headers", "data",
}

// copies are tables whose columns are those of another table, which has the comments.
var copies = map[string]string{"archive": "held", "revision": "held", "relay_checkpoint": "relay"}

// vague are words that do not say who acts.
var vague = regexp.MustCompile(`(?i)\b(?:nobody|somebody|anybody|whoever|whichever|whatever|driven?|drives)\b`)

// Each table has a comment that says what it is for, and each column has one that says what it
// means. A person sees them in psql.
func TestTablesAndColumnsHaveComments(t *testing.T) {
	t.Parallel()
	type object struct{ Table, Column, Comment string } // of a table, if Column is empty
	rows, _ := devtest.Pool(t).Query(t.Context(), `
		SELECT c.relname::text AS table, coalesce(a.attname::text, '') AS column,
			coalesce(CASE WHEN a.attnum IS NULL THEN obj_description(c.oid, 'pg_class') ELSE col_description(c.oid, a.attnum) END, '') AS comment
		FROM pg_class c
		LEFT JOIN LATERAL (
			SELECT attname, attnum FROM pg_attribute WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped
			UNION ALL SELECT NULL, NULL
		) a ON true
		WHERE c.relnamespace = 'postroom'::regnamespace AND c.relkind = 'r'`) // CollectRows reports the error
	objects, err := pgx.CollectRows(rows, pgx.RowToStructByName[object])
	if err != nil || len(objects) < 200 {
		t.Fatalf("%d tables and columns were found, which cannot be all: %v", len(objects), err)
	}
	commented := make(map[string]bool)
	for _, o := range objects {
		commented[o.Table+"."+o.Column] = len(o.Comment) >= 10
		if m := vague.FindString(o.Comment); m != "" {
			t.Errorf("the comment on %s.%s says %q: name who acts", o.Table, o.Column, m)
		}
	}
	for _, o := range objects {
		switch {
		case commented[o.Table+"."+o.Column], slices.Contains(plainColumns, o.Column), commented[copies[o.Table]+"."+o.Column]:
		case o.Column == "":
			t.Errorf("table %s has no comment", o.Table)
		default:
			t.Errorf("column %s.%s has no comment", o.Table, o.Column)
		}
	}
}
