package inbox_test

import (
	"testing"
	"time"

	"github.com/postroom/postroom/internal/devtest"
)

// A process makes no dry run of an event that it would not claim, because it has no handler
// for the types of another version.
func TestTrialOfAnotherVersion(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.in.Handle(b.subscription("h"), effect("h"))
	b.exec("INSERT INTO postroom.inbox (handler, dedupe_key) SELECT 'h', n::text FROM generate_series(1, 3) n")
	b.exec(`INSERT INTO postroom.held (handler, dedupe_key, dead_at, attempts, class, logged_at, source, event_id, type, subject, content_type, data)
		SELECT 'h', n::text, now(), 5, 'error', now(), '/shop', n::text, $1 || CASE n WHEN 2 THEN '.returned' ELSE '.placed' END, 's', 'text/plain', ''
		FROM generate_series(1, 3) n`, b.stream)
	b.exec("INSERT INTO postroom.dry_run (handler, held) SELECT 'h', id FROM postroom.held ORDER BY id")
	b.run()
	tried := func() (n int) {
		const sql = "SELECT count(*) FROM postroom.dry_run WHERE outcome ->> 'verdict' = 'passes'"
		if err := b.pool.QueryRow(t.Context(), sql).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	devtest.Eventually(t, 30*time.Second, "the dry runs of the types that this process handles", func() bool { return tried() == 2 })
	var left string
	if err := b.pool.QueryRow(t.Context(), `SELECT held.type FROM postroom.dry_run JOIN postroom.held ON held.id = dry_run.held
		WHERE taken_by IS NULL`).Scan(&left); err != nil || left != b.stream+".returned" {
		t.Errorf("left to other processes: %q, %v", left, err)
	}
	if effects := b.effects("h"); len(effects) != 0 {
		t.Errorf("effects: %v", effects)
	}
}
