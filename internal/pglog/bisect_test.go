package pglog_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/internal/pglog"
)

// refuseEvil makes the table held refuse events whose id begins with evil, in their usual form.
const refuseEvil = `ALTER TABLE postroom.held ADD CONSTRAINT no_evil CHECK (event_id NOT LIKE 'evil%' OR dead_at IS NOT NULL AND class = 'unstorable') NOT VALID`

// recordedTrigger records, at commit, the state and the held events that each recording left.
const recordedTrigger = `
	CREATE TABLE recorded (n serial, high bigint, pending int8multirange, held bigint[]);
	CREATE FUNCTION note_recorded() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO public.recorded (high, pending, held)
		SELECT high, pending, ARRAY(SELECT pos FROM postroom.held WHERE handler = 'outbox' ORDER BY pos) FROM postroom.relay;
		RETURN NULL;
	END $$;
	CREATE CONSTRAINT TRIGGER witness AFTER UPDATE ON postroom.relay DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note_recorded()`

// neverAheadOfHeld fails the test if a transaction recorded an event as published although the
// event was neither published nor held when it committed. It returns how many transactions there
// were.
func neverAheadOfHeld(t *testing.T, pool *pgxpool.Pool, published ...int64) int {
	t.Helper()
	rows, _ := pool.Query(t.Context(), `
		SELECT r.n, o.seq FROM recorded r JOIN postroom.outbox o ON o.seq <= r.high
		WHERE NOT r.pending @> o.seq AND NOT o.seq = ANY (r.held) AND NOT o.seq = ANY ($1)`, published)
	lost, err := pgx.CollectRows(rows, pgx.RowToStructByPos[struct {
		N   int
		Seq int64
	}])
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range lost {
		t.Errorf("transaction %d says of event %d that it is published: it was not, and is not held", l.N, l.Seq)
	}
	var n int
	if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM recorded").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// The table held refuses some of many events. These become dead, with the reason and their
// content. The others are held in their usual form. The recorded state never counts an event as
// done that is neither published nor held.
func TestEventsThatCannotBeHeldAreDead(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	write(t, pool, "fine-0", "evil-0")
	writeKeyed(t, pool, "evil head", "evil-1", "fine-1")
	writeKeyed(t, pool, "good head", "fine-2", "evil-2", "fine-3")
	for n := range 60 {
		writeKeyed(t, pool, fmt.Sprint("key ", n%5), fmt.Sprint("fine-", 100+n))
	}
	schedule(t, pool, "later-0", time.Hour)
	schedule(t, pool, "evil-3", time.Hour)
	schedule(t, pool, "later-1", time.Hour)
	write(t, pool, "published")
	mustExec(t, pool, refuseEvil)
	mustExec(t, pool, recordedTrigger)

	term := lead(t, pglog.New(pool))
	_, seqs, page := read(t, term, 100)
	published := seqs[len(seqs)-1]
	progress := eventlog.Progress{Published: []int64{published}, Held: deferrals(refusal(1), page.Events[:len(page.Events)-1]...)}
	if err := term.Record(t.Context(), progress); err != nil {
		t.Fatal(err)
	}
	states := map[string]string{}
	for _, s := range heldStates(t, pool) {
		id, state, _ := strings.Cut(s, " ")
		states[id] = state
	}
	var evil []string
	rows, _ := pool.Query(t.Context(), `SELECT concat_ws('|', convert_from(raw_headers, 'UTF8')::jsonb ->> 'id', class, coalesce(chain, '-'), failures -> -1 ->> 'text', convert_from(data, 'UTF8'))
		FROM postroom.held WHERE class = 'unstorable' ORDER BY pos`)
	evil, err := pgx.CollectRows(rows, pgx.RowTo[string])
	const why = "it cannot be held as it is: SQLSTATE 23514 held no_evil"
	want := []string{
		"evil-0|unstorable|-|" + why + "; before that: broker: no|{}", "evil-1|unstorable|evil head|" + why + "; before that: broker: no|{}",
		"evil-2|unstorable|good head|" + why + "|{}", "evil-3|unstorable|-|" + why + "|{}",
	}
	if err != nil || !slices.Equal(evil, want) {
		t.Errorf("dead:\n%s\nwant\n%s\n%v", strings.Join(evil, "\n"), strings.Join(want, "\n"), err)
	}
	for id, want := range map[string]string{
		"fine-0": "retrying 1", "fine-1": "waiting 0", "fine-2": "retrying 1", "fine-3": "waiting 0", "later-0": "retrying 0", "later-1": "retrying 0",
		"fine-100": "retrying 1", "fine-105": "waiting 0",
	} {
		if states[id] != want {
			t.Errorf("%s is %q, want %q", id, states[id], want)
		}
	}
	if n := len(states); n != 1+1+2+3+60+3 {
		t.Errorf("%d events are held", n)
	}
	if n := neverAheadOfHeld(t, pool, published); n > 60 {
		t.Errorf("it took %d transactions for 69 events, 4 of which cannot be held", n)
	}
	var high int64
	var pending string
	if err := pool.QueryRow(t.Context(), "SELECT high, pending::text FROM postroom.relay").Scan(&high, &pending); err != nil || high != published || pending != "{}" {
		t.Errorf("recorded: high %d, pending %s, %v; want %d, {}", high, pending, err, published)
	}
	if _, _, page := read(t, term, 100); page.Unstorable != 4 || len(page.Events) > 0 {
		t.Errorf("the next page reports %d events that could not be held, and has %d", page.Unstorable, len(page.Events))
	}
	if _, _, page := read(t, term, 100); page.Unstorable != 0 {
		t.Error("they are reported twice")
	}
}

// A held event whose new form the table held refuses is dead. If its key is the cause, no
// event waits behind it.
func TestHeldEventsThatCannotBeHeldAgainAreDead(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	writeKeyed(t, pool, "a", "evil-a", "next-a")
	writeKeyed(t, pool, "b", "fine-b", "next-b")
	term := lead(t, pglog.New(pool))
	_, _, page := read(t, term, 10)
	hold(t, term, refusal(1), page.Events...)
	overrideNextAtOfDue(t, pool)
	mustExec(t, pool, refuseEvil)
	_, _, page = read(t, term, 10)
	again := deferrals(refusal(2), page.Events[0], page.Events[2])
	if err := term.Record(t.Context(), eventlog.Progress{Held: again, Returned: []int64{page.Events[1].Seq, page.Events[3].Seq}}); err != nil {
		t.Fatal(err)
	}
	wantHeld(t, pool, "evil-a dead 2", "next-a waiting 0", "fine-b retrying 2", "next-b waiting 0")

	mustExec(t, pool, "ALTER TABLE postroom.held ADD CONSTRAINT no_c CHECK (chain <> 'c')")
	writeKeyed(t, pool, "c", "c-0", "c-1")
	_, _, page = read(t, term, 10)
	hold(t, term, refusal(1), page.Events...)
	var keys int
	if err := pool.QueryRow(t.Context(), "SELECT count(*) FILTER (WHERE chain IS NULL AND dead_at IS NOT NULL) FROM postroom.held WHERE class = 'unstorable' AND pos >= $1", page.Events[0].Seq).Scan(&keys); err != nil || keys != 2 {
		t.Errorf("%d of the two events of a key that held does not take are dead without it, %v", keys, err)
	}
}

// If a recording ends in the middle, the next term reads the events that are not held yet
// again.
func TestNextTermReadsEventsOfAnUnfinishedRecording(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	const events = 40
	for n := range events {
		writeKeyed(t, pool, "", fmt.Sprintf("fine-%02d", n))
	}
	write(t, pool, "evil", "published")
	mustExec(t, pool, refuseEvil)
	mustExec(t, pool, recordedTrigger)
	// When a quarter of the events is held, another relay begins to lead.
	mustExec(t, pool, `
		CREATE FUNCTION usurp() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			UPDATE postroom.relay SET epoch = epoch + 1 WHERE (SELECT count(*) FROM postroom.held) >= 10 AND (SELECT count(*) FROM public.recorded) < 100;
			RETURN NULL;
		END $$;
		CREATE CONSTRAINT TRIGGER usurper AFTER INSERT ON postroom.held DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION usurp()`)
	term := lead(t, pglog.New(pool))
	_, seqs, page := read(t, term, 100)
	err := term.Record(t.Context(), eventlog.Progress{
		Published: seqs[events+1:], Held: deferrals(refusal(1), page.Events[:events+1]...),
	})
	if err == nil {
		t.Fatal("the recording succeeded, and another leads")
	}
	mustExec(t, pool, "DROP TRIGGER usurper ON postroom.held; UPDATE postroom.relay SET expires_at = '-infinity'")
	held := heldIDs(t, pool)
	if len(held) == 0 || len(held) > events {
		t.Fatalf("%d events are held: the test has not ended it in the middle", len(held))
	}
	neverAheadOfHeld(t, pool, seqs[events+1:]...)
	ids, _, _ := read(t, lead(t, pglog.New(pool)), 100)
	if len(ids) != events+1-len(held) || slices.Contains(ids, "published") {
		t.Errorf("read again: %v; held before that: %v", ids, held)
	}
}

// An event becomes visible late, before one of its key that is already due, and cannot be held
// as it is. It still holds its key up.
func TestALateEventThatCannotBeHeldHoldsItsKeyUp(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	late := openKeyed(t, pool, "evil", "k")
	writeKeyed(t, pool, "k", "due")
	term := lead(t, pglog.New(pool))
	_, _, page := read(t, term, 10)
	hold(t, term, refusal(1), page.Events...)
	overrideNextAtOfDue(t, pool)
	commit(t, late)
	mustExec(t, pool, refuseEvil)
	page, err := term.Read(t.Context(), 10, nil)
	if err != nil || len(page.Events) == 0 || page.Events[0].ID != "evil" {
		t.Fatalf("read %+v, %v", page, err)
	}
	progress := eventlog.Progress{Held: []eventlog.Deferral{{Seq: page.Events[0].Seq, Key: "k"}}}
	for _, ev := range page.Events[1:] {
		progress.Returned = append(progress.Returned, ev.Seq)
	}
	if err := term.Record(t.Context(), progress); err != nil {
		t.Fatal(err)
	}
	wantHeld(t, pool, "seq-1 dead 0", "due waiting 1")
}

func openKeyed(t *testing.T, pool *pgxpool.Pool, id, key string) pgx.Tx {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) }) // no effect after the commit
	ev := named(id)
	ev.Key = key
	if err := shop.Write(t.Context(), tx, ev); err != nil {
		t.Fatal(err)
	}
	return tx
}
