package pglog_test

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/pglog"
)

// A page of a republish costs as much as it publishes. It never reads all of the log or of
// held, even with a plan that was made while all tables were empty.
func TestPlansOfRepublishes(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
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
	buffers := regexp.MustCompile(`Buffers: shared hit=(\d+)(?: read=(\d+))?`)
	explain := func(call string) (plan string, pages int) {
		t.Helper()
		rows, _ := conn.Query(t.Context(), "EXPLAIN (ANALYZE, BUFFERS) EXECUTE "+call, pgx.QueryExecModeSimpleProtocol)
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		plan = strings.Join(lines, "\n")
		if found := buffers.FindStringSubmatch(plan); found != nil {
			for _, n := range found[1:] {
				more, _ := strconv.Atoi(n) // an empty text gives 0
				pages += more
			}
		}
		return plan, pages
	}
	do(pglog.SQL("connect"))
	do(pglog.SQL("reader"))
	do("PREPARE republish_page AS " + pglog.SQL("republish_page"))
	do("PREPARE prune AS " + pglog.SQL("prune"))
	explain("republish_page(0, 0, 50, NULL)")
	explain("prune(0, 0, '1 h', 'infinity')")

	mustExec(t, pool, `INSERT INTO postroom.outbox (digest, source, event_id, type, subject, key, data)
		SELECT decode(repeat('00', 16), 'hex'), '/shop', n::text, CASE WHEN n % 50000 = 0 THEN 'rare' ELSE 'a.b' END, 'a.b', 'k' || n % 1000, repeat('x', 300)::bytea
		FROM generate_series(1, 200000) n`)
	mustExec(t, pool, `INSERT INTO postroom.held (handler, pos, next_at, logged_at, source, event_id, type, subject, content_type, data)
		SELECT 'outbox', n * 4, now() + interval '1 h', now(), '/shop', n::text, 'a.b', 'a.b', 'text/plain', '' FROM generate_series(1, 20000) n`)
	mustExec(t, pool, `INSERT INTO postroom.archive (id, audit, handler, pos, dead_at, held_at, attempts, solitary, class, revision, replays, logged_at, source,
			event_id, type, subject, content_type, data)
		SELECT n, 1, 'outbox', n * 4 + 1, now(), now(), 1, false, 'x', 0, 0, now(), '/shop', n::text, 'a.b', 'a.b', 'text/plain', '' FROM generate_series(1, 20000) n`)
	mustExec(t, pool, `INSERT INTO postroom.republish (actor, kind, lo, hi, events, rate, digest, passed, state, ended_at)
		SELECT 'ann', 'range', 1, 200000, 200000, 1000, n::text, 0, 'done', now() FROM generate_series(1, 20000) n`)
	publishAll(t, pool)

	run := func(name, insert, call string, most int) {
		t.Helper()
		mustExec(t, pool, "UPDATE postroom.republish SET state = 'cancelled', ended_at = now() WHERE state = 'running'")
		if insert != "" {
			mustExec(t, pool, `INSERT INTO postroom.republish (actor, kind, lo, hi, events, rate, digest, passed, types, seqs) VALUES ('ann', 'range', 1, 200000, 200000, 1000, 'w', `+insert+`)`)
		}
		plan, pages := explain(call)
		if pages == 0 || pages > most {
			t.Errorf("%s: %d pages, want 1 to %d:\n%s", name, pages, most, plan)
		}
		for _, bad := range []string{"Seq Scan on outbox", "Seq Scan on held", "Seq Scan on archive", "Hash", "Merge Join"} {
			if strings.Contains(plan, bad) {
				t.Errorf("%s: %s:\n%s", name, bad, plan)
			}
		}
	}
	// 2,000 seqs of this log are about 110 pages, and each event of a page is looked for
	// in held and archive.
	run("no republish", "", "republish_page(0, 0, 50, NULL)", 20)
	run("a page of 50", "100000, NULL, NULL", "republish_page(0, 0, 50, NULL)", 400)
	run("a page of 50 among what is held", "0, NULL, NULL", "republish_page(0, 0, 50, NULL)", 400)
	run("a rare type", "100000, '{rare}', NULL", "republish_page(0, 0, 50, NULL)", 200)
	run("some seqs", "0, NULL, '{[7,9),[180001,180002)}'", "republish_page(0, 0, 50, NULL)", 200)
	run("the last of some seqs", "1000, NULL, '{[7,9),[180001,180002)}'", "republish_page(0, 0, 50, NULL)", 200)
	// A list of keys that is not hashed would be searched for each row of the page.
	if plan, _ := explain("republish_page(0, 0, 50, NULL)"); !regexp.MustCompile(`part\.keys IS NULL\) OR \([^)]*hashed`).MatchString(plan) {
		t.Errorf("the keys of a republish are not hashed:\n%s", plan)
	}
	run("owed", "100000, NULL, NULL", "republish_page(20006, 0, 50, '{[7,9)}')", 50)
	run("prune", "100000, NULL, NULL", "prune(0, 0, '1 h', 'infinity')", 200)
}
