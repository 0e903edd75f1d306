package pglog_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/internal/pglog"
	"github.com/postroom/postroom/operator"
)

// publishedLog returns a log with events of which all are published, and the term that
// published them.
func publishedLog(t *testing.T, ids ...string) (*pgxpool.Pool, *pglog.Log, *pglog.Term) {
	t.Helper()
	pool := devtest.Pool(t)
	write(t, pool, ids...)
	log := pglog.New(pool)
	term := lead(t, log)
	_, seqs, _ := read(t, term, 1000)
	record(t, term, seqs...)
	return pool, log, term
}

// republishesOf returns the store with which operators republish events of a log.
func republishesOf(log *pglog.Log) *operator.Store {
	return operator.New(log.Pool(), operator.Config{})
}

func startRepublish(t *testing.T, log *pglog.Log, o operator.RepublishRequest) operator.Republish {
	t.Helper()
	r, err := republishesOf(log).Republish(t.Context(), o, postroom.Audit{Actor: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func wantRepublish(t *testing.T, log *pglog.Log, id int64, state operator.RepublishState, published, skipped, held int64) {
	t.Helper()
	r, err := republishesOf(log).FindRepublish(t.Context(), id)
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

// A republish is read in the order of the log, in pages, beside the live events, and is
// done when the last of its events is published.
func TestARepublishIsReadBesideLiveEvents(t *testing.T) {
	t.Parallel()
	pool, log, term := publishedLog(t, letters(5)...)
	if _, page := again(t, term, 10); page.ID != 0 || page.Advanced {
		t.Errorf("without a republish: %+v", page)
	}
	r := startRepublish(t, log, operator.RepublishRequest{All: true})
	ids, first := again(t, term, 3)
	wantIDs(t, ids, "e000", "e001", "e002")
	if !first.Begins || first.ID != r.ID || first.Rate != operator.DefaultRate {
		t.Errorf("first page %+v", first.RepublishStatus)
	}
	write(t, pool, "live")
	live, seqs, _ := read(t, term, 10)
	wantIDs(t, live, "live")
	ids, second := again(t, term, 3)
	wantIDs(t, ids, "e003", "e004")
	if second.Begins {
		t.Error("it begins twice")
	}
	ids, none := again(t, term, 3)
	wantIDs(t, ids)
	if none.Advanced || none.ID != r.ID {
		t.Errorf("after the last page: moved %t, republish %d", none.Advanced, none.ID)
	}
	wantRepublish(t, log, r.ID, operator.RepublishRunning, 0, 0, 0)

	record(t, term, seqs...)
	publishAgain(t, term, second.Events...)
	publishAgain(t, term, first.Events[1:]...)
	wantRepublish(t, log, r.ID, operator.RepublishRunning, 4, 0, 0)
	publishAgain(t, term, first.Events[0])
	wantRepublish(t, log, r.ID, operator.RepublishDone, 5, 0, 0)
	_, end := again(t, term, 3)
	if len(end.Ended) != 1 || end.Ended[0].ID != r.ID || end.Ended[0].Cancelled || end.ID != 0 {
		t.Errorf("after the end: %+v", end)
	}
	if _, end = again(t, term, 3); len(end.Ended) > 0 {
		t.Error("it ends twice")
	}
	wantHeld(t, pool)

	// The end of a republish is reported once.
	mustExec(t, pool, "UPDATE postroom.republish SET published = 77")
	write(t, pool, "last")
	_, seqs, _ = read(t, term, 10)
	record(t, term, seqs...)
	wantRepublish(t, log, r.ID, operator.RepublishDone, 77, 0, 0)
}

// Progress of a republish and of live events are separate: a republished seq does not count as
// a published live one.
func TestARepublishedSeqIsNotALiveOne(t *testing.T) {
	t.Parallel()
	pool, log, term := publishedLog(t, "a", "b")
	startRepublish(t, log, operator.RepublishRequest{All: true})
	_, page := again(t, term, 10)
	write(t, pool, "c")
	_, seqs, _ := read(t, term, 10)
	p := eventlog.Progress{ // the republish has no such events, and they must not count as live ones
		Republished: []eventlog.RepublishResult{{RepublishID: page.ID, Seq: seqs[0]}},
		Held:        []eventlog.Deferral{{Seq: seqs[0], RepublishID: page.ID, Failure: dead()}},
	}
	for _, ev := range page.Events {
		p.Published = append(p.Published, ev.Seq) // as if they were live ones
	}
	if err := term.Record(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	wantRepublish(t, log, page.ID, operator.RepublishRunning, 0, 0, 0)
	mustExec(t, pool, "DELETE FROM postroom.held")
	if err := term.Abandon(); err != nil {
		t.Fatal(err)
	}
	next := lead(t, log)
	ids, _, _ := read(t, next, 10)
	wantIDs(t, ids, "c")
	ids, _ = again(t, next, 10)
	wantIDs(t, ids, "a", "b")
}

// If a term is killed, the next one publishes the rest of the republish: every event that was
// not recorded as acknowledged, and no other.
func TestARepublishIsTakenOver(t *testing.T) {
	t.Parallel()
	_, log, term := publishedLog(t, letters(10)...)
	r := startRepublish(t, log, operator.RepublishRequest{All: true})
	_, page := again(t, term, 4)
	publishAgain(t, term, page.Events[0], page.Events[2]) // e001 and e003 are on their way
	_, _ = again(t, term, 2)                              // e004 and e005 too, which is not recorded

	for range 3 {
		if err := term.Abandon(); err != nil {
			t.Fatal(err)
		}
		term = lead(t, log)
	}
	ids, page := again(t, term, 1)
	wantIDs(t, ids, "e001")
	all := page.Events
	ids, page = again(t, term, 10)
	wantIDs(t, ids, "e003")
	all = append(all, page.Events...)
	ids, page = again(t, term, 10)
	wantIDs(t, ids, "e004", "e005", "e006", "e007", "e008", "e009")
	publishAgain(t, term, append(all, page.Events...)...)
	wantRepublish(t, log, r.ID, operator.RepublishDone, 10, 0, 0)
}

// A republish leaves out, and counts, events that are held or discarded, because an operator
// decides about them. It also leaves out unpublished events, because the live path publishes
// them.
func TestARepublishSkipsWhatIsNotPublished(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	write(t, pool, letters(7)...)
	log := pglog.New(pool)
	term := lead(t, log)
	_, _, page := read(t, term, 1000)
	err := term.Record(t.Context(), eventlog.Progress{
		Published: []int64{page.Events[0].Seq, page.Events[3].Seq, page.Events[6].Seq},
		Held:      deferrals(dead(), page.Events[1], page.Events[2]),
	})
	if err != nil {
		t.Fatal(err)
	}
	mustExec(t, pool, `WITH gone AS (DELETE FROM postroom.held WHERE event_id = 'e002' RETURNING *)
		INSERT INTO postroom.archive (id, audit, handler, pos, dead_at, held_at, attempts, solitary, class, revision, replays, logged_at, source,
			event_id, type, subject, content_type, data)
		SELECT id, 1, handler, pos, dead_at, held_at, attempts, solitary, class, revision, replays, logged_at, source,
			event_id, type, subject, content_type, data FROM gone`)
	var pending string
	if err := pool.QueryRow(t.Context(), "SELECT pending::text FROM postroom.relay").Scan(&pending); err != nil || pending == "{}" {
		t.Fatalf("pending = %s, %v; want e004 and e005 in it", pending, err)
	}
	late := openWith(t, pool, "late")

	r := startRepublish(t, log, operator.RepublishRequest{All: true})
	if r.Events != 7 {
		t.Errorf("the republish has %d events, want 7", r.Events)
	}
	ids, again1 := again(t, term, 100)
	wantIDs(t, ids, "e000", "e003", "e006")
	publishAgain(t, term, again1.Events...)
	wantRepublish(t, log, r.ID, operator.RepublishDone, 3, 4, 0)
	commit(t, late)
}

// If an event is committed below the position of a republish and was not published, it stays
// with the live path.
func TestARepublishLeavesLateEventsAlone(t *testing.T) {
	t.Parallel()
	pool, log, term := publishedLog(t, "a")
	early := openWith(t, pool, "early")
	write(t, pool, "b")
	_, seqs, _ := read(t, term, 10)
	record(t, term, seqs...)
	commit(t, early)
	r := startRepublish(t, log, operator.RepublishRequest{All: true})
	ids, page := again(t, term, 10)
	wantIDs(t, ids, "a", "b")
	publishAgain(t, term, page.Events...)
	wantRepublish(t, log, r.ID, operator.RepublishDone, 2, 1, 0)
	ids, _, _ = read(t, term, 10)
	wantIDs(t, ids, "early")
}

// If the broker refuses an event of a republish, it is held with the republish's id, and holds
// up no other event.
func TestRefusedEventIsHeldWithItsRepublish(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	writeKeyed(t, pool, "k", "a", "b")
	log := pglog.New(pool)
	term := lead(t, log)
	_, seqs, _ := read(t, term, 10)
	record(t, term, seqs...)
	r := startRepublish(t, log, operator.RepublishRequest{All: true})
	_, page := again(t, term, 10)
	err := term.Record(t.Context(), eventlog.Progress{
		Republished: []eventlog.RepublishResult{{RepublishID: r.ID, Seq: seqs[1]}},
		Held:        []eventlog.Deferral{{Seq: seqs[0], RepublishID: r.ID, Failure: dead()}},
	})
	if err != nil || len(page.Events) != 2 {
		t.Fatal(err, page)
	}
	wantRepublish(t, log, r.ID, operator.RepublishDone, 1, 0, 1)
	wantHeld(t, pool, "a dead 1")
	var republish int64
	var key *string
	if err := pool.QueryRow(t.Context(), "SELECT republish, chain FROM postroom.held").Scan(&republish, &key); err != nil || republish != r.ID || key != nil {
		t.Errorf("held for republish %d with key %v, %v; want %d and none", republish, key, err, r.ID)
	}
	if keys, err := term.HeldKeys(t.Context()); err != nil || len(keys) > 0 {
		t.Errorf("keys %q wait, %v; want none", keys, err)
	}

	// An operator replays it. The event is read with the republish's id, and it does not hold up
	// another event of its key.
	mustExec(t, pool, "UPDATE postroom.held SET dead_at = NULL, next_at = now(), replays = 1")
	writeKeyed(t, pool, "k", "c")
	ids, seqs, live := read(t, term, 10)
	wantIDs(t, ids, "c", "a")
	for _, ev := range live.Events {
		if (ev.RepublishID == r.ID) != (ev.ID == "a") || ev.ID == "a" && (!ev.Held || !ev.Unordered || ev.Replays != 1) {
			t.Errorf("event %s: republish %d, held %t, unordered %t, replays %d", ev.ID, ev.RepublishID, ev.Held, ev.Unordered, ev.Replays)
		}
	}
	record(t, term, seqs...)
	wantHeld(t, pool)
}

// If an operator cancels a republish, no more of it is read. Events that are on their way are
// counted.
func TestARepublishIsCancelled(t *testing.T) {
	t.Parallel()
	_, log, term := publishedLog(t, letters(10)...)
	first, second := startRepublish(t, log, operator.RepublishRequest{All: true}), startRepublish(t, log, operator.RepublishRequest{Types: []string{"order.placed"}})
	ids, page := again(t, term, 3)
	wantIDs(t, ids, "e000", "e001", "e002")
	if _, err := republishesOf(log).CancelRepublish(t.Context(), first.ID, postroom.Audit{Actor: "bob", Reason: "wrong one"}); err != nil {
		t.Fatal(err)
	}
	ids, next := again(t, term, 2)
	wantIDs(t, ids, "e000", "e001")
	if len(next.Ended) != 1 || next.Ended[0].ID != first.ID || !next.Ended[0].Cancelled || next.ID != second.ID {
		t.Errorf("after it was cancelled: ended %+v, reads %d", next.Ended, next.ID)
	}
	p := eventlog.Progress{Republished: []eventlog.RepublishResult{
		{RepublishID: first.ID, Seq: page.Events[0].Seq},
		{RepublishID: first.ID, Seq: page.Events[1].Seq, Dropped: true},
		{RepublishID: second.ID, Seq: next.Events[1].Seq},
	}}
	if err := term.Record(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	wantRepublish(t, log, first.ID, operator.RepublishCancelled, 1, 0, 0)
	wantRepublish(t, log, second.ID, operator.RepublishRunning, 1, 0, 0)
	if _, err := republishesOf(log).CancelRepublish(t.Context(), first.ID, postroom.Audit{Actor: "bob"}); err == nil {
		t.Error("it is cancelled twice")
	}
}

// Retention keeps the events that a republish has still to read, and those that are on their
// way.
func TestRetentionWaitsForARepublish(t *testing.T) {
	t.Parallel()
	pool, log, term := publishedLog(t, letters(6)...)
	overrideCreatedAt(t, pool, time.Hour, letters(6)...)
	r := startRepublish(t, log, operator.RepublishRequest{All: true})
	prune(t, term, time.Minute)
	wantLog(t, pool, letters(6)...)

	_, page := again(t, term, 4)
	publishAgain(t, term, page.Events[0], page.Events[1], page.Events[3])
	term.PruneFromStart()
	prune(t, term, time.Minute)
	wantLog(t, pool, letters(6)[2:]...) // e002 is on its way

	publishAgain(t, term, page.Events[2])
	term.PruneFromStart()
	prune(t, term, time.Minute)
	wantLog(t, pool, letters(6)[4:]...)

	if _, err := republishesOf(log).CancelRepublish(t.Context(), r.ID, postroom.Audit{Actor: "ann"}); err != nil {
		t.Fatal(err)
	}
	term.PruneFromStart()
	prune(t, term, time.Minute)
	wantLog(t, pool)
}

// A stale leader cannot record progress of a republish.
func TestFormerLeaderCannotRecordARepublish(t *testing.T) {
	t.Parallel()
	_, log, former := publishedLog(t, letters(3)...)
	r := startRepublish(t, log, operator.RepublishRequest{All: true})
	_, page := again(t, former, 10)
	lead(t, log)
	p := eventlog.Progress{}
	for _, ev := range page.Events {
		p.Republished = append(p.Republished, eventlog.RepublishResult{RepublishID: r.ID, Seq: ev.Seq})
	}
	if err := former.Record(t.Context(), p); err == nil {
		t.Error("Record = nil, want that the lease is lost")
	}
	wantRepublish(t, log, r.ID, operator.RepublishRunning, 0, 0, 0)
}

// A page looks at a bounded part of a log, however little a filter lets pass.
func TestAPageOfARepublishIsBounded(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	fill(t, pool, 25_000, 10)
	mustExec(t, pool, "INSERT INTO postroom.outbox (digest, source, event_id, type, subject, data) VALUES (decode(repeat('00', 16), 'hex'), '/shop', 'last', 'c.d', 'c.d', '')")
	publishAll(t, pool)
	log := pglog.New(pool)
	term := lead(t, log)
	// The republish would begin at the first event that matches. So the row is changed to begin at
	// the start of the log.
	r := startRepublish(t, log, operator.RepublishRequest{Types: []string{"c.d"}})
	mustExec(t, pool, "UPDATE postroom.republish SET lo = 1, passed = 0")
	pages := 0
	for {
		ids, page := again(t, term, 100)
		pages++
		if len(ids) > 0 {
			wantIDs(t, ids, "last")
			publishAgain(t, term, page.Events...)
			break
		}
		if !page.Advanced || pages > 20 {
			t.Fatalf("page %d: %+v", pages, page.RepublishStatus)
		}
	}
	if pages != 13 {
		t.Errorf("the last of 25,001 events was on page %d, want 13", pages)
	}
	wantRepublish(t, log, r.ID, operator.RepublishDone, 1, 0, 0)
}

// The ids of republishes are not in the order of their commits. If a republish with a lower id
// becomes visible while another one is read, both end, and no event is read twice.
func TestARepublishWithALowerIDIsCommittedLate(t *testing.T) {
	t.Parallel()
	pool, log, term := publishedLog(t, letters(5)...)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	var lower int64
	err = tx.QueryRow(t.Context(), `INSERT INTO postroom.republish (actor, kind, lo, hi, events, rate, digest, passed)
		VALUES ('ann', 'range', 1, 5, 5, 1000, 'lower', 0) RETURNING id`).Scan(&lower)
	if err != nil {
		t.Fatal(err)
	}
	higher := startRepublish(t, log, operator.RepublishRequest{All: true})
	if higher.ID <= lower {
		t.Fatalf("the ids are %d and %d", lower, higher.ID)
	}
	ids, first := again(t, term, 2)
	wantIDs(t, ids, "e000", "e001")
	commit(t, tx)
	times := map[string]int{fmt.Sprint(higher.ID, " e000"): 1, fmt.Sprint(higher.ID, " e001"): 1}
	for round := range 20 {
		_, page := again(t, term, 2)
		for _, ev := range page.Events {
			times[fmt.Sprint(ev.RepublishID, " ", ev.ID)]++
		}
		publishAgain(t, term, page.Events...)
		if round == 5 { // the results of the first page arrive late
			publishAgain(t, term, first.Events...)
		}
	}
	for event, n := range times {
		if n != 1 {
			t.Errorf("event %s is read %d times", event, n)
		}
	}
	wantRepublish(t, log, lower, operator.RepublishDone, 5, 0, 0)
	wantRepublish(t, log, higher.ID, operator.RepublishDone, 5, 0, 0)
}
