package pglog_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/pglog"
)

// If a row's transaction was open at the later snapshot, the next search finds the row, even
// if the transaction has committed since: the kept state does not count it as seen.
func TestSearchLeavesTransactionsOpenAtTheLaterSnapshot(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	ask := func(sql string, args ...any) (answer string) {
		t.Helper()
		if err := conn.QueryRow(t.Context(), sql, args...).Scan(&answer); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
		return answer
	}
	const insert = `INSERT INTO postroom.outbox (digest, source, event_id, type, subject, data)
		VALUES (decode(repeat('00', 16), 'hex'), '/shop', $1, 'a.b', 'a.b', '') RETURNING seq`
	before := ask("SELECT pg_current_snapshot()::text")
	open, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = open.Rollback(t.Context()) }()
	var early int64
	if err := open.QueryRow(t.Context(), insert, "open").Scan(&early); err != nil {
		t.Fatal(err)
	}
	var late int64
	if err := conn.QueryRow(t.Context(), insert, "committed").Scan(&late); err != nil {
		t.Fatal(err)
	}
	after := ask("SELECT pg_current_snapshot()::text")
	if err := open.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	from, to := ask("SELECT pg_snapshot_xmax($1::pg_snapshot)::text", before), ask("SELECT pg_snapshot_xmax($1::pg_snapshot)::text", after)
	search := fmt.Sprintf("EXECUTE late(%d, 0, '%s', '%s', %s, %s, 0, 0, 1000)", max(early, late), before, after, from, to)
	if _, err := conn.Exec(t.Context(), "PREPARE late AS "+pglog.SQL("late_by_xid")); err != nil {
		t.Fatal(err)
	}
	var found string
	var rows, xid, seq int64
	if err := conn.QueryRow(t.Context(), search, pgx.QueryExecModeSimpleProtocol).Scan(&found, &rows, &xid, &seq); err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("{[%d,%d)}", late, late+1); found != want {
		t.Errorf("found %s, want %s: %d was open at the later snapshot", found, want, early)
	}
}
