package doctor_test

import (
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/internal/devtest"
)

// parameters are the types and values of the statements that have any.
var parameters = map[string][2]string{
	"settings":        {"(text[])", "('{fsync}')"},
	"role_settings":   {"(text[])", "('{fsync}')"},
	"old_dead":        {"(interval)", "('30 days')"},
	"vacuum_blockers": {"(interval)", "('1 h')"},
	"producer_rights": {"(text)", "('postgres')"},
	"lacking":         {"(text, text[], timestamptz[])", "('h1', '{x" + strings.Repeat(",x", 999) + "}', '{now" + strings.Repeat(",now", 999) + "}')"},
}

// most is how many pages a statement may read if it uses one of the large tables. All other
// statements read few pages.
var most = map[string]int{
	"published_events": 16_000, // looks 2,000 events up in two indexes
	"unknown_handlers": 8000,   // counts 10,000 held events in each of three states, of a handler that no process runs
	"old_dead":         12_000, // counts 10,000
	"lacking":          5000,   // looks 1,000 keys up
}

// No statement reads a large table completely, with plans that are made before or after the server
// knows the size of the table.
func TestStatementsReadLittle(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	for _, sql := range []string{
		`INSERT INTO postroom.outbox (digest, source, event_id, type, subject, data)
			SELECT decode(repeat('00', 16), 'hex'), '/shop', n::text, 'a.b', 'a.b', decode(repeat('00', 100), 'hex') FROM generate_series(1, 40000) n`,
		"UPDATE postroom.relay SET high = 40000, snap = pg_current_snapshot()",
		"INSERT INTO postroom.inbox (handler, dedupe_key) SELECT 'h' || h, n::text FROM generate_series(1, 3) h, generate_series(1, 40000) n",
		`INSERT INTO postroom.held (handler, dedupe_key, next_at, dead_at, class, logged_at, source, event_id, type, subject, content_type, data)
			SELECT 'h' || h, n::text, CASE WHEN n % 2 = 0 THEN now() - interval '1 h' END, CASE WHEN n % 2 = 1 THEN now() - interval '40 days' END, 'x', now(),
				'/shop', n::text, 'a.b', 'a.b', 'text/plain', decode(repeat('00', 500), 'hex') FROM generate_series(1, 3) h, generate_series(1, 20000) n`,
		"INSERT INTO postroom.node (id, name, handlers, dedupe_windows, max_event_ages, longest_window) VALUES (gen_random_uuid(), 'p', '{h2,h3}', '{30 d,30 d}', '{29 d,29 d}', '30 d')",
	} {
		exec(t, pool, sql)
	}
	files, err := filepath.Glob("sql/*.sql")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d statements found: %v", len(files), err)
	}
	for _, then := range []string{"SELECT", "ANALYZE"} {
		exec(t, pool, then)
		for _, file := range files {
			name := strings.TrimSuffix(filepath.Base(file), ".sql")
			plan, pages := explain(t, name)(pool.Begin(t.Context()))
			limit := most[name]
			if limit == 0 {
				limit = 1000 // mostly pages of the catalog
			}
			if pages > limit {
				t.Errorf("%s reads %d pages, want %d at most:\n%s", name, pages, limit, plan)
			}
			if scan := regexp.MustCompile(`Seq Scan on (outbox|inbox|held|archive|job|receipt)\b`).FindString(plan); scan != "" {
				t.Errorf("%s: %s:\n%s", name, scan, plan)
			}
			if name == "published_events" && !strings.Contains(plan, "Index Scan Backward using outbox_pkey") {
				t.Errorf("published does not begin at the end of the log:\n%s", plan)
			}
		}
	}
}

var pagesRead = regexp.MustCompile(`Buffers: shared hit=(\d+)(?: read=(\d+))?`)

// explain runs a statement in a transaction, as the doctor does.
func explain(t *testing.T, name string) func(tx pgx.Tx, err error) (plan string, pages int) {
	return func(tx pgx.Tx, err error) (string, int) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback(t.Context()) }()
		text := func(name string) string { return devtest.SQL(t, "sql/"+name+".sql") }
		types := parameters[name]
		for _, sql := range []string{text("begin"), "PREPARE looked" + types[0] + " AS " + text(name)} {
			if _, err := tx.Exec(t.Context(), sql); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		rows, _ := tx.Query(t.Context(), "EXPLAIN (ANALYZE, BUFFERS) EXECUTE looked"+types[1], pgx.QueryExecModeSimpleProtocol)
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, err := tx.Exec(t.Context(), "DEALLOCATE looked"); err != nil {
			t.Fatal(err)
		}
		plan, pages := strings.Join(lines, "\n"), 0
		if found := pagesRead.FindStringSubmatch(plan); found != nil {
			for _, n := range found[1:] {
				more, _ := strconv.Atoi(n)
				pages += more
			}
		}
		return plan, pages
	}
}
