package deadletter_test

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/internal/devtest"
)

// No statement reads a whole table, whether its plan is made for the values of a filter or was made
// while all tables were empty.
func TestPlans(t *testing.T) {
	t.Parallel()
	conn, err := devtest.Pool(t).Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Release)
	p := &plans{t, conn}
	for _, s := range kept {
		p.prepare(s)
	}
	p.fill()
	for _, then := range []string{"SELECT", "ANALYZE"} { // and with plans made then
		p.do(then)
		for _, s := range kept {
			p.want(s.file, s.pages, strings.ReplaceAll(p.text("plan"), "$1", "NULL"), "EXECUTE "+s.file+"("+s.call+")")
		}
	}
	looking := devtest.SQL(t, "../internal/snapshot/sql/plan.sql")
	for _, s := range filtered {
		sql, before := p.text(s.file), "SELECT"
		if s.looks {
			before = looking
		}
		for _, f := range filters {
			if f.name == "a cause" && strings.HasSuffix(s.file, "_discarded") {
				continue // the archive has no index for it, and is read
			}
			most := s.pages
			if f.few {
				most = min(most, fewPages)
			}
			p.want(s.file+" "+f.name, most, before, sql, append(append([]any{pgx.QueryExecModeExec}, f.args...), s.more...)...)
		}
	}
	for _, s := range bounded {
		p.want(s.file+" "+s.name, s.pages, looking, p.text(s.file), append([]any{pgx.QueryExecModeExec}, s.args...)...)
	}
}

// bounded are statements that read a limited number of rows, with the plans that they use.
var bounded = []struct {
	file, name string
	args       []any
	pages      int
}{
	{"list", "nothing of 5000", append(filter(map[int]any{2: "none"}), nil, int64(0), 5000, 51), 700},
	{"count", "nothing of 5000", append(filter(map[int]any{2: "none"}), 5000), 700},
	{"count", "all", append(filter(nil), 1_000_000), 7500}, // before a vacuum
	{"groups_found", "nothing of 5000", append(filter(map[int]any{2: "none"}), 5000, false), 700},
	{"groups_found", "none without a cause", append(filter(nil), 5000, true), 10},
	{"groups", "all", []any{nil, nil, nil, nil, nil, 5000, 5000, 100}, 15_000},
	{"groups", "a cause", []any{nil, nil, []byte("0123456789abcdef"), nil, nil, 5000, 5000, 100}, 4000},
}

// kept are statements whose plans a connection keeps.
var kept = []struct {
	file, parameters, call string
	pages                  int // the most pages that it may read
}{
	{"show", "(bigint)", "100", 50},
	{"steps", "(text, text)", "'h1', '/shop e1'", 50},
	{"revisions", "(bigint)", "100", 50},
	{"history", "(text, text, text)", "'/shop', 'e1', 'h1'", 100},
	{"replays", "(bigint, int, bigint, bool)", "1, 1, NULL, false", 50},
	{"replay_lock", "(bigint)", "1", 50},
	{"replay_outcomes", "(bigint)", "1", 7500},
	{"replay_stuck", "(bigint)", "1", 5000},
	{"replay_unclaimed", "(bigint)", "1", 5000},
	{"replay_unchain", "(bigint, bigint[])", "1, '{1,2,3}'", 100},
	{"replay_next", "(bigint, int)", "1, 10", 500},
	{"replay_release", "(bigint, bigint[], int, bool)", "1, '{6001,6002,6003}', 1, false", 500},
	{"replay_take_back", "(bigint, bigint[])", "1, '{5001,5002,5003}'", 500},
	{"keys_lock", "(bigint[])", "'{1,2,3}'", 100},
	{"relay_lock", "(bigint[])", "'{1,2,3}'", 100},
	{"dead_lock", "(bigint[])", "'{1,2,3}'", 100},
	{"sizes", "(bigint[])", "'{1,2,3}'", 100},
	{"discard_lock", "(bigint[])", "'{1,2,3}'", 100},
	{"discard", "(bigint[], bigint)", "'{1,2,3}', 1", 500},
	{"wake", "(text[], text[])", "'{h1,h2}', '{k1,k2}'", 200},
	{"reopen_lock", "(bigint[])", "'{100001,100002}'", 100},
	{"reopen", "(bigint[])", "'{100001,100002}'", 500},
	{"lock_dead", "(bigint)", "3", 50},
	{"resolve_happened", "(text, text, text, bytea)", "'h1', '/shop e1', 'a', ''", 50},
	{"resolve_not_happened", "(text, text, text)", "'h1', '/shop e1', 'a'", 50},
	{"purge", "(bigint[], timestamptz)", "'{100001,100002}', 'infinity'", 200},
}

const fewPages = 50

// filters are filters that operators use.
var filters = []struct {
	name string
	args []any
	few  bool // events match
}{
	{"all", filter(nil), false},
	{"a handler", filter(map[int]any{1: "h1"}), false},
	{"a cause", filter(map[int]any{5: []byte("0123456789abcdef")}), true},
	{"an event", filter(map[int]any{7: "e1"}), true},
	{"ids", filter(map[int]any{0: []int64{1, 2, 3}}), true},
}

// filter are the parameters of a filter.
func filter(set map[int]any) []any {
	args := []any{
		[]int64(nil), (*string)(nil), (*string)(nil), (*string)(nil), (*string)(nil), []byte(nil), (*string)(nil), (*string)(nil),
		(*string)(nil), (*string)(nil), (*string)(nil),
	}
	for i, v := range set {
		args[i] = v
	}
	return args
}

// filtered are statements that are planned for the values of a filter.
var filtered = []struct {
	file  string
	more  []any
	pages int
	looks bool // in a transaction that only reads
}{
	{"list", []any{(*string)(nil), int64(0), 5000, 51}, 200, true},
	{"count", []any{1000}, 1100, true},
	{"groups_found", []any{1000, false}, 1200, true},
	{"find", []any{5000}, 1500, false},
	{"export", nil, 1500, false},
	{"preview", []any{(*int)(nil)}, 50_000, false},
	{"dry_run_choose", []any{(*int)(nil), 5}, 1500, false},
	{"replay_items", []any{int64(12), (*int)(nil)}, 100_000, false},
	{"list_discarded", []any{(*string)(nil), int64(0), 5000, 51}, 3000, true},
	{"count_discarded", []any{1000}, 1100, true},
	{"find_discarded", []any{50}, 300, false},
}

type plans struct {
	*testing.T

	conn *pgxpool.Conn
}

func (p *plans) do(sql string, args ...any) {
	p.Helper()
	if _, err := p.conn.Exec(p.Context(), sql, args...); err != nil {
		p.Fatalf("%s: %v", sql, err)
	}
}

func (p *plans) text(file string) string {
	p.Helper()
	name := file + ".sql"
	return devtest.SQL(p, "sql/"+name, "../internal/held/sql/"+name, "../internal/change/sql/"+name)
}

// prepare makes the connection keep the plan of a statement, while all tables are empty.
func (p *plans) prepare(s struct {
	file, parameters, call string
	pages                  int
},
) {
	p.Helper()
	p.do(fmt.Sprintf("PREPARE %s %s AS %s", s.file, s.parameters, p.text(s.file)))
	for range 8 {
		p.do("BEGIN")
		p.do(fmt.Sprintf("EXECUTE %s(%s)", s.file, s.call))
		p.do("ROLLBACK")
	}
}

// fill makes 30,000 events in the log and 60,000 in the inbox. 50,000 of them are held, and 10,000
// of these are dead. 5,000 more were discarded. One of the replays has 7,500 events.
func (p *plans) fill() {
	p.Helper()
	p.do(`INSERT INTO postroom.inbox (handler, dedupe_key) SELECT 'h' || i % 3, '/shop e' || i FROM generate_series(1, 60000) i`)
	p.do(`INSERT INTO postroom.outbox (source, event_id, digest, type, subject, content_type, data)
		SELECT '/shop', 'o' || i, decode(md5(i::text), 'hex'), 'order.placed', 'order.placed', 'text/plain', '1' FROM generate_series(1, 30000) i`)
	p.do(`INSERT INTO postroom.held (id, handler, dedupe_key, chain, pos, dead_at, next_at, attempts, class, cause, failures, logged_at,
			source, event_id, type, subject, key, content_type, data, replay)
		OVERRIDING SYSTEM VALUE
		SELECT i, 'h' || i % 3, '/shop e' || i, CASE WHEN i % 10 = 0 THEN 'k' || i END, i, CASE WHEN i <= 10000 THEN now() - i * interval '1 s' END,
			CASE WHEN i > 10000 THEN now() END, 5, 'error', decode(md5((i % 5)::text), 'hex'), '[{"text": "declined"}]', now(),
			'/shop', 'e' || i, 'order.placed', 'order.placed', 'k' || i, 'text/plain', convert_to(repeat('x', 200), 'UTF8'),
			CASE WHEN i <= 7500 THEN 1 END
		FROM generate_series(1, 50000) i`)
	p.do(`INSERT INTO postroom.archive (id, discarded_at, audit, handler, dedupe_key, dead_at, held_at, attempts, solitary, class, revision,
			replays, logged_at, source, event_id, type, subject, content_type, data)
		SELECT i, now() - i * interval '1 s', i - 100000, 'h' || (i - 50000) % 3, '/shop e' || i - 50000, now(), now(), 5, false, 'error', 0, 0, now(), '/shop', 'e' || i,
			'order.placed', 'order.placed', 'text/plain', '1'
		FROM generate_series(100001, 105000) i`)
	p.do(`INSERT INTO postroom.audit (actor, action, events, source, event_id) SELECT 'ann', 'discard', 1, '/shop', 'e' || 100000 + i FROM generate_series(1, 20000) i`)
	p.do(`INSERT INTO postroom.replay (actor, filter, attempts, canary, stop_at, as_new, phase, items) SELECT 'ann', '{}', 1, 0, 1, false, 'rest', 7500 FROM generate_series(1, 12) i`)
	p.do(`INSERT INTO postroom.replay_event (replay, n, through, held, handler, source, event_id, dead_at, released_at, outcome, ended_at)
		SELECT CASE WHEN i <= 7500 THEN 1 ELSE 2 + i % 10 END, i, i, i, 'h' || i % 3, '/shop', 'e' || i, now(), CASE WHEN i <= 5500 THEN now() END,
			CASE WHEN i <= 5000 THEN 'failed' END, CASE WHEN i <= 5000 THEN now() END
		FROM generate_series(1, 10000) i`)
	p.do(`UPDATE postroom.held SET dead_at = NULL, next_at = now() WHERE id BETWEEN 5001 AND 5400`)
	p.do(`INSERT INTO postroom.receipt (handler, dedupe_key, step, revision, key) SELECT handler, dedupe_key, 'a', 0, 'k' FROM postroom.inbox LIMIT 20000`)
	p.do(`INSERT INTO postroom.revision (held, revision, audit, event_id, content_type, data)
		SELECT i, 0, i, 'e' || i, 'text/plain', '1' FROM generate_series(1, 20000) i`)
}

var (
	pagesRead = regexp.MustCompile(`Buffers: shared hit=(\d+)(?: read=(\d+))?`)
	wholeRead = regexp.MustCompile(`Seq Scan on (outbox|inbox|held|archive|replay_event|audit|receipt|revision)\b.*`)
)

// want runs a statement, after another in its transaction. The statement may read at most that many
// pages, and no large table completely.
func (p *plans) want(what string, most int, before, sql string, args ...any) {
	p.Helper()
	var lines []string
	err := pgx.BeginFunc(p.Context(), p.conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(p.Context(), before); err != nil {
			return err
		}
		rows, _ := tx.Query(p.Context(), "EXPLAIN (ANALYZE, BUFFERS) "+sql, args...) // CollectRows reports the error
		var err error
		if lines, err = pgx.CollectRows(rows, pgx.RowTo[string]); err == nil {
			err = context.Canceled // undo it
		}
		return err
	})
	if lines == nil {
		p.Fatalf("%s: %v", what, err)
	}
	plan, _, _ := strings.Cut(strings.Join(lines, "\n"), "Planning:")
	pages := 0
	for _, found := range pagesRead.FindAllStringSubmatch(plan, -1) { // the first number does not include the pages of changed rows
		hit, _ := strconv.Atoi(found[1])
		read, _ := strconv.Atoi(found[2])
		pages = max(pages, hit+read)
	}
	if whole := wholeRead.FindString(plan); whole != "" {
		p.Errorf("%s: %s\n%s", what, whole, plan)
	} else if pages > most {
		p.Errorf("%s reads %d pages, want %d at most:\n%s", what, pages, most, plan)
	}
	if testing.Verbose() {
		p.Logf("%s: %d pages of %d", what, pages, most)
	}
}
