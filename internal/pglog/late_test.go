package pglog_test

import (
	"testing"

	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/pglog"
)

// An insert takes its seq before it takes the id of its transaction. If a pass runs between the
// two, it moves past the seq. The snapshot of that pass does not list the transaction as open,
// because the transaction gets its id later.
func TestALateRowOfALaterTransaction(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	write(t, pool, "a")
	var seq int64
	if err := pool.QueryRow(t.Context(), "SELECT nextval(pg_get_serial_sequence('postroom.outbox', 'seq'))").Scan(&seq); err != nil {
		t.Fatal(err)
	}
	write(t, pool, "b")
	term := lead(t, pglog.New(pool))
	ids, _, _ := read(t, term, 10)
	wantIDs(t, ids, "a", "b")

	mustExec(t, pool, `INSERT INTO postroom.outbox OVERRIDING SYSTEM VALUE
		SELECT (jsonb_populate_record(o, jsonb_build_object('seq', $1::bigint, 'xid', pg_current_xact_id()::text, 'event_id', 'late'))).*
		FROM postroom.outbox AS o WHERE event_id = 'a'`, seq)
	ids, seqs, page := read(t, term, 10)
	wantIDs(t, ids, "late")
	if page.Late != 1 || seqs[0] != seq {
		t.Errorf("%d late rows with seqs %d, want one with %d", page.Late, seqs, seq)
	}
}
