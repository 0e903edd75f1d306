package deadletter_test

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/deadletter"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
)

// A discarded event stays discarded when it comes again, until an operator reopens it.
func TestDiscardAndReopen(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	all := events(3)
	n.die("billing", declined, all...)
	id := n.number("SELECT id FROM postroom.held WHERE event_id = 'e1'")
	diedAt := n.texts("SELECT dead_at::text FROM postroom.held WHERE id = $1", id)[0]
	for _, by := range []postroom.Audit{{Actor: "ann"}, {Reason: "test data"}, {}} {
		if _, err := n.store.Discard(t.Context(), deadletter.Filter{All: true}, deadletter.ChangeOptions{}, by); err == nil {
			t.Errorf("discarded by %+v", by)
		}
	}
	n.want("dead", 3, "SELECT count(*) FROM postroom.held WHERE dead_at IS NOT NULL")
	n.want("in the audit", 0, "SELECT count(*) FROM postroom.audit")

	by := postroom.Audit{Actor: "bob", Reason: "test data"}
	if got, err := n.store.Discard(t.Context(), deadletter.Filter{IDs: []int64{id}}, deadletter.ChangeOptions{}, by); err != nil || got != 1 {
		t.Fatalf("Discard = %d, %v", got, err)
	}
	n.want("in the audit", 1, `SELECT count(*) FROM postroom.audit WHERE action = 'discard' AND actor = 'bob' AND reason = 'test data' AND events = 1
		AND handler = 'billing' AND source = '/shop' AND event_id = 'e1' AND details #>> '{filter,ids}' IS NOT NULL`)
	w, err := n.store.Get(t.Context(), id)
	if err != nil || w.State != deadletter.Discarded || w.DiscardedAt.IsZero() || string(w.Data) != string(all[0].Data) || len(w.Failures) != 1 {
		t.Errorf("Show = %+v, %v", w, err)
	}
	letters, _, err := n.store.List(t.Context(), deadletter.Filter{Discarded: true}, postroom.Page{})
	if err != nil || len(letters) != 1 || letters[0].EventID != "e1" {
		t.Errorf("List of discarded ones = %+v, %v", letters, err)
	}
	if _, err := n.store.Discard(t.Context(), deadletter.Filter{IDs: []int64{id}}, deadletter.ChangeOptions{}, by); !errors.Is(err, deadletter.ErrNoMatch) {
		t.Errorf("a second discard = %v", err)
	}

	in := n.inbox()
	in.Handle(sub("billing"), newScript().handler("billing"))
	stop := n.run(in)
	if got, err := in.Accept(t.Context(), "billing", all[0]); err != nil || got != inbox.Duplicate {
		t.Errorf("accepted again: %v, %v", got, err)
	}
	n.want("dead", 2, "SELECT count(*) FROM postroom.held")
	n.want("effects", 0, "SELECT count(*) FROM effect")

	if got, err := n.store.Reopen(t.Context(), deadletter.Filter{IDs: []int64{id}}, deadletter.ChangeOptions{}, by); err != nil || got != 1 {
		t.Fatalf("Reopen = %d, %v", got, err)
	}
	n.want("reopened, as it died", 1, "SELECT count(*) FROM postroom.held WHERE id = $1 AND dead_at = $2::timestamptz AND next_at IS NULL AND chain IS NULL AND class = 'error'", id, diedAt)
	n.want("archived", 0, "SELECT count(*) FROM postroom.archive")
	n.want("in the audit", 1, "SELECT count(*) FROM postroom.audit WHERE action = 'reopen' AND actor = 'bob' AND reason = 'test data' AND events = 1 AND event_id = 'e1'")
	if _, err := n.store.Reopen(t.Context(), deadletter.Filter{IDs: []int64{id}}, deadletter.ChangeOptions{}, by); !errors.Is(err, deadletter.ErrNoMatch) {
		t.Errorf("a second reopening = %v", err)
	}
	if got, err := in.Accept(t.Context(), "billing", all[0]); err != nil || got != inbox.Duplicate {
		t.Errorf("accepted again: %v, %v", got, err)
	}
	if job := n.runReplay(n.replay(only("e1"), deadletter.ReplayOptions{})); job.Succeeded != 1 {
		t.Errorf("replay: %+v", job)
	}
	n.wantOnce("billing", 1)
	stop()
	w, err = n.store.Get(t.Context(), n.number("SELECT id FROM postroom.held WHERE event_id = 'e2'"))
	if err != nil || len(w.History) != 0 {
		t.Errorf("history of another event: %+v, %v", w.History, err)
	}
}

// If an event dies again, its earlier history is still known.
func TestHistory(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	n.die("billing", declined, event("e1"))
	id := n.number("SELECT id FROM postroom.held")
	stop := n.handle("billing", declined)
	n.runReplay(n.replay(deadletter.Filter{All: true}, deadletter.ReplayOptions{}))
	stop()
	n.discarded(only("e1"), 1)
	n.reopened(deadletter.Filter{EventID: "e1"}, 1)
	w, err := n.store.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	var actions []string
	for _, e := range w.History {
		actions = append(actions, e.Action+e.Outcome)
		if e.Actor != n.by.Actor || e.Reason != n.by.Reason {
			t.Errorf("entry: %+v", e)
		}
	}
	if want := []string{"replayedfailed", "discard", "reopen"}; !slices.Equal(actions, want) {
		t.Errorf("history: %v, want %v", actions, want)
	}
}

// More events than one transaction handles are discarded in parts. Each part is committed, and is
// in the audit, when progress is called for it.
func TestBulk(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	n.seed(2500, 2, 3)
	var told []int64
	progress := func(count int64) {
		told = append(told, count)
		n.want("archived when it is told", count, "SELECT count(*) FROM postroom.archive")
	}
	if got, err := n.store.Discard(t.Context(), deadletter.Filter{All: true}, deadletter.ChangeOptions{Progress: progress}, n.by); err != nil || got != 2500 {
		t.Fatalf("Discard = %d, %v", got, err)
	}
	if want := []int64{1000, 2000, 2500}; !slices.Equal(told, want) {
		t.Errorf("progress: %v, want %v", told, want)
	}
	n.want("in the audit", 3, "SELECT count(*) FROM postroom.audit WHERE action = 'discard' AND actor = 'ann' AND event_id IS NULL")
	n.want("events in the audit", 2500, "SELECT sum(events) FROM postroom.audit")
	n.want("inbox rows", 2500, "SELECT count(*) FROM postroom.inbox")
	n.want("archived with their audit row", 2500, "SELECT count(*) FROM postroom.archive JOIN postroom.audit a ON a.id = archive.audit AND a.reason = $1", n.by.Reason)
	told = nil
	if got, err := n.store.Reopen(t.Context(), deadletter.Filter{Handler: "h0"}, deadletter.ChangeOptions{Limit: 1100, Progress: func(count int64) { told = append(told, count) }}, n.by); err != nil || got != 1100 {
		t.Fatalf("Reopen = %d, %v", got, err)
	}
	if want := []int64{1000, 1100}; !slices.Equal(told, want) {
		t.Errorf("progress: %v, want %v", told, want)
	}
	n.want("dead", 1100, "SELECT count(*) FROM postroom.held WHERE dead_at IS NOT NULL AND handler = 'h0'")
}

// One operator discards the events that another replays. Each event is either discarded or
// replayed.
func TestDiscardBesideAReplay(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	const all = 1500
	n.seed(all, 1, 1)
	in := n.inbox()
	s := sub("h0")
	s.Workers = 8
	in.Handle(s, newScript().handler("h0"))
	n.run(in)
	job := n.replay(deadletter.Filter{All: true}, deadletter.ReplayOptions{})
	finished := n.startReplay(job)
	devtest.Eventually(n, patience, "the first effects", func() bool { return n.number("SELECT count(*) FROM effect") > 100 })
	var discarded int64
	for done := false; !done; {
		got, err := n.store.Discard(t.Context(), deadletter.Filter{All: true}, deadletter.ChangeOptions{Limit: 50}, n.by)
		discarded += got
		if err != nil && !errors.Is(err, deadletter.ErrNoMatch) {
			t.Errorf("Discard = %d, %v", got, err)
		}
		select {
		case ended := <-finished:
			if ended.Succeeded+ended.Skipped != all || ended.Failed != 0 || int64(ended.Skipped) != discarded {
				t.Errorf("result: %+v, %d discarded", ended, discarded)
			}
			done = true
		default:
		}
	}
	if discarded == 0 || discarded > all-100 {
		t.Errorf("inconclusive: %d were discarded", discarded)
	}
	n.want("archived", discarded, "SELECT count(*) FROM postroom.archive")
	n.want("events in the audit", discarded, "SELECT sum(events) FROM postroom.audit WHERE action = 'discard'")
	n.wantOnce("h0", all-discarded)
	n.want("both", 0, "SELECT count(*) FROM effect JOIN postroom.archive ON event_id = effect.id")
	n.want("held", 0, "SELECT count(*) FROM postroom.held")
}

// An operator discards all dead events while a replay releases some of them. Events that are no
// longer dead are skipped.
func TestDiscardOfAllBesideAReplay(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	const all = 5500
	n.seed(all, 1, 1)
	n.handle("h0", nil)
	job := n.replay(deadletter.Filter{All: true}, deadletter.ReplayOptions{})
	finished := n.startReplay(job)
	devtest.Eventually(n, patience, "the first effects", func() bool { return n.number("SELECT count(*) FROM effect") > 20 })
	got, err := n.store.Discard(t.Context(), deadletter.Filter{All: true}, deadletter.ChangeOptions{}, n.by)
	if err != nil || got < all/2 {
		t.Errorf("Discard = %d, %v", got, err)
	}
	if done := <-finished; done.State != deadletter.ReplayDone || int64(done.Succeeded) != all-got {
		t.Errorf("result: %+v, discarded %d", done, got)
	}
	n.wantOnce("h0", all-got)
	n.want("archived", got, "SELECT count(*) FROM postroom.archive")
}

// When an operator discards or replays events of handlers, the relay does not wait for that,
// nor the operator for the relay.
func TestHandlersEventsDoNotBlockTheRelay(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	n.seed(200, 1, 1)
	relay, err := n.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = relay.Rollback(t.Context()) }()
	if _, err := relay.Exec(t.Context(), "UPDATE postroom.relay SET epoch = epoch + 1"); err != nil {
		t.Fatal(err)
	}
	n.discarded(deadletter.Filter{Key: "k1"}, 2)
	n.reopened(deadletter.Filter{Key: "k1"}, 2)
	n.handle("h0", nil)
	if job := n.runReplay(n.replay(deadletter.Filter{All: true}, deadletter.ReplayOptions{})); job.Succeeded != 200 {
		t.Errorf("replay: %+v", job)
	}
}

// Two operators discard the same events. Each event is discarded once, and neither operator
// gets an error.
func TestTwoOperatorsDiscardEachEventOnce(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	n.seed(6000, 1, 1)
	counts := make(chan int64, 2)
	for range 2 {
		go func() {
			got, err := n.store.Discard(t.Context(), deadletter.Filter{All: true}, deadletter.ChangeOptions{}, n.by)
			if err != nil && !errors.Is(err, deadletter.ErrNoMatch) {
				t.Errorf("Discard = %d, %v", got, err)
			}
			counts <- got
		}()
	}
	if sum := <-counts + <-counts; sum != 6000 {
		t.Errorf("%d discarded in all", sum)
	}
	n.want("archived", 6000, "SELECT count(*) FROM postroom.archive")
	n.want("events in the audit", 6000, "SELECT sum(events) FROM postroom.audit")
}

// An inbox row of a discarded event does not expire, until the event is purged.
func TestInboxKeepsRowsOfDiscardedEvents(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	n.die("billing", declined, events(2)...)
	n.discarded(only("e1"), 1)
	n.exec("INSERT INTO postroom.inbox (handler, dedupe_key) SELECT 'billing', 'old ' || i FROM generate_series(1, 100) i")
	sweep := func() {
		t.Helper()
		n.exec("UPDATE postroom.inbox SET at = now() - interval '1 day'")
		n.exec("UPDATE postroom.sweep SET next_page = 0, due_at = now()")
		in := inbox.New(n.pool, nil, inbox.Config{DedupeWindow: 2 * time.Hour, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
		in.Handle(sub("billing"), newScript().handler("billing"))
		stop := n.run(in)
		devtest.Eventually(n, patience, "a sweep", func() bool {
			return n.number("SELECT count(*) FROM postroom.sweep WHERE due_at > now() + interval '1 second'") == 1
		})
		stop()
		n.exec("DELETE FROM postroom.node")
	}
	sweep()
	if got := n.texts("SELECT dedupe_key FROM postroom.inbox ORDER BY 1"); !slices.Equal(got, []string{"/shop e1", "/shop e2"}) {
		t.Errorf("inbox: %v, want the discarded events and the dead one", got)
	}
	var out bytes.Buffer
	if got, err := n.store.Purge(t.Context(), &out, deadletter.PurgeOptions{Before: time.Now().Add(time.Minute)}, n.by); err != nil || got != 1 {
		t.Errorf("Purge = %d, %v", got, err)
	}
	sweep()
	if got := n.texts("SELECT dedupe_key FROM postroom.inbox"); !slices.Equal(got, []string{"/shop e2"}) {
		t.Errorf("inbox after the purge: %v", got)
	}
}

// After a failover, the connections of the pool lead to a server that takes no writes, and new
// connections would lead to one that does. The first change fails, and the next one gets a new connection.
func TestChangesLeaveAServerThatTakesNoWrites(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	n.die("billing", declined, events(1)...)
	pool, err := pgxpool.New(t.Context(), n.pool.Config().ConnString()+"&pool_max_conns=2")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	devtest.TakeNoWrites(t, pool)
	store, by := deadletter.New(pool, deadletter.Config{}), postroom.Audit{Actor: "bob", Reason: "test data"}
	if got, err := store.Discard(t.Context(), deadletter.Filter{All: true}, deadletter.ChangeOptions{}, by); err == nil || !strings.Contains(err.Error(), "takes no writes") {
		t.Errorf("Discard = %d, %v, want an error that says why", got, err)
	}
	if got, err := store.Discard(t.Context(), deadletter.Filter{All: true}, deadletter.ChangeOptions{}, by); err != nil || got != 1 {
		t.Errorf("the next Discard = %d, %v", got, err)
	}
}

// The audit is kept for ever, and a text that an operator searched may be about a person.
func TestTheAuditKeepsNoTexts(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	n.seed(2, 1, 1)
	n.exec("UPDATE postroom.held SET data = 'ann@example.com'")
	f := deadletter.Filter{Text: "ann@example.com", Handler: "h0"}
	n.replay(f, deadletter.ReplayOptions{Limit: 1})
	if _, err := n.store.Discard(t.Context(), f, deadletter.ChangeOptions{Limit: 1}, n.by); err != nil {
		t.Fatal(err)
	}
	n.want("texts in the audit", 0, "SELECT count(*) FROM postroom.audit WHERE details::text LIKE '%ann@%'")
	n.want("rows of the audit that say what selected the events", 2, `SELECT count(*) FROM postroom.audit WHERE details @> '{"filter": {"handler": "h0", "text": "(not kept)"}}'`)
}

// A condition that is empty by mistake selects nothing: a filter without a condition changes no event.
func TestAFilterWithoutAConditionChangesNothing(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	n.die("billing", declined, events(3)...)
	cause := "" // what a program looked up, and did not find
	for name, act := range map[string]func(f deadletter.Filter) error{
		"Discard": func(f deadletter.Filter) error {
			_, err := n.store.Discard(t.Context(), f, deadletter.ChangeOptions{}, n.by)
			return err
		},
		"Reopen": func(f deadletter.Filter) error {
			_, err := n.store.Reopen(t.Context(), f, deadletter.ChangeOptions{}, n.by)
			return err
		},
		"CreateReplay": func(f deadletter.Filter) error {
			_, err := n.store.CreateReplay(t.Context(), f, deadletter.ReplayOptions{}, n.by)
			return err
		},
	} {
		if err := act(deadletter.Filter{Cause: cause}); !errors.Is(err, deadletter.ErrNoFilter) {
			t.Errorf("%s = %v, want ErrNoFilter", name, err)
		}
		if err := act(deadletter.Filter{All: true, Handler: "billing"}); err == nil || !strings.Contains(err.Error(), "leave out the other conditions") {
			t.Errorf("%s of all, and of a handler = %v, want an error", name, err)
		}
	}
	if got := n.number("SELECT count(*) FROM postroom.held WHERE dead_at IS NOT NULL"); got != 3 {
		t.Errorf("%d events are dead, want 3", got)
	}
	letters, _, err := n.store.List(t.Context(), deadletter.Filter{}, postroom.Page{})
	if err != nil || len(letters) != 3 {
		t.Errorf("List without a condition = %d events, %v; want all", len(letters), err)
	}
	if got, err := n.store.Discard(t.Context(), deadletter.Filter{All: true}, deadletter.ChangeOptions{}, n.by); err != nil || got != 3 {
		t.Errorf("Discard of all = %d, %v", got, err)
	}
}
