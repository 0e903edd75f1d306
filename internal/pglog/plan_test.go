package pglog_test

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/pglog"
)

// The hot statements use the indexes that their headers name, even with a generic plan. All rows
// are of one transaction, as after a bulk load. So an index on transaction ids looks useless to the
// planner.
func TestStatementsUseTheirIndexes(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	mustExec(t, pool, `INSERT INTO postroom.outbox (digest, source, event_id, type, subject, data)
		SELECT decode(repeat('00', 16), 'hex'), '/shop', n::text, 'a.b', 'a.b', '' FROM generate_series(1, 20000) n`)
	mustExec(t, pool, `INSERT INTO postroom.held (handler, pos, next_at, logged_at, source, event_id, type, subject, content_type, data)
		SELECT 'outbox', n, now() + interval '1 h', now(), '/shop', n::text, 'a.b', 'a.b', 'text/plain', '' FROM generate_series(1, 5000) n`)
	mustExec(t, pool, "ANALYZE postroom.outbox; ANALYZE postroom.held")
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if _, err := conn.Exec(t.Context(), "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET enable_sort = off"); err != nil {
		t.Fatal(err)
	}

	tests := []struct {
		file, arguments string
		index           map[string]int // how often each is used
	}{
		{"pass", "100, 0, '10:20:12,13', 1000, '{7}', '-infinity'", map[string]int{"outbox_xid_seq": 2, "outbox_pkey": 3, "held_due": 2}},
		{"late_by_xid", "100, 0, '10:20:12,13', '90:90:', 20, 90, 0, 0, 1000", map[string]int{"outbox_xid_seq": 2, "outbox_pkey": 0}},
		{"late_by_seq", "10, 20, '10:20:12,13', '90:90:'", map[string]int{"outbox_xid_seq": 0, "outbox_pkey": 1}},
		{"search_bounds", "100, 0, '10:20:12,13', NULL", map[string]int{"outbox_pkey": 1}},
		{"pending", "'{5}', '{9}'", map[string]int{"outbox_pkey": 1}},
		{"prune", "1, 0, '1 h', now()", map[string]int{"outbox_pkey": 4, "outbox_xid_seq": 0}},
		{"sizes", "", map[string]int{"outbox_pkey": 3}},
	}
	header := regexp.MustCompile(`(?m)^-- Index +(.*)$`)
	for _, tt := range tests {
		t.Run(tt.file, func(t *testing.T) {
			text := strings.TrimSuffix(strings.TrimSpace(pglog.SQL(tt.file)), ";")
			if _, err := conn.Exec(t.Context(), "PREPARE "+tt.file+" AS "+text); err != nil {
				t.Fatal(err)
			}
			rows, _ := conn.Query(t.Context(), "EXPLAIN EXECUTE "+strings.TrimSuffix(tt.file+"("+tt.arguments+")", "()"), pgx.QueryExecModeSimpleProtocol)
			lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if err != nil {
				t.Fatal(err)
			}
			plan := strings.Join(lines, "\n")
			for index, want := range tt.index {
				if got := strings.Count(plan, " "+index+" "); got != want {
					t.Errorf("the plan uses %s %d times, want %d:\n%s", index, got, want, plan)
				}
				if want == 0 {
					continue
				}
				if named := header.FindStringSubmatch(text); named == nil || !strings.Contains(named[1], index) {
					t.Errorf("the header of %s.sql does not name %s", tt.file, index)
				}
			}
			if strings.Contains(plan, "Seq Scan on outbox ") {
				t.Errorf("the plan reads the whole log:\n%s", plan)
			}
		})
	}
}

// The plan of a pass is made once, perhaps while all tables are empty, and has to be right
// later. Held events cost neither a pass nor a recording anything.
func TestPlansFromEmptyTablesStayFast(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	run := func(sql string) string {
		t.Helper()
		rows, _ := conn.Query(t.Context(), sql, pgx.QueryExecModeSimpleProtocol)
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(lines, "\n")
	}
	do := func(sql string) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	text := func(file string) string {
		t.Helper()
		return devtest.SQL(t, "sql/"+file+".sql")
	}
	executed := map[string]string{
		"pass":      "pass(100, 0, '10:20:12,13', 1000, '{7}', '-infinity')",
		"held_keys": "held_keys('', 10000)",
		"unblock":   "unblock(0, '{k,other}', '{2}', '{1 h}')",
	}
	do(text("connect"))
	for name, parameters := range map[string]string{"pass": "", "held_keys": "", "unblock": "(bigint, text[], bigint[], interval[])"} {
		do("PREPARE " + name + parameters + " AS " + text(name))
	}
	setUp := func(name string) { // prepares the connection like the one on which the statement runs
		t.Helper()
		do(text("connect"))
		if name != "unblock" {
			do(text("reader"))
		}
	}
	for name, call := range executed {
		setUp(name)
		run("EXPLAIN EXECUTE " + call)
	}

	mustExec(t, pool, `INSERT INTO postroom.held (handler, pos, chain, next_at, dead_at, class, logged_at, source, event_id, type, subject, content_type, data)
		SELECT 'outbox', n, CASE WHEN n = 1 OR n % 1000 = 0 THEN 'k' WHEN n <= 20000 THEN 'other' END, CASE WHEN n = 1 THEN now() END,
			CASE WHEN n > 20000 THEN now() END, 'x', now(), '/shop', n::text, 'a.b', 'a.b', 'text/plain', '' FROM generate_series(1, 40000) n`)
	pages := regexp.MustCompile(`Buffers: shared hit=(\d+)(?: read=(\d+))?`)
	for name, call := range executed {
		setUp(name)
		plan := run("EXPLAIN (ANALYZE, BUFFERS) EXECUTE " + call)
		if found := pages.FindStringSubmatch(plan); found == nil || len(found[1]) > 2 || len(found[2]) > 2 {
			t.Errorf("%s reads 100 pages or more:\n%s", name, plan)
		}
		if name == "pass" && (strings.Count(plan, " outbox_xid_seq ") != 2 || strings.Count(plan, " outbox_pkey ") != 3 || !strings.Contains(plan, "$1")) {
			t.Errorf("pass is not planned once and for all, by the indexes that are made for it:\n%s", plan)
		}
	}
}

// If much was committed above high since the previous pass, a pass only skips entries of an
// index, and reads no row of it. That holds whether the plan was made while the log was empty
// or later, with or without statistics. Rows of an open transaction cost nothing.
func TestPassReadsNoRowsAboveHighForLateOnes(t *testing.T) {
	t.Parallel()
	const published, since, open = 2_000, 30_000, 20_000
	for _, tt := range []struct {
		name              string
		planned, analysed bool // planned before the log was filled; analysed after that
	}{
		{"planned while all was empty", true, false},
		{"planned without statistics", false, false},
		{"planned with statistics", false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pool := devtest.Pool(t)
			mustExec(t, pool, "ALTER TABLE postroom.outbox SET (autovacuum_enabled = false)")
			conn, err := pool.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Release()
			do := func(sql string) {
				t.Helper()
				if _, err := conn.Exec(t.Context(), sql); err != nil {
					t.Fatal(err)
				}
			}
			prepare := func() {
				do(pglog.SQL("connect") + pglog.SQL("reader"))
				for _, name := range []string{"pass", "late_by_xid"} {
					do("PREPARE " + name + " AS " + pglog.SQL(name))
				}
			}
			if tt.planned {
				prepare()
				do("EXPLAIN EXECUTE pass(0, 0, '10:20:12,13', 1, '{}', '-infinity')")
				do("EXPLAIN EXECUTE late_by_xid(0, 0, '10:20:12,13', '90:90:', 20, 90, 0, 0, 1000)")
			}
			fill := `INSERT INTO postroom.outbox (digest, source, event_id, type, subject, data)
				SELECT decode(repeat('00', 16), 'hex'), '/shop', gen_random_uuid()::text, 'a.b', 'a.b', '' FROM generate_series(1, %d) n`
			mustExec(t, pool, fmt.Sprintf(fill, published-1))
			held, err := pool.Begin(t.Context()) // its seqs are not above high, and it stays open throughout
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = held.Rollback(t.Context()) }()
			if _, err := held.Exec(t.Context(), fmt.Sprintf(fill, open)); err != nil {
				t.Fatal(err)
			}
			late := openWith(t, pool, "late")
			write(t, pool, "last")
			var high, from int64
			var snap string
			if err := pool.QueryRow(t.Context(), "SELECT max(seq), pg_current_snapshot()::text, pg_snapshot_xmax(pg_current_snapshot())::text::bigint FROM postroom.outbox").Scan(&high, &snap, &from); err != nil {
				t.Fatal(err)
			}
			commit(t, late)
			mustExec(t, pool, fmt.Sprintf("DO $$ BEGIN FOR i IN 1..%d LOOP %s; COMMIT; END LOOP; END $$", since/100, fmt.Sprintf(fill, 100)))
			if tt.analysed {
				mustExec(t, pool, "ANALYZE postroom.outbox")
			}
			if !tt.planned {
				prepare()
			}
			var now string
			var until int64
			if err := pool.QueryRow(t.Context(), "SELECT pg_current_snapshot()::text, pg_snapshot_xmax(pg_current_snapshot())::text::bigint").Scan(&now, &until); err != nil {
				t.Fatal(err)
			}
			for _, call := range []string{
				fmt.Sprintf("pass(%d, 0, '%s', 1, '{}', '-infinity')", high, snap),
				fmt.Sprintf("late_by_xid(%d, 0, '%s', '%s', %d, %d, 0, 0, 1000)", high, snap, now, from, until),
			} {
				rows, _ := conn.Query(t.Context(), "EXPLAIN (ANALYZE, BUFFERS) EXECUTE "+call, pgx.QueryExecModeSimpleProtocol)
				lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
				if err != nil {
					t.Fatal(err)
				}
				plan := strings.Join(lines, "\n")
				// A page of the index has about 300 entries. If the pass read 30,000 rows, it would
				// read 30,000 pages.
				if n := pagesOf(plan); n == 0 || n > 400 {
					t.Errorf("%s reads %d pages:\n%s", call, n, plan)
				}
			}
		})
	}
}

// If a load commits late, a pass reads a page of its rows, and not all of them.
func TestAPassReadsAPageOfLateRows(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }() // no effect after the commit
	if _, err := tx.Exec(t.Context(), `INSERT INTO postroom.outbox (digest, source, event_id, type, subject, data)
		SELECT decode(repeat('00', 16), 'hex'), '/shop', 'e' || n, 'a.b', 'a.b', convert_to(repeat('x', 1000), 'UTF8') FROM generate_series(1, 5000) n`); err != nil {
		t.Fatal(err)
	}
	write(t, pool, "last")
	var high int64
	var snap string
	if err := pool.QueryRow(t.Context(), "SELECT max(seq), pg_current_snapshot()::text FROM postroom.outbox").Scan(&high, &snap); err != nil {
		t.Fatal(err)
	}
	commit(t, tx)
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if _, err := conn.Exec(t.Context(), pglog.SQL("connect")+pglog.SQL("reader")+"PREPARE pass AS "+pglog.SQL("pass")); err != nil {
		t.Fatal(err)
	}
	for name, from := range map[string]string{"a transaction that was open": snap, "a later transaction": "3:3:"} {
		rows, _ := conn.Query(t.Context(), fmt.Sprintf("EXPLAIN (ANALYZE, BUFFERS) EXECUTE pass(%d, 0, '%s', 10, '{}', '-infinity')", high, from), pgx.QueryExecModeSimpleProtocol)
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		plan := strings.Join(lines, "\n")
		if n := pagesOf(plan); n == 0 || n > 100 { // the rows have 700 pages
			t.Errorf("%s: a pass reads %d pages:\n%s", name, n, plan)
		}
	}
}

// While a foreign transaction is open, a pass over all due events reads those that were published since
// then. The passes after it do not.
func TestAPassReadsFewPublishedDueEvents(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	foreign, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = foreign.Rollback(context.WithoutCancel(t.Context())) }() // its end is the test's
	mustExec(t, pool, `INSERT INTO postroom.held (handler, pos, next_at, logged_at, source, event_id, type, subject, content_type, data)
		SELECT 'outbox', n, now() - interval '1 h', now(), '/shop', n::text, 'a.b', 'a.b', 'text/plain', '' FROM generate_series(1, 20000) n`)
	if _, err := foreign.Exec(t.Context(), "SELECT FROM postroom.held LIMIT 1"); err != nil { // from now on it has a snapshot
		t.Fatal(err)
	}
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if _, err := conn.Exec(t.Context(), pglog.SQL("connect")+pglog.SQL("reader")+"PREPARE pass AS "+pglog.SQL("pass")); err != nil {
		t.Fatal(err)
	}
	pass := func(since string) (pages int, from *string) {
		t.Helper()
		call := "EXECUTE pass(0, 0, '10:10:', 1000, '{}', '" + since + "')"
		rows, _ := conn.Query(t.Context(), "EXPLAIN (ANALYZE, BUFFERS) "+call, pgx.QueryExecModeSimpleProtocol)
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		rows, _ = conn.Query(t.Context(), call, pgx.QueryExecModeSimpleProtocol)
		if !rows.Next() {
			t.Fatal(rows.Err())
		}
		if text := rows.RawValues()[4]; text != nil {
			from = new(string(text))
		}
		rows.Close()
		return pagesOf(strings.Join(lines, "\n")), from
	}
	if _, from := pass("-infinity"); from != nil {
		t.Errorf("an event that has been due for an hour waits, and the next pass may look from %s on", *from)
	}
	mustExec(t, pool, "DELETE FROM postroom.held")
	whole, from := pass("-infinity")
	if whole < 200 || from == nil {
		t.Fatalf("inconclusive: a pass over all due events reads %d pages, and returns %v", whole, from)
	}
	if n, _ := pass(*from); n == 0 || n > 50 {
		t.Errorf("a later pass reads %d pages, and one over all due events %d", n, whole)
	}
}

// pagesOf returns how many pages a plan with BUFFERS says that it read.
func pagesOf(plan string) (n int) {
	found := regexp.MustCompile(`Buffers: shared hit=(\d+)(?: read=(\d+))?`).FindStringSubmatch(plan)
	if found == nil {
		return 0
	}
	for _, text := range found[1:] {
		pages, _ := strconv.Atoi(text) // an empty text gives 0
		n += pages
	}
	return n
}
