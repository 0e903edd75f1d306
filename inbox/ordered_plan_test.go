package inbox_test

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/internal/devtest"
)

// What waits behind one key costs an event of that key, or of another, nothing, also
// on connections whose plans are from the time when nothing was held.
func TestOrderedPlansThatWereMadeWhileAllWasEmpty(t *testing.T) {
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
			t.Fatalf("%s: %v", sql, err)
		}
	}
	explain := func(sql string) string {
		t.Helper()
		rows, _ := conn.Query(t.Context(), "EXPLAIN (ANALYZE, BUFFERS) "+sql, pgx.QueryExecModeSimpleProtocol)
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
		return strings.Join(lines, "\n")
	}
	text := func(file string) string {
		t.Helper()
		sql, err := os.ReadFile("sql/" + file + ".sql")
		if err != nil {
			t.Fatal(err)
		}
		return string(sql)
	}
	const holdParameters = `(text[], text[], bytea[], bool, bigint[], interval[], int[], bool[], text[], bytea[], text[], timestamptz[],
		text[], text[], text[], text[], text[], text[], text[], text[], timestamptz[], text[], text[], text[], bytea[], bytea[], text[], bool[], bigint[])`
	hold := func(key string, pos int) string {
		return fmt.Sprintf(`'{h}', '{new-%s-%d}', '{NULL}', true, '{%d}', '{0}', '{0}', '{f}', '{NULL}', '{NULL}', '{NULL}', '{now}',
			'{/s}', '{e}', '{a.b}', '{a.b}', '{%s}', '{text/plain}', '{NULL}', '{NULL}', '{NULL}', '{NULL}', '{NULL}', '{NULL}', '{""}', '{NULL}', '{%s}', '{f}', '{0}'`,
			key, pos, pos, key, key)
	}
	decide := func(key string, pos int) string {
		return fmt.Sprintf(`'h', 'd-%s', NULL, '1000', '%s', %d, 0`, key, key, pos)
	}
	statements := []struct {
		file, parameters, before string
		calls                    []string
		pages                    int // that one may read
	}{
		{"decide_ordered", "(text, text, bytea, text, text, bigint, bigint)", "", []string{decide("k", 90000), decide("k", 1), decide("other", 7)}, 200},
		{"hold", holdParameters, "", []string{hold("k", 90000), hold("k", 1), hold("other", 7)}, 250},
		{"follow", "(text, text, bigint, text, interval, text, text)", text("plan"), []string{
			"'h', 'k', 10, 'p', '1 h', 'a.b', NULL", "'h', 'k', 25000, 'p', '1 h', 'a.b', NULL", "'h', 'k', 60000, NULL, '1 h', NULL, 'x'",
		}, 100},
	}
	do("INSERT INTO postroom.subscription (handler, stream, stream_created) VALUES ('h', 'S', now())")
	for _, s := range statements {
		do(fmt.Sprintf("PREPARE %s %s AS %s", s.file, s.parameters, text(s.file)))
		for range 8 { // by then a plan is kept
			do("BEGIN")
			if s.before != "" {
				do(s.before)
			}
			do(fmt.Sprintf("EXECUTE %s(%s)", s.file, s.calls[0]))
			do("ROLLBACK")
		}
	}
	do(`INSERT INTO postroom.inbox (handler, dedupe_key) SELECT 'h', n::text FROM generate_series(1, 50000) n`)
	do(`INSERT INTO postroom.held (handler, dedupe_key, key, pos, dead_at, class, logged_at, source, event_id, type, subject, content_type, data)
		SELECT 'h', n::text, 'k', n + 5, CASE WHEN n = 1 THEN now() END, 'x', now(), '/shop', n::text, 'a.b', 'a.b', 'text/plain', '' FROM generate_series(1, 50000) n`)
	found := regexp.MustCompile(`Buffers: shared hit=(\d+)(?: read=(\d+))?`)
	for _, then := range []string{"SELECT 1", "ANALYZE postroom.held, postroom.inbox"} { // and with plans made then
		do(then)
		for _, s := range statements {
			for _, call := range s.calls {
				do("BEGIN")
				if s.before != "" {
					do(s.before)
				}
				plan := explain(fmt.Sprintf("EXECUTE %s(%s)", s.file, call))
				do("ROLLBACK")
				pages := 0
				for _, n := range found.FindStringSubmatch(plan)[1:] {
					more, _ := strconv.Atoi(n)
					pages += more
				}
				if pages > s.pages {
					t.Errorf("%s(%s) reads %d pages, want %d at most:\n%s", s.file, call, pages, s.pages, plan)
				}
			}
		}
	}
}
