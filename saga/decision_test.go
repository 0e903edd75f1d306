package saga_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/saga"
)

// by is the operator of tests.
var by = postroom.Audit{Actor: "ann", Reason: "the vendor says so"}

// decide gives a decision to the store, and the event of it to the saga.
func (w *rig) decide(d saga.Decision) postroom.Event {
	w.Helper()
	d.Saga, d.Revision = "travel", w.row(d.Key).Revision
	id, err := saga.NewStore(w.pool, saga.StoreConfig{}).Decide(w.Context(), d, by)
	if err != nil {
		w.Fatal(err)
	}
	ev := w.wants("travel.decision")[0]
	if ev.ID != id || ev.Source != "/operator" || ev.Key != d.Key {
		w.Fatalf("the event is %+v", ev)
	}
	w.give(ev)
	return ev
}

func TestDecisions(t *testing.T) {
	t.Parallel()
	w := newRig(t)
	t.Run("retry", func(t *testing.T) {
		_, payment := w.upTo("retry")
		ev := w.decide(saga.Decision{Key: "retry", Choice: saga.Retry})
		again := w.wants("payment.charge")[0]
		if again.ID != payment.ID+".2" || saga.StepKey(again) != saga.StepKey(payment) || again.CausationID != ev.ID {
			t.Errorf("sent again as %+v", again)
		}
		w.give(w.reply(again, "payment.charged", nil))
		w.wants("travel.booked")
	})
	t.Run("the first of two commands failed", func(t *testing.T) {
		_, payment := w.upTo("failed")
		w.decide(saga.Decision{Key: "failed", Choice: saga.Retry})
		w.wants("payment.charge")
		w.give(w.reply(payment, "payment.declined", nil)) // the second command may still take effect
		w.wants("payment.refund")
	})
	t.Run("the reply to the first of two commands", func(t *testing.T) {
		_, payment := w.upTo("first")
		w.decide(saga.Decision{Key: "first", Choice: saga.Retry})
		w.wants("payment.charge")
		w.give(w.reply(payment, "payment.charged", nil))
		w.wants("travel.booked")
	})
	t.Run("skip", func(t *testing.T) {
		w.upTo("skip")
		w.decide(saga.Decision{Key: "skip", Choice: saga.Skip})
		if ended := w.wants("travel.booked")[0]; strings.Contains(string(ended.Data), "receipt") {
			t.Errorf("the state changed: %s", ended.Data)
		}
	})
	t.Run("done", func(t *testing.T) {
		w.upTo("done")
		w.decide(saga.Decision{Key: "done", Choice: saga.MarkDone, Data: json.RawMessage(`{"receipt": "by hand", "x": null, "n": 12345678901234567890}`)})
		if ended := w.wants("travel.booked")[0]; !strings.Contains(string(ended.Data), `"receipt":"by hand"`) {
			t.Errorf("the state did not change: %s", ended.Data)
		}
	})
	t.Run("done, without data", func(t *testing.T) {
		w.upTo("plain")
		w.exec(`UPDATE postroom.saga SET data = '{"id":"plain","seats":2,"receipt":"before"}' WHERE key = 'plain'`)
		w.decide(saga.Decision{Key: "plain", Choice: saga.MarkDone})
		if ended := w.wants("travel.booked")[0]; !strings.Contains(string(ended.Data), `"receipt":"before"`) {
			t.Errorf("the state changed: %s", ended.Data)
		}
	})
	t.Run("compensate", func(t *testing.T) {
		w.upTo("undo")
		w.decide(saga.Decision{Key: "undo", Choice: saga.Compensate})
		w.wants("payment.refund")
		w.decide(saga.Decision{Key: "undo", Choice: saga.Retry})
		refund := w.wants("payment.refund")[0]
		w.give(w.reply(refund, "payment.refunded", nil))
		w.wants("seat.free")
		w.decide(saga.Decision{Key: "undo", Choice: saga.Skip})
		w.wants("travel.cancelled")
	})
	var n int
	if err := w.pool.QueryRow(t.Context(), "SELECT count(*) FROM postroom.audit WHERE action LIKE 'saga %' AND actor = 'ann'").Scan(&n); err != nil || n != 9 {
		t.Errorf("%d rows of audit, want 9, %v", n, err)
	}
}

func TestLateDecisionsChangeNothing(t *testing.T) {
	t.Parallel()
	w := newRig(t)
	store := saga.NewStore(w.pool, saga.StoreConfig{})
	_, payment := w.upTo("t1")
	d := saga.Decision{Saga: "travel", Key: "t1", Revision: w.row("t1").Revision, Choice: saga.Compensate}
	if _, err := store.Decide(t.Context(), d, by); err != nil {
		t.Fatal(err)
	}
	ev := w.wants("travel.decision")[0]
	w.give(w.reply(payment, "payment.charged", nil)) // while the decision was on its way
	w.wants("travel.booked")
	w.give(ev)
	w.wants()
	w.is("t1", "done", "confirm")
	if note := w.row("t1").Note; !strings.Contains(note, "has changed since then") {
		t.Errorf("the note is %q", note)
	}
	if _, err := store.Decide(t.Context(), d, by); !errors.Is(err, saga.ErrOver) {
		t.Errorf("a decision on what has ended: %v", err)
	}
	d.Key = "t9"
	if _, err := store.Decide(t.Context(), d, by); !errors.Is(err, saga.ErrUnknown) {
		t.Errorf("a decision on nothing: %v", err)
	}
	var rows int
	if err := w.pool.QueryRow(t.Context(), "SELECT count(*) FROM postroom.audit").Scan(&rows); err != nil || rows != 1 {
		t.Errorf("%d rows of audit, want 1: %v", rows, err)
	}

	// This instance has changed since then, and still runs.
	w.begin("t2")
	seat := w.wants("seat.book", "travel.deadline")[0]
	d = saga.Decision{Saga: "travel", Key: "t2", Revision: 1, Choice: saga.Skip}
	if _, err := store.Decide(t.Context(), d, by); err != nil {
		t.Fatal(err)
	}
	ev = w.wants("travel.decision")[0]
	w.give(w.reply(seat, "seat.booked", nil))
	w.wants("payment.charge")
	w.give(ev)
	w.wants()
	w.is("t2", "running", "payment")
	if _, err := store.Decide(t.Context(), d, by); !errors.Is(err, saga.ErrOver) {
		t.Errorf("a decision for revision 1: %v", err)
	}
}

// Of two operators who look at the same revision, one decides, and the other is told so. If the saga
// cannot carry the decision out, another one may take its place.
func TestOneDecisionForARevision(t *testing.T) {
	t.Parallel()
	w := newRig(t)
	store := saga.NewStore(w.pool, saga.StoreConfig{})
	w.upTo("t1")
	w.upTo("t2")
	d := saga.Decision{Saga: "travel", Key: "t1", Revision: w.row("t1").Revision, Choice: saga.Skip}
	errs := make(chan error, 8)
	for range cap(errs) {
		go func() {
			_, err := store.Decide(t.Context(), d, by)
			errs <- err
		}()
	}
	var decided int
	for range cap(errs) {
		switch err := <-errs; {
		case err == nil:
			decided++
		case !errors.Is(err, saga.ErrDecided) || !strings.Contains(err.Error(), "ann decided skip at 20"):
			t.Errorf("the second decision: %v", err)
		}
	}
	events := w.wants("travel.decision")
	if decided != 1 {
		t.Errorf("%d operators were told that they decided, want 1", decided)
	}
	w.give(events[0])
	w.wants("travel.booked")
	w.is("t1", "done", "confirm")

	d = saga.Decision{Saga: "travel", Key: "t2", Revision: w.row("t2").Revision, Choice: saga.MarkDone, Data: json.RawMessage(`{"receipt": 7}`)} // the saga wants a text
	first, err := store.Decide(t.Context(), d, by)
	if err != nil {
		t.Fatal(err)
	}
	wrong := w.wants("travel.decision")[0]
	w.fails(w.try(wrong), "receipt", true)
	if _, err := store.Decide(t.Context(), d, by); !errors.Is(err, saga.ErrDecided) || !strings.Contains(err.Error(), first) {
		t.Errorf("while the decision may still be carried out: %v, want its event %s", err, first)
	}
	d.Data = json.RawMessage(`{"receipt": "by hand"}`)
	d.Instead = "another"
	if _, err := store.Decide(t.Context(), d, by); !errors.Is(err, saga.ErrDecided) {
		t.Errorf("in the place of another one: %v", err)
	}
	d.Instead = first
	if _, err := store.Decide(t.Context(), d, by); err != nil {
		t.Fatalf("in its place: %v", err)
	}
	right := w.wants("travel.decision")[0]
	w.give(wrong) // somebody replays it
	w.is("t2", "running", "payment")
	w.give(right)
	w.is("t2", "done", "confirm")
}

// While the saga carries out a decision, no other one takes its place.
func TestNoDecisionPassesOneThatIsCarriedOut(t *testing.T) {
	t.Parallel()
	w := newRig(t)
	store := saga.NewStore(w.pool, saga.StoreConfig{})
	w.upTo("t1")
	d := saga.Decision{Saga: "travel", Key: "t1", Revision: w.row("t1").Revision, Choice: saga.Skip}
	first, err := store.Decide(t.Context(), d, by)
	if err != nil {
		t.Fatal(err)
	}
	ev := w.wants("travel.decision")[0]
	second := make(chan error, 1)
	err = pgx.BeginFunc(t.Context(), w.pool, func(tx pgx.Tx) error {
		if err := w.saga.Handle(t.Context(), tx, ev); err != nil {
			return err
		}
		go func() {
			d.Choice, d.Instead = saga.Compensate, first
			_, err := store.Decide(t.Context(), d, by)
			second <- err
		}()
		devtest.Eventually(t, time.Minute, "the second decision to wait", func() bool {
			var waits bool
			err := w.pool.QueryRow(t.Context(), "SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'").Scan(&waits)
			return err != nil || waits || len(second) > 0
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := <-second; !errors.Is(err, saga.ErrOver) {
		t.Errorf("the second decision: %v, want ErrOver", err)
	}
}

// Every program that may publish can write an event of type decision. The event counts only if
// decide_saga has recorded it, with the same content. A row of the audit does not help.
func TestForgedDecisions(t *testing.T) {
	t.Parallel()
	w := newRig(t)
	w.upTo("t1")
	w.upTo("t2")
	real, err := saga.NewStore(w.pool, saga.StoreConfig{}).
		Decide(t.Context(), saga.Decision{Saga: "travel", Key: "t2", Revision: 2, Choice: saga.Skip}, by)
	if err != nil {
		t.Fatal(err)
	}
	authentic := w.wants("travel.decision")[0]
	forged := postroom.NewEvent("travel.decision", map[string]any{"saga": "travel", "key": "t1", "step": "payment", "revision": 2, "action": "skip"})
	forged.Key, forged.Source = "t1", "/operator"
	taken := forged // the id of a decision on another instance
	taken.ID = real
	moved := authentic // the content of a decision on another instance
	moved.Key = "t1"
	audited := forged // a role that may write the audit writes a row for it
	audited.ID = "audited"
	w.exec(`INSERT INTO postroom.audit (actor, action, reason, events, source, event_id, details)
		VALUES ('ann', 'saga skip', '', 1, '/operator', 'audited', jsonb_build_object('sha256', encode(sha256($1::bytea), 'hex')))`, forged.Data)
	elsewhere := authentic // from a source that anybody may use
	elsewhere.Source = "/trips"
	changed := authentic // another content for the same decision
	changed.Data = []byte(strings.Replace(string(authentic.Data), "skip", "compensate", 1))
	for _, ev := range []postroom.Event{forged, taken, moved, audited} {
		w.exec("UPDATE postroom.saga SET note = NULL")
		w.give(ev)
		w.is("t1", "running", "payment")
		if note := w.row("t1").Note; !strings.Contains(note, "was refused") {
			t.Errorf("the note is %q", note)
		}
	}
	for _, ev := range []postroom.Event{elsewhere, changed} {
		w.give(ev)
		w.is("t2", "running", "payment")
	}
	w.wants()
	w.give(authentic)
	w.is("t2", "done", "confirm")
}

func TestDecisionsThatDoNotFitAreRefused(t *testing.T) {
	t.Parallel()
	w := newRig(t)
	store := saga.NewStore(w.pool, saga.StoreConfig{})
	for name, d := range map[string]saga.Decision{
		"no choice":         {},
		"another choice":    {Choice: "explode"},
		"data for skip":     {Choice: saga.Skip, Data: json.RawMessage("{}")},
		"data, and no JSON": {Choice: saga.MarkDone, Data: json.RawMessage("{")},
	} {
		if _, err := store.Decide(t.Context(), d, by); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := store.Decide(t.Context(), saga.Decision{Choice: saga.Skip}, postroom.Audit{}); err == nil || !strings.Contains(err.Error(), "Actor") {
		t.Errorf("a decision without an actor: %v", err)
	}
	w.upTo("t1")
	w.upTo("t2")
	w.decide(saga.Decision{Key: "t2", Choice: saga.Compensate})
	w.wants("payment.refund")
	for _, key := range []string{"t3", "t4"} {
		w.begin(key)
		w.wants("seat.book", "travel.deadline")
	}
	w.exec("UPDATE postroom.saga SET step = 'confirm' WHERE key IN ('t3', 't4')")
	for text, d := range map[string]saga.Decision{
		"seat.freed is not a reply that ends step payment: use payment.charged": {Key: "t1", Choice: saga.MarkDone, Type: "seat.freed"},
		"it is already being undone":                       {Key: "t2", Choice: saga.Compensate},
		"use payment.refunded":                             {Key: "t2", Choice: saga.MarkDone, Type: "payment.charged"},
		"step confirm sends no command":                    {Key: "t3", Choice: saga.Retry},
		"step confirm does not wait for a reply: use skip": {Key: "t3", Choice: saga.MarkDone},
	} {
		d.Saga, d.Revision = "travel", w.row(d.Key).Revision
		if _, err := store.Decide(t.Context(), d, by); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s on %s: %v, want %q", d.Choice, d.Key, err, text)
		}
	}
	w.wants()

	// The saga itself refuses these decisions too.
	w.fails(w.carryOut(saga.Decision{Key: "t1", Choice: saga.MarkDone, Type: "seat.freed"}), "not a reply that ends step payment", true)
	w.is("t1", "running", "payment")
	w.fails(w.carryOut(saga.Decision{Key: "t2", Choice: saga.Compensate}), "is already being undone", true)
	w.fails(w.carryOut(saga.Decision{Key: "t3", Choice: saga.Retry}), "step confirm sends no command", true)
	w.fails(w.carryOut(saga.Decision{Key: "t4", Choice: saga.MarkDone}), "step confirm does not wait for a reply", true)
}

// carryOut writes a decision without the store, and gives it to the saga.
func (w *rig) carryOut(d saga.Decision) error {
	w.Helper()
	w.exec("SELECT postroom.decide_saga('travel', $1, $2, $3, $4, NULL, 'ann', '', NULL)", d.Key, w.row(d.Key).Revision, d.Choice, d.Type)
	return w.try(w.wants("travel.decision")[0])
}

// A program begins to undo an instance, in its own transaction.
func TestCompensate(t *testing.T) {
	t.Parallel()
	w := newRig(t)
	compensate := func(key string) error {
		return pgx.BeginFunc(t.Context(), w.pool, func(tx pgx.Tx) error {
			return w.saga.Compensate(t.Context(), tx, key, func(s *trip) { s.Reason = "the customer called" })
		})
	}
	_, payment := w.upTo("t1")
	for range 2 {
		if err := compensate("t1"); err != nil {
			t.Fatal(err)
		}
	}
	refund := w.wants("payment.refund")[0]
	if refund.CausationID != payment.ID || !strings.Contains(string(refund.Data), "the customer called") {
		t.Errorf("the Undo is %+v %s", refund, refund.Data)
	}
	w.give(w.reply(payment, "payment.charged", nil)) // too late
	w.give(w.reply(refund, "payment.refunded", nil))
	w.give(w.reply(w.wants("seat.free")[0], "seat.freed", nil))
	w.wants("travel.cancelled")
	if err := compensate("t1"); err != nil {
		t.Errorf("an undone one: %v", err)
	}
	_, payment = w.upTo("t2")
	w.give(w.reply(payment, "payment.charged", nil))
	w.wants("travel.booked")
	if err := compensate("t2"); !errors.Is(err, saga.ErrOver) {
		t.Errorf("a done one: %v", err)
	}
	if err := compensate("t3"); !errors.Is(err, saga.ErrUnknown) {
		t.Errorf("none: %v", err)
	}
}

// The saga's subscription has Isolation RepeatableRead (or Serializable). The operator replaces a decision after the
// saga's transaction has begun and before it locks the instance. The saga does not carry out the
// replaced one.
func TestAReplacedDecisionIsNotCarriedOutFromAnOldSnapshot(t *testing.T) {
	t.Parallel()
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			w := newRig(t)
			w.upTo("t1")
			store := saga.NewStore(w.pool, saga.StoreConfig{})
			d := saga.Decision{Saga: "travel", Key: "t1", Revision: w.row("t1").Revision, Choice: saga.Skip}
			first, err := store.Decide(t.Context(), d, by)
			if err != nil {
				t.Fatal(err)
			}
			skip := w.wants("travel.decision")[0]
			err = pgx.BeginTxFunc(t.Context(), w.pool, pgx.TxOptions{IsoLevel: level}, func(tx pgx.Tx) error {
				if _, err := tx.Exec(t.Context(), "SELECT count(*) FROM postroom.inbox"); err != nil { // the inbox's own statements come first
					return err
				}
				d.Choice, d.Instead = saga.Compensate, first
				if _, err := store.Decide(t.Context(), d, by); err != nil {
					t.Fatal(err)
				}
				return w.saga.Handle(t.Context(), tx, skip)
			})
			if r := w.row("t1"); r.State == "done" {
				t.Errorf("the saga carried out the replaced decision (error %v): %+v", err, r)
			}
			w.give(w.events()[0])
			w.is("t1", "compensating", "payment")
		})
	}
}
