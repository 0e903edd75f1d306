package pglog_test

import (
	"testing"
	"time"

	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/devtest/logtest"
	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/internal/pglog"
	"github.com/postroom/postroom/operator"
	"github.com/postroom/postroom/relay/broker"
)

// catchUpHalf publishes and records a half of a late load of 4,000 rows. It returns the ids that were
// published.
func catchUpHalf(t *testing.T, term *pglog.Term) (ids []string) {
	t.Helper()
	at := broker.StreamPosition{Stream: "SHOP", Created: time.Unix(7, 0), Seq: 1, MessageID: "m"}
	for len(ids) < 2000 {
		some, seqs, _ := read(t, term, bulkPage)
		ids = append(ids, some...)
		logtest.RecordAll(t, term, eventlog.Progress{Published: seqs, Positions: []broker.StreamPosition{at}})
	}
	return ids
}

// What a relay has published while it catches up is published for a comparison with the streams, too.
// Otherwise such events are not missing when the broker loses them, and the next leader does not
// read them again.
func TestEventsThatARelayCaughtUpWithAreCompared(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	log := pglog.New(pool)
	lateLoad(t, pool, log, 4000)
	term := lead(t, log)
	ids := catchUpHalf(t, term)
	if !column[bool](t, pool, "SELECT catch_up_snap IS NOT NULL FROM postroom.relay")[0] {
		t.Fatal("inconclusive: the relay does not catch up")
	}
	if err := term.Abandon(); err != nil {
		t.Fatal(err)
	}
	published := map[string]bool{}
	next, err := log.Entries(t.Context(), eventlog.Checkpoint{}, time.Time{}, false)
	if err != nil {
		t.Fatal(err)
	}
	for {
		page, err := next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		for _, e := range page {
			if e.Published {
				published[e.ID] = true
			}
		}
	}
	for _, id := range ids {
		if !published[id] {
			t.Fatalf("%d events are published and recorded, and the comparison takes %d of them as published: %s is not among them", len(ids)+1, len(published), id)
		}
	}
	if len(published) != len(ids)+1 {
		t.Errorf("%d events count as published, want %d", len(published), len(ids)+1)
	}
}

// The lag counts the events with which a relay still has to catch up.
func TestTheLagCountsWhatARelayCatchesUpWith(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	log := pglog.New(pool)
	lateLoad(t, pool, log, 4000)
	term := lead(t, log)
	catchUpHalf(t, term)
	lag, err := log.Lag(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if lag.Events < 2000 || lag.Age == 0 {
		t.Errorf("2,000 events are not published, and the lag is %d events, the oldest %s old", lag.Events, lag.Age)
	}
}

// A republish during a catch-up has the events that the relay has caught up with, and leaves out the
// others, which the relay will publish.
func TestARepublishHasWhatARelayCaughtUpWith(t *testing.T) {
	t.Parallel()
	for name, then := range map[string]string{
		"late events": "SELECT 1",
		"a long list": "UPDATE postroom.relay AS r SET snap = catch_up_snap, catch_up_open = pending, pending = (SELECT range_agg(int8range(seq, seq, '[]')) FROM postroom.outbox WHERE source = '/bulk')",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := devtest.Pool(t)
			log := pglog.New(pool)
			lateLoad(t, pool, log, 4000)
			term := lead(t, log)
			ids := catchUpHalf(t, term)
			if err := term.Abandon(); err != nil {
				t.Fatal(err)
			}
			mustExec(t, pool, then)
			startRepublish(t, log, operator.RepublishRequest{All: true})
			repeated := map[string]bool{}
			term = lead(t, log)
			for range 100 {
				page, err := term.ReadRepublish(t.Context(), bulkPage)
				if err != nil {
					t.Fatal(err)
				}
				for _, ev := range page.Events {
					repeated[ev.ID] = true
				}
			}
			if len(repeated) != len(ids)+1 {
				t.Errorf("%d events are published again, want %d", len(repeated), len(ids)+1)
			}
			for _, id := range ids {
				if !repeated[id] {
					t.Fatalf("%s was published before the republish, and is not published again", id)
				}
			}
		})
	}
}

// The broker lost an event whose next event of its key is held, and due. The held event waits until the
// lost one is published, or is in the table held before it.
func TestAHeldEventWaitsForALostOneOfItsKey(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	log := pglog.New(pool)
	writeKeyed(t, pool, "k", "lost", "refused")
	term := lead(t, log)
	_, seqs, page := read(t, term, 10)
	hold(t, term, refusal(1), page.Events[1])
	logtest.RecordAll(t, term, eventlog.Progress{Published: seqs[:1]})
	if err := term.Abandon(); err != nil {
		t.Fatal(err)
	}

	term = lead(t, log)
	logtest.RecordAll(t, term, eventlog.Progress{Lost: seqs[:1]})
	ids, _, _ := read(t, term, 10)
	wantIDs(t, ids, "lost")
	overrideNextAtOfDue(t, pool)
	ids, _, _ = read(t, term, 10)
	wantIDs(t, ids)
	logtest.RecordAll(t, term, eventlog.Progress{Held: []eventlog.Deferral{{Seq: seqs[0], Key: "k"}}})
	ids, _, _ = read(t, term, 10)
	wantIDs(t, ids, "lost", "refused")
}

// Lost events that no recording lists are not removed from the log before they are published again.
func TestLostEventsAreNotPrunedBeforeTheyAreReadAgain(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	log := pglog.New(pool)
	insertMany(t, pool, "e", 6000, "", "")
	insertMany(t, pool, "behind-key", 12_000, "", "")
	term := lead(t, log)
	seqs := seqsOfEvents(readUntilEmpty(t, term))
	at := broker.StreamPosition{Stream: "SHOP", Created: time.Unix(7, 0), Seq: 1, MessageID: "m"}
	logtest.RecordAll(t, term, eventlog.Progress{Published: seqs, Positions: []broker.StreamPosition{at}})
	lost := everySecond(seqs[:6000])
	if err := term.Record(t.Context(), eventlog.Progress{Lost: lost, LostBehindKey: everySecond(seqs[6000:])}); err != nil {
		t.Fatal(err)
	}
	prune := func() {
		t.Helper()
		for more := true; more; {
			var err error
			if _, more, err = term.Prune(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	prune()
	logtest.RecordAll(t, term, eventlog.Progress{}) // orders the republish of the rest
	prune()
	again := readUntilEmpty(t, term)
	if len(again) != len(lost) {
		t.Errorf("%d of %d lost events are read again", len(again), len(lost))
	}
	if left := column[int64](t, pool, "SELECT count(*) FROM postroom.outbox WHERE seq > 6000")[0]; left != 12_000 {
		t.Errorf("%d events are left from those that must be republished, want 12000", left)
	}
	logtest.RecordAll(t, term, eventlog.Progress{Published: seqsOfEvents(again)})
	prune()
	if left := column[int64](t, pool, "SELECT count(*) FROM postroom.outbox WHERE seq <= 6000")[0]; left != 0 {
		t.Errorf("%d events are left after the last of them was published again", left)
	}
}

// While a relay catches up, a scheduled event that it has passed and that is not held any more is
// published: an operator let it go before its time. So it cannot be cancelled.
func TestCancelKnowsWhatARelayCaughtUpWith(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	mustExec(t, pool, `INSERT INTO postroom.outbox (digest, source, event_id, type, subject, data, not_before)
		SELECT decode(repeat('00', 16), 'hex'), '/shop', n::text, 'a.b', 'a.b', '{}', now() + interval '1 h' FROM generate_series(1, 3) n`)
	for _, state := range []string{
		"high = 3, snap = '1:1:', catch_up_snap = pg_current_snapshot(), catch_up_passed = 2, pending = '{[2,2]}'",
		"high = 3, snap = pg_current_snapshot(), catch_up_snap = pg_current_snapshot(), catch_up_passed = 2, pending = '{[1,3]}', catch_up_open = '{[2,2]}'",
	} {
		mustExec(t, pool, "DELETE FROM postroom.archive; UPDATE postroom.relay SET "+state)
		if got := column[bool](t, pool, "SELECT postroom.cancel('/shop', n::text) FROM generate_series(1, 3) n ORDER BY n"); got[0] || !got[1] || !got[2] {
			t.Errorf("%s: cancelled %v, want all but the first, which is published", state, got)
		}
	}
}
