package inbox_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/internal/devtest"
)

// A pool's connections keep the plans that they made while all tables were empty. Later held
// or decided events do not make a claim or a delivery more expensive.
func TestPlansFromEmptyTablesStayFast(t *testing.T) {
	t.Parallel()
	p := newPlans(t)
	const wish = "'p', '{h1,h2,h3}', '{2,2,2}', '{1 h,1 h,1 h}', '{a.b,NULL,a.b c.d}', '{NULL,NULL,NULL}', '{0,0,1}'"
	const bounded = wish + ", '{1000,1000,1000}', '{f,f,t}'"
	statements := []struct {
		file, parameters, call string
		before                 string // runs first, in the same transaction
		pages                  int    // the most pages that it may read
	}{
		{"claim", "(text, text[], int[], interval[], text[], text[], int[], bigint[], bool[])", bounded, p.text("plan"), 150},
		{"claim_alone", "(text, text[], int[], interval[], text[], text[], int[])", wish, p.text("plan"), 150},
		{"due", "(text[], text[], text[], int[])", "'{h1,h2,h3}', '{a.b,NULL,a.b c.d}', '{NULL,NULL,NULL}', '{0,0,1}'", p.text("plan"), 50},
		{"postpone", "(text, text[], interval[], interval[], int, interval[])", "'h1', '{k1,k2,k3}', '{1 h,1 h,1 h}', '{1 s,1 s,1 s}', 3, '{0,0,0}'", p.text("plan"), 100},
		{"expire", "(text, text, timestamptz)", "'(0,0)', '(1,0)', 'infinity'", p.text("plan"), 1000},
		{"settle", "(bigint, bigint)", "100, 1", "", 100},
		{"release", "(bigint, bigint, interval)", "100, 1, '0'", "", 100},
		{"decided", "(text, text, bytea)", `'h1', '100', '\x00'`, "", 50},
		{"decide", "(text, text, bytea, text)", `'h1', 'new', '\x00112233445566778899aabbccddeeff', '1000'`, "", 50},
		{"decide_batch", "(text, text[], bytea[], text)", `'h1', '{new1,new2}', '{NULL,NULL}', '1000'`, "", 60},
		{"renew", "(bigint[], bigint[], interval)", "'{100,102,104}', '{1,1,7}', '1 h'", p.text("plan"), 60},
		{"settle_many", "(bigint[], bigint[])", "'{100,102,104}', '{1,1,7}'", p.text("plan"), 150},
		{
			"start", "(text[], text[], text[], int[], text[], interval[], bigint[], bigint[], uuid[])",
			"'{h1,h1,h2}', '{100,102,104}', '{charge,new,charge}', '{0,0,1}', '{k,k,k}', '{1 h,1 h,1 h}', '{100,102,20104}', '{1,1,1}', ARRAY[gen_random_uuid(), gen_random_uuid(), gen_random_uuid()]", p.text("plan"), 150,
		},
		{"done", "(text[], text[], text[], int[], text[], bytea[])", "'{h1,h1}', '{100,102}', '{charge,new}', '{0,0}', '{k,k}', '{a,b}'", p.text("plan"), 100},
		{"undo", "(text, text, text, int, uuid)", "'h1', '100', 'charge', 0, gen_random_uuid()", "", 50},
		{"forget", "(text, text, text, int, timestamptz, int, uuid)", "'h1', '100', 'charge', 0, now(), 1, NULL", "", 50},
	}
	p.do("INSERT INTO postroom.inbox (handler, dedupe_key) VALUES ('h1', '100'), ('h1', '102')") // a receipt needs an inbox row
	for _, s := range statements {
		p.prepare(s.file, s.parameters, s.before, s.call)
	}
	p.do(`INSERT INTO postroom.inbox (handler, dedupe_key) SELECT 'h' || h, n::text FROM generate_series(1, 3) h, generate_series(1, 20000) n ON CONFLICT DO NOTHING`)
	p.do(`INSERT INTO postroom.held (handler, dedupe_key, next_at, dead_at, class, solitary, logged_at, source, event_id, type, subject, key, content_type, data)
		SELECT 'h' || h, n::text, CASE WHEN n % 2 = 0 THEN now() END, CASE WHEN n % 2 = 1 THEN now() END, 'x', n % 1000 = 0, now(),
			'/shop', n::text, 'a.b', 'a.b', CASE WHEN h = 1 THEN 'k1' END, 'text/plain', '' FROM generate_series(1, 3) h, generate_series(1, 20000) n`)
	p.do(`UPDATE postroom.held SET epoch = 1, claimed_by = 'p', attempts = 1 WHERE next_at IS NOT NULL AND dedupe_key::int <= 110`)
	p.do(`INSERT INTO postroom.receipt (handler, dedupe_key, step, revision, key, done_at)
		SELECT handler, dedupe_key, 'charge', 0, 'k', CASE WHEN dedupe_key::int % 4 = 0 THEN now() END FROM postroom.inbox`)
	for _, then := range []string{"SELECT", "ANALYZE postroom.held, postroom.inbox, postroom.receipt"} { // and with plans made then
		p.do(then)
		for _, s := range statements {
			p.wantPages(s.file, s.before, s.call, s.pages)
		}
	}
}

// plans are those of one connection.
type plans struct {
	*testing.T

	conn *pgxpool.Conn
}

func newPlans(t *testing.T) *plans {
	t.Helper()
	conn, err := devtest.Pool(t).Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Release)
	return &plans{t, conn}
}

func (p *plans) do(sql string) {
	p.Helper()
	if _, err := p.conn.Exec(p.Context(), sql); err != nil {
		p.Fatalf("%s: %v", sql, err)
	}
}

// text returns a statement.
func (p *plans) text(file string) string {
	p.Helper()
	return devtest.SQL(p, "internal/ledger/sql/"+file+".sql")
}

// prepare has the connection keep the plan of a statement.
func (p *plans) prepare(file, parameters, before, call string) {
	p.Helper()
	p.do(fmt.Sprintf("PREPARE %s %s AS %s", file, parameters, p.text(file)))
	for range 8 { // by then a plan is kept
		p.do("BEGIN")
		p.do(before)
		p.do(fmt.Sprintf("EXECUTE %s(%s)", file, call))
		p.do("ROLLBACK")
	}
}

var pagesRead = regexp.MustCompile(`Buffers: shared hit=(\d+)(?: read=(\d+))?`)

// wantPages runs a statement and fails the test if that reads more pages than given.
func (p *plans) wantPages(file, before, call string, most int) {
	p.Helper()
	p.do("BEGIN")
	p.do(before)
	rows, _ := p.conn.Query(p.Context(), fmt.Sprintf("EXPLAIN (ANALYZE, BUFFERS) EXECUTE %s(%s)", file, call), pgx.QueryExecModeSimpleProtocol)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		p.Fatalf("%s(%s): %v", file, call, err)
	}
	p.do("ROLLBACK")
	plan, pages := strings.Join(lines, "\n"), 0
	for _, n := range pagesRead.FindStringSubmatch(plan)[1:] {
		more, _ := strconv.Atoi(n)
		pages += more
	}
	if pages > most {
		p.Errorf("%s(%s) reads %d pages, want %d at most:\n%s", file, call, pages, most, plan)
	}
}
