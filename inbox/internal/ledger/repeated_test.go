package ledger_test

import (
	"strings"
	"testing"

	"github.com/postroom/postroom/inbox/internal/ledger"
	"github.com/postroom/postroom/internal/devtest"
)

func TestMain(m *testing.M) { devtest.Main(m) }

// The answer to the statement that gives attempts back is lost. The ledger finds out which events got
// attempts back, so that none of them gets its attempts back twice.
func TestAttemptsGivenBackWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	line, _, _ := strings.Cut(devtest.SQL(t, "sql/give_back.sql"), "\n")
	losing := &devtest.Losing{Mark: line}
	_, err := pool.Exec(t.Context(), `
		WITH decided AS (INSERT INTO postroom.inbox (handler, dedupe_key) SELECT 'h', 'e' || i FROM generate_series(1, 3) i)
		INSERT INTO postroom.held (handler, dedupe_key, next_at, claimed_by, attempts, logged_at, source, event_id, type, subject, content_type, data)
		SELECT 'h', 'e' || i, now(), CASE WHEN i = 3 THEN 'p' END, 5, now(), '/shop', 'e' || i, 'a', 'a', 'text/plain', '' FROM generate_series(1, 3) i`)
	if err != nil {
		t.Fatal(err)
	}
	db := ledger.New(losing.Pool(t, pool), "postroom", nil)
	given, err := ledger.Claims{DB: db}.GiveBack(t.Context(), "h", []string{"e1", "e2", "e3"}, []int{2, 2, 2})
	if err != nil || len(given) != 2 || !losing.Lost.Load() {
		t.Errorf("given back to %v, %v; want e1 and e2", given, err)
	}
	var attempts string
	err = pool.QueryRow(t.Context(), "SELECT string_agg(attempts::text, ' ' ORDER BY dedupe_key) FROM postroom.held").Scan(&attempts)
	if err != nil || attempts != "3 3 5" {
		t.Errorf("attempts %s, %v; want 3 3 5", attempts, err)
	}
}
