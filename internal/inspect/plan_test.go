package inspect_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/eventtype"
)

// tested are the statements that read growing tables, each with its arguments and the number of
// pages that it may read.
var tested = []struct {
	file, parameters, call string
	pages                  int
}{
	{"relay", "", "", 50},
	{"discarded_count", "", "", 600},
	{"running_replays", "", "", 50},
	{"running_republishes", "", "", 50},
	{"keys", "(text, text, text, text, int)", "'', '', '', '', 100", 2000},
	{"keys", "(text, text, text, text, int)", "'h2', '', 'h2', 'k4', 100", 2000},
	{"keys", "(text, text, text, text, int)", "'h1', 'running', 'h1', '', 100", 100_000}, // 10,000 keys, none of which is
	{"key", "(text, text)", "'h1', 'k7'", 50},
	{"handlers_with_keys", "", "", 100},
	{"used", "", "", 500},
	{"overdue_type", "(text)", "'h1'", 50},
	{"oldest_rows", "", "", 50},
	{"sweep", "", "", 50},
	{"log_entries", "(text, text)", "'', '15000'", 100},
	{"log_entries", "(text, text)", "'/shop', '15000'", 50},
	{"log_entries", "(text, text)", "'/none', 'none'", 50},
	{"caused_events", "(text)", "'cause'", 250}, // of 1,000
	{"caused_events", "(text)", "'none'", 20},
	{"of_event", "(text, text)", "'', '150'", 50},
	{"of_event_discarded", "(text, text)", "'', '150'", 50},
	{"holders", "(text)", "''", 150},
	{"page_due", pageParameters, "'h1', NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, NULL, 5000, 100", 800},
	{"page_due", pageParameters, "'h1', '{retrying}', NULL, NULL, NULL, NULL, NULL, now(), 7, NULL, 5000, 100", 20_000}, // 5,000 rows, none of which is
	{"page_due", pageParameters, "'h1', NULL, NULL, NULL, NULL, '2100-01-01', NULL, NULL, 0, NULL, 5000, 100", 20},
	{"page_waiting", pageParameters, "'h1', '{waiting}', NULL, NULL, NULL, NULL, NULL, NULL, 15000, 'k5', 5000, 100", 2000},
	{"page_dead", pageParameters, "'h1', NULL, NULL, NULL, NULL, NULL, NULL, now(), 9, NULL, 5000, 100", 800},
	{"page_given", "(bigint[], text, text[], text, text, text, timestamptz, timestamptz)", "'{7,8}', NULL, NULL, NULL, NULL, NULL, NULL, NULL", 30},
	{"of_key", "(text, int)", "'k7', 5001", 50},
	{"decisions", "(text[], text[], text[])", "'{/shop 150,/none 7}', '{h1}', '{derived}'", 150},
	{"steps", "(text[], text[])", "'{h1,h2}', '{/shop 150,/shop 151}'", 50},
	{"revisions", "(text)", "'150'", 50},
	{"replay_items", "(text, text)", "'', '150'", 50},
	{"event_republishes", "(bigint[])", "'{7}'", 100},
	{"sources", "(text)", "'150'", 100},
	{"audit", "(text, text, text, timestamptz, bigint, int)", "'', '', '', NULL, 9000000000, 101", 500},
	{"audit", "(text, text, text, timestamptz, bigint, int)", "'nobody', '', '', NULL, 9000000000, 101", 500},
	{"audit_event", "(text, text, text, text, timestamptz, bigint, int, text, bigint)", "'150', '', '', '', NULL, 9000000000, 101, '', 0", 1500}, // 300 actions on its replay
	{"audit_replay", "(bigint, text, text, text, timestamptz, bigint, int)", "7, '', '', '', NULL, 9000000000, 101", 500},
}

const pageParameters = "(text, text[], text, text, text, timestamptz, timestamptz, timestamptz, bigint, text, bigint, bigint)"

// readsAll matches a plan that reads all or nearly all of a growing table.
var readsAll = regexp.MustCompile(`(Seq|Bitmap Heap) Scan on (outbox|inbox|held|refused|archive|audit|replay_event|receipt|revision)\b`)

// No statement reads a whole table, however large the tables are. That holds without statistics, as
// after a restore, and with statistics.
func TestNoStatementReadsATable(t *testing.T) {
	t.Parallel()
	conn, err := devtest.Pool(t).Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Release)
	p := &plans{t, conn}
	p.fill()
	for _, then := range []string{"SELECT", "ANALYZE"} {
		p.do(then)
		for _, s := range tested {
			p.wantPages(s.file, s.parameters, s.call, s.pages)
		}
		// This statement counts held rows, up to 30,000 of each handler.
		p.wantPages("held_counts", "", "", 60_000)
	}
}

// If one handler has nearly all dead events, the statement that counts does not read them all to find
// that another handler has none.
func TestDeadEventsOfOneHandlerOnly(t *testing.T) {
	t.Parallel()
	conn, err := devtest.Pool(t).Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Release)
	p := &plans{t, conn}
	p.do("INSERT INTO postroom.inbox (handler, dedupe_key) SELECT 'h1', 'd' || n FROM generate_series(1, 60000) n")
	p.do(`INSERT INTO postroom.held (handler, dedupe_key, dead_at, class, logged_at, source, event_id, type, subject, content_type, data)
		SELECT 'h1', 'd' || n, now() - (n * 7919 % 60000) * interval '1 s', 'x', now(), '/held', n::text, 'a', 'a', 'text/plain', repeat('x', 300)::bytea FROM generate_series(1, 60000) n`)
	p.do("ANALYZE")
	p.wantPages("held_counts", "", "", 25_000)
}

// plans are the plans of one connection.
type plans struct {
	*testing.T

	conn *pgxpool.Conn
}

func (p *plans) do(sql string) {
	p.Helper()
	if _, err := p.conn.Exec(p.Context(), sql); err != nil {
		p.Fatalf("%.200s: %v", sql, err)
	}
}

func (p *plans) text(file string) string {
	p.Helper()
	if file == "used" {
		return eventtype.UsedSQL
	}
	name := file + ".sql"
	return devtest.SQL(p, "sql/"+name, "../held/sql/"+name, "../snapshot/sql/"+name)
}

// fill adds many rows to the tables.
func (p *plans) fill() {
	p.Helper()
	p.do(`ALTER TABLE postroom.outbox SET (autovacuum_enabled = off); ALTER TABLE postroom.inbox SET (autovacuum_enabled = off);
		ALTER TABLE postroom.held SET (autovacuum_enabled = off)`)
	p.do(`INSERT INTO postroom.outbox (source, event_id, digest, type, subject, causation_id, data)
		SELECT CASE WHEN n % 1000 = 0 THEN '/other' ELSE '/shop' END, n::text, decode(md5(n::text), 'hex'), 'a.b', 'a.b', CASE WHEN n <= 1000 THEN 'cause' END, repeat('x', 300)::bytea
		FROM generate_series(1, 30000) n`)
	p.do(`INSERT INTO postroom.inbox (handler, dedupe_key) SELECT 'h' || n % 4, '/shop ' || n FROM generate_series(1, 40000) n`)
	p.do(`INSERT INTO postroom.inbox (handler, dedupe_key) SELECT 'h' || h, '/held ' || n FROM generate_series(1, 3) h, generate_series(1, 20000) n`)
	p.do(`INSERT INTO postroom.held (handler, dedupe_key, chain, pos, next_at, dead_at, class, logged_at, source, event_id, type, subject, key, content_type, data)
		SELECT 'h' || h, '/held ' || n, 'k' || n % 12000, n, CASE WHEN n <= 12000 AND n % 2 = 0 THEN now() END,
		       CASE WHEN n <= 12000 AND n % 2 = 1 THEN now() END, 'x', now(), '/held', n::text, 'a.b', 'a.b', 'k' || n % 12000, 'text/plain', repeat('x', 300)::bytea
		FROM generate_series(1, 3) h, generate_series(1, 20000) n`)
	p.do(`INSERT INTO postroom.held (handler, pos, chain, next_at, logged_at, source, event_id, type, subject, content_type, data)
		SELECT 'outbox', n, 'k' || n, now(), now(), '/shop', n::text, 'a.b', 'a.b', 'text/plain', '' FROM generate_series(1, 20000) n`)
	p.do(`INSERT INTO postroom.archive (id, audit, handler, dedupe_key, dead_at, held_at, attempts, solitary, class, revision, replays, logged_at, source,
		                                event_id, type, subject, content_type, data)
		SELECT n, 1, 'h1', NULL, now(), now(), 1, false, 'x', 0, 0, now(), '/held', n::text, 'a.b', 'a.b', 'text/plain', '' FROM generate_series(1, 20000) n`)
	p.do(`INSERT INTO postroom.receipt (handler, dedupe_key, step, revision, key) SELECT handler, dedupe_key, 'charge', 0, 'k' FROM postroom.inbox WHERE handler = 'h1' LIMIT 20000`)
	p.do(`INSERT INTO postroom.audit (actor, action, events, event_id, replay) SELECT 'ann', 'discard', 1, n::text, n % 100 FROM generate_series(1, 30000) n`)
	p.do(`INSERT INTO postroom.revision (held, revision, audit, event_id, content_type, data) SELECT n, 0, 1, n::text, 'text/plain', '' FROM generate_series(1, 20000) n`)
	p.do(`INSERT INTO postroom.replay (actor, filter, attempts, canary, stop_at, as_new, phase, items, state, ended_at)
		SELECT 'ann', '{}', 1, 0, 1, false, 'rest', 1, 'done', now() FROM generate_series(1, 1000)`)
	p.do(`INSERT INTO postroom.republish (actor, kind, lo, hi, events, rate, digest, passed, state, ended_at)
		SELECT 'ann', 'range', 1, 2, 1, 1000, n::text, 2, 'done', now() FROM generate_series(1, 20000) n`)
	p.do(`INSERT INTO postroom.replay_event (replay, n, through, held, handler, source, event_id, dead_at)
		SELECT 1 + n / 100, n, n, n, 'h1', '/held', n::text, now() FROM generate_series(1, 20000) n`)
}

var pagesRead = regexp.MustCompile(`Buffers: shared hit=(\d+)(?: read=(\d+))?`)

// wantPages runs a statement as the inspector does. The statement may read at most that many pages.
func (p *plans) wantPages(file, parameters, call string, most int) {
	p.Helper()
	p.do("BEGIN READ ONLY")
	p.do(p.text("plan"))
	p.do(fmt.Sprintf("PREPARE %s %s AS %s", file, parameters, p.text(file)))
	if call != "" {
		call = "(" + call + ")"
	}
	rows, _ := p.conn.Query(p.Context(), fmt.Sprintf("EXPLAIN (ANALYZE, BUFFERS) EXECUTE %s%s", file, call), pgx.QueryExecModeSimpleProtocol)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		p.Fatalf("%s%s: %v", file, call, err)
	}
	p.do("ROLLBACK")
	p.do("DEALLOCATE " + file)
	plan, pages := strings.Join(lines, "\n"), 0
	for _, n := range pagesRead.FindStringSubmatch(plan + "\nBuffers: shared hit=0")[1:] {
		more, _ := strconv.Atoi(n)
		pages += more
	}
	if pages > most {
		p.Errorf("%s%s reads %d pages, want %d at most:\n%s", file, call, pages, most, plan)
	}
	if found := readsAll.FindString(plan); found != "" {
		p.Errorf("%s%s: %s:\n%s", file, call, found, plan)
	}
}
