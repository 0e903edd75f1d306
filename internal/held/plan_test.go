package held_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/internal/devtest"
)

// Events of a key are looked up in an index, with and without a handler, before and after the
// server has statistics.
func TestSelectByKeyReadsLittle(t *testing.T) {
	t.Parallel()
	d := newRig(t)
	d.exec("ALTER TABLE postroom.held SET (autovacuum_enabled = off)")
	d.exec("INSERT INTO postroom.inbox (handler, dedupe_key) SELECT 'h' || n % 3, n::text FROM generate_series(1, 10000) n")
	d.exec(`INSERT INTO postroom.held (handler, dedupe_key, next_at, logged_at, source, event_id, type, subject, key, content_type, data)
		SELECT 'h' || n % 3, n::text, now(), now(), '/shop', n::text, 'a.b', 'a.b', 'k' || n % 5000, 'text/plain', '' FROM generate_series(1, 10000) n`)
	choose := devtest.SQL(t, "sql/choose.sql")
	handler, key, most := "h1", "k7", 100
	for _, then := range []string{"SELECT", "ANALYZE postroom.held"} {
		d.exec(then)
		for _, of := range []*string{nil, &handler} {
			rows, _ := d.pool.Query(t.Context(), "EXPLAIN "+choose, pgx.QueryExecModeExec, nil, of, nil, nil, &key, nil, nil, nil, &most) // CollectRows reports the error
			lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if err != nil {
				t.Fatal(err)
			}
			if plan := strings.Join(lines, "\n"); !strings.Contains(plan, "held_key") {
				t.Errorf("after %s, with a handler: %t:\n%s", then, of != nil, plan)
			}
		}
	}
}
