package operator_test

import (
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/devtest/logtest"
	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/internal/pglog"
	"github.com/postroom/postroom/operator"
)

// lead begins a term, which is given back at the test's end.
func lead(t *testing.T, pool *pgxpool.Pool) eventlog.Term {
	t.Helper()
	return logtest.Lead(t, pglog.New(pool))
}

// publishedLog returns a log whose events are all published, the store that publishes them again,
// and the term that published them.
func publishedLog(t *testing.T, ids ...string) (*pgxpool.Pool, *operator.Store, eventlog.Term) {
	t.Helper()
	pool := devtest.Pool(t)
	write(t, pool, ids...)
	term := lead(t, pool)
	_, seqs, _ := read(t, term, 1000)
	record(t, term, seqs...)
	return pool, operator.New(pool, operator.Config{}), term
}

func startRepublish(t *testing.T, log *operator.Store, o operator.RepublishRequest) operator.Republish {
	t.Helper()
	r, err := log.Republish(t.Context(), o, postroom.Audit{Actor: "ann", Reason: "lost"})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func wantRepublish(t *testing.T, log *operator.Store, id int64, state operator.RepublishState, published, skipped, held int64) {
	t.Helper()
	r, err := log.FindRepublish(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if r.State != state || r.Published != published || r.Skipped != skipped || r.Held != held {
		t.Errorf("republish %d is %s: %d published, %d skipped, %d held; want %s: %d, %d, %d",
			id, r.State, r.Published, r.Skipped, r.Held, state, published, skipped, held)
	}
	if (r.State == operator.RepublishRunning) != r.EndedAt.IsZero() {
		t.Errorf("republish %d is %s and ended at %s", id, r.State, r.EndedAt)
	}
}

// wantAudit compares the rows of the audit: actor, action, number of events, reason.
func wantAudit(t *testing.T, pool *pgxpool.Pool, want ...string) {
	t.Helper()
	rows, _ := pool.Query(t.Context(), "SELECT concat_ws(' ', actor, action, events, nullif(reason, '')) FROM postroom.audit ORDER BY id")
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, want) {
		t.Errorf("audit %q, want %q", got, want)
	}
}
