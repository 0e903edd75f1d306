package pglog_test

import (
	"context"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/internal/pglog"
	"github.com/postroom/postroom/operator"
	"github.com/postroom/postroom/relay/broker"
)

// wantAudit compares the audit with want: actor, action, number of events, reason.
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

// A republish has a limited list of ranges, because the relay reads the list for each page. So more of
// them are several republishes, which the relay carries out in their order.
func TestManyMissingEventsAreSeveralRepublishes(t *testing.T) {
	t.Parallel()
	const most, n = 5000, 12_001
	pool := devtest.Pool(t)
	log := pglog.New(pool)
	insertMany(t, pool, "e", 2*n, "", "")
	term := lead(t, log)
	all := seqsOfEvents(readUntilEmpty(t, term))
	record(t, term, all...)
	missing := everySecond(all)
	started, err := republishesOf(log).RepublishSeqs(t.Context(), missing, 0, postroom.Audit{Actor: "ann", Reason: "lost"})
	if err != nil || len(started) != 3 || started[0].Events != most || started[2].Events != n-2*most {
		t.Fatalf("StartSeqs = %+v, %v; want three republishes", started, err)
	}
	var again []int64
	begun := 0
	for range 5 * n / bulkPage {
		page, err := term.ReadRepublish(t.Context(), bulkPage)
		if err != nil {
			t.Fatal(err)
		}
		if page.Begins {
			if page.ID != started[begun].ID {
				t.Errorf("republish %d begins, want %d", page.ID, started[begun].ID)
			}
			begun++
		}
		again = append(again, seqsOfEvents(page.Events)...)
		publishAgain(t, term, page.Events...)
	}
	if !slices.Equal(again, missing) {
		t.Errorf("%d events are published again, want each of the %d missing ones once", len(again), n)
	}
}

// The events that a comparison found missing are published again, and no events between them.
func TestRepublishTakesOnlyTheMissingEvents(t *testing.T) {
	t.Parallel()
	pool, log, term := publishedLog(t, letters(8)...)
	var first int64
	if err := pool.QueryRow(t.Context(), "SELECT min(seq) FROM postroom.outbox").Scan(&first); err != nil {
		t.Fatal(err)
	}
	seqs := []int64{first + 6, first + 1, first + 2, first + 6, first + 4}
	started, err := republishesOf(log).RepublishSeqs(t.Context(), seqs, 5, postroom.Audit{Actor: "ann", Reason: "lost"})
	if err != nil || len(started) != 1 || started[0].Events != 4 || started[0].Kind != "reconcile" || started[0].Rate != 5 {
		t.Fatalf("Redo = %+v, %v", started, err)
	}
	r := started[0]
	if !slices.Equal(seqs, []int64{first + 6, first + 1, first + 2, first + 6, first + 4}) {
		t.Error("Redo changed the caller's slice")
	}
	if same, err := republishesOf(log).RepublishSeqs(t.Context(), []int64{first + 1, first + 2, first + 4, first + 6}, 0, postroom.Audit{Actor: "bob"}); err != nil || len(same) != 1 || same[0].ID != r.ID || !same[0].AlreadyRunning {
		t.Errorf("the same again = %+v, %v; want republish %d", same, err, r.ID)
	}
	wantAudit(t, pool, "ann reconcile 4 lost")
	ids, page := again(t, term, 3)
	wantIDs(t, ids, "e001", "e002", "e004")
	publishAgain(t, term, page.Events[1:]...)
	if err := term.Abandon(); err != nil {
		t.Fatal(err)
	}
	term = lead(t, log)
	ids, page = again(t, term, 3)
	wantIDs(t, ids, "e001")
	ids, rest := again(t, term, 3)
	wantIDs(t, ids, "e006")
	publishAgain(t, term, append(page.Events, rest.Events...)...)
	wantRepublish(t, log, r.ID, operator.RepublishDone, 4, 0, 0)
}

// If the recording of what a broker lost fails, Release does that later: it orders the republish of
// the late events before it records that the stream was compared.
func TestLateEventsSurviveAFailedRecording(t *testing.T) {
	t.Parallel()
	pool, log, term := publishedLog(t, letters(4)...)
	var first int64
	if err := pool.QueryRow(t.Context(), "SELECT min(seq) FROM postroom.outbox").Scan(&first); err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	err := term.Record(ended, eventlog.Progress{
		Lost: []int64{first + 3}, LostBehindKey: []int64{first + 1},
		Positions: []broker.StreamPosition{{Stream: "SHOP", Seq: 3, MessageID: "m"}},
	})
	if err == nil {
		t.Fatal("Record with a context that has ended succeeded")
	}
	if err := term.Release(t.Context(), eventlog.Progress{}); err != nil {
		t.Fatal(err)
	}
	term = lead(t, log)
	ids, _, _ := read(t, term, 10)
	late, _ := again(t, term, 10)
	if positions := term.Positions(); len(positions) != 1 || len(ids) != 1 || ids[0] != "e003" || len(late) != 1 || late[0] != "e001" {
		t.Errorf("positions %+v, read %v, republished %v; want one position, e003 and e001", positions, ids, late)
	}
}
