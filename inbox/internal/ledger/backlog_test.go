package ledger

import (
	"context"
	"testing"

	"github.com/postroom/postroom/internal/devtest"
)

// However many events are tried again or wait, the dead ones are counted.
func TestTheDeadAreCountedBesideVeryManyOthers(t *testing.T) {
	t.Parallel()
	for state, columns := range map[string]string{"retrying": "NULL, now() + interval '1 h'", "waiting": "'k', NULL"} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			pool := devtest.Pool(t)
			insert := func(from, to int, columns string) {
				t.Helper()
				_, err := pool.Exec(t.Context(), "INSERT INTO postroom.inbox (handler, dedupe_key) SELECT 'h', n::text FROM generate_series($1::int, $2::int) n", from, to)
				if err == nil {
					_, err = pool.Exec(t.Context(), `INSERT INTO postroom.held (handler, dedupe_key, pos, class, chain, next_at, dead_at, logged_at, source, event_id, type, subject, content_type, data)
						SELECT 'h', n::text, n, 'x', `+columns+`, now(), '/shop', n::text, 'a.b', 'a.b', 'text/plain', '' FROM generate_series($1::int, $2::int) n`, from, to)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			insert(1, 10_001, columns+", NULL")
			insert(20_001, 20_005, "NULL, NULL, now()")
			all, err := Upkeep{DB: New(pool, "postroom", func(context.Context, error) {})}.Backlog(t.Context(), []string{"h", "none"})
			if err != nil {
				t.Fatal(err)
			}
			for _, h := range all {
				if h.Handler == "h" && (h.Dead != 5 || h.Retrying+h.Waiting != 10_000) || h.Handler == "none" && h.Dead+h.Retrying+h.Waiting+h.Keys != 0 {
					t.Errorf("%+v", h)
				}
			}
			if len(all) != 2 {
				t.Errorf("%d handlers, want 2", len(all))
			}
		})
	}
}
