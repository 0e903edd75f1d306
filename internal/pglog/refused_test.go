package pglog_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/internal/pglog"
)

// The failures of events that were published in the end, by event.
const keptFailures = `SELECT format('%s: %s %s, %s to %s', event_id, jsonb_array_length(failures), failures -> 0 ->> 'class', failures -> 0 ->> 'text', failures -> -1 ->> 'text')
	FROM postroom.refused JOIN postroom.outbox USING (seq) ORDER BY seq`

// If an event was refused and is then published, its failures are kept. An event that only
// waited has none.
func TestFailuresOutliveThePublishing(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	writeKeyed(t, pool, "k", "a", "b")
	writeKeyed(t, pool, "", "free")
	term := lead(t, pglog.New(pool))
	_, seqs, page := read(t, term, 10)
	hold(t, term, refusal(1), page.Events...)
	for n := range 3 {
		overrideNextAtOfDue(t, pool)
		_, _, page = read(t, term, 10)
		f := refusal(n + 2)
		f.Text = fmt.Sprint("text ", n+2)
		err := term.Record(t.Context(), eventlog.Progress{
			Held:     []eventlog.Deferral{{Seq: seqs[0], Key: "k", Failure: f}},
			Returned: []int64{seqs[1], seqs[2]},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	overrideNextAtOfDue(t, pool)
	read(t, term, 10)
	record(t, term, seqs...)
	wantHeld(t, pool)
	if got, want := column[string](t, pool, keptFailures), []string{"a: 4 js_10169, broker: no to text 4", "free: 1 js_10169, broker: no to broker: no"}; !slices.Equal(got, want) {
		t.Errorf("the stored failures are %q, want %q", got, want)
	}
}

// If an event is published a second time, again after failures, its last ten failures are
// kept.
func TestTenFailuresAreKept(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	write(t, pool, "a")
	term := lead(t, pglog.New(pool))
	_, seqs, page := read(t, term, 10)
	mustExec(t, pool, `INSERT INTO postroom.refused SELECT $1, jsonb_agg(jsonb_build_object('class', 'x', 'text', n::text)) FROM generate_series(1, 10) n`, seqs[0])
	hold(t, term, refusal(1), page.Events...)
	overrideNextAtOfDue(t, pool)
	read(t, term, 10)
	record(t, term, seqs...)
	if got, want := column[string](t, pool, keptFailures), []string{"a: 10 x, 2 to broker: no"}; !slices.Equal(got, want) {
		t.Errorf("the stored failures are %q, want %q", got, want)
	}
}

// A replaced term keeps no failures. Nor are failures kept if the event's row of the log is
// gone, because no step would ever remove them.
func TestFailuresWithoutARowOfTheLogAreNotKept(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	write(t, pool, "a")
	log := pglog.New(pool)
	former, next := replaced(t, log, func(term *pglog.Term) {
		_, _, page := read(t, term, 10)
		hold(t, term, refusal(1), page.Events...)
		overrideNextAtOfDue(t, pool)
		read(t, term, 10)
	})
	if err := former.Record(t.Context(), eventlog.Progress{Published: []int64{1}}); err == nil {
		t.Error("a replaced term records")
	}
	if got := column[string](t, pool, keptFailures); len(got) != 0 {
		t.Errorf("a replaced term stores %q", got)
	}
	mustExec(t, pool, "DELETE FROM postroom.outbox")
	_, seqs, _ := read(t, next, 10)
	record(t, next, seqs...)
	wantHeld(t, pool)
	if got := column[int64](t, pool, "SELECT seq FROM postroom.refused"); len(seqs) != 1 || len(got) != 0 {
		t.Errorf("of %d published, failures are stored of %v, want none", len(seqs), got)
	}
}

// The failures of an event are removed with its row of the log, and not before.
func TestPruneRemovesFailures(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	write(t, pool, "a", "b", "c", "d")
	term := lead(t, pglog.New(pool))
	_, seqs, _ := read(t, term, 10)
	record(t, term, seqs...)
	mustExec(t, pool, `INSERT INTO postroom.refused SELECT seq, '[{"class": "x", "text": "y"}]' FROM postroom.outbox WHERE event_id <> 'b'`)
	overrideCreatedAt(t, pool, 73*time.Hour, "a", "b")
	prune(t, term, 72*time.Hour)
	wantLog(t, pool, "c", "d")
	if got := column[int64](t, pool, "SELECT seq FROM postroom.refused ORDER BY seq"); !slices.Equal(got, seqs[2:]) {
		t.Errorf("failures are stored of %v, want of %v", got, seqs[2:])
	}
	overrideCreatedAt(t, pool, 73*time.Hour, "c")
	prune(t, term, 72*time.Hour)
	if got := column[int64](t, pool, "SELECT seq FROM postroom.refused ORDER BY seq"); !slices.Equal(got, seqs[3:]) {
		t.Errorf("failures are stored of %v, want of %v", got, seqs[3:])
	}
}
