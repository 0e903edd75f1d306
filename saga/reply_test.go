package saga_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/saga"
)

func TestSagaEndsDone(t *testing.T) {
	t.Parallel()
	w := newRig(t)
	_, payment := w.upTo("t1")
	if payment.CausationID == "" {
		t.Error("the second command has no cause")
	}
	w.give(w.reply(payment, "payment.charged", paidFor{Receipt: "r1"}))
	ended := w.wants("travel.booked")[0]
	w.is("t1", "done", "confirm")
	if got := w.effects("t1"); got != "confirmed" || !strings.Contains(string(ended.Data), `"receipt":"r1"`) {
		t.Errorf("effects %q, the end says %s", got, ended.Data)
	}
}

// A reply comes twice, with the same id or with another one.
func TestReplyTwice(t *testing.T) {
	t.Parallel()
	w := newRig(t)
	seat, payment := w.upTo("t1")
	w.give(w.reply(seat, "seat.booked", nil))
	w.give(w.reply(seat, "seat.full", nil)) // Done and then Failed: the first counts
	w.wants()
	w.is("t1", "running", "payment")
	if note := w.row("t1").Note; !strings.Contains(note, "late or twice") || !strings.Contains(note, "step seat") {
		t.Errorf("the note is %q", note)
	}
	w.give(w.reply(payment, "payment.declined", nil))
	free := w.wants("seat.free")[0]
	w.give(w.reply(payment, "payment.charged", nil)) // Failed and then Done
	w.is("t1", "compensating", "seat")
	w.give(w.reply(free, "seat.freed", nil))
	w.wants("travel.cancelled")
	w.give(w.reply(free, "seat.freed", nil)) // after the end
	w.give(w.reply(seat, "seat.booked", nil))
	w.wants()
	w.is("t1", "undone", "open")
}

// Two copies of a reply are handled at the same moment by two processes.
func TestReplyTwiceAtOnce(t *testing.T) {
	t.Parallel()
	w := newRig(t)
	for i := range 10 {
		key := fmt.Sprint("t", i)
		w.begin(key)
		seat := w.wants("seat.book", "travel.deadline")[0]
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				if err := w.try(w.reply(seat, "seat.booked", nil)); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		w.wants("payment.charge")
		if r := w.row(key); r.Revision != 2 {
			t.Errorf("revision %d, want 2", r.Revision)
		}
	}
}

// Events that are no answer to the pending command change nothing.
func TestForeignEvents(t *testing.T) {
	t.Parallel()
	w := newRig(t)
	_, other := w.upTo("t2")
	seat, payment := w.upTo("t1")
	foreign := w.reply(payment, "payment.charged", nil)
	foreign.CausationID = "of another command"
	none := w.reply(payment, "payment.charged", nil)
	none.CausationID = ""
	crossed := w.reply(other, "payment.charged", nil) // it answers t2, and names t1
	crossed.Key = "t1"
	for _, ev := range []postroom.Event{foreign, none, crossed} {
		w.give(ev)
		if note := w.row("t1").Note; !strings.Contains(note, "not caused by a command of this process") {
			t.Errorf("the note is %q", note)
		}
	}
	w.give(w.reply(seat, "seat.booked", nil)) // a reply to an earlier step
	unknown := w.reply(payment, "payment.charged", nil)
	unknown.Key = "t3"
	unknown.CausationID = "x"
	w.give(unknown)
	w.wants()
	w.is("t1", "running", "payment")
	w.give(w.reply(payment, "payment.charged", nil)) // the right reply
	w.wants("travel.booked")
	w.is("t2", "running", "payment")
}

// Two sagas handle the same types.
func TestTwoSagasWithTheSameTypes(t *testing.T) {
	t.Parallel()
	w := newRig(t)
	seat, _ := w.upTo("t1")
	_ = seat
	first := w.saga
	d := travel()
	d.Name = "cruise"
	w.use(d)
	w.begin("t1")
	cmd := w.wants("seat.book", "cruise.deadline")[0]
	answer := w.reply(cmd, "seat.booked", nil)
	w.give(answer)
	w.wants("payment.charge")
	w.saga = first
	w.give(answer)
	w.wants()
}

// The participant answers with a type that belongs to another step, or with data that cannot be
// decoded. Both events become dead letters, and the instance does not change.
func TestWrongRepliesAreDead(t *testing.T) {
	t.Parallel()
	w := newRig(t)
	_, payment := w.upTo("t1")
	w.fails(w.try(w.reply(payment, "seat.booked", nil)), "does not know seat.booked", true)
	bad := w.reply(payment, "payment.charged", nil)
	bad.Data = []byte(`{"receipt":5}`)
	w.fails(w.try(bad), "decode", true)
	keyless := w.reply(payment, "payment.charged", nil)
	keyless.Key = ""
	w.fails(w.try(keyless), "no key", true)
	w.is("t1", "running", "payment")
	w.give(w.reply(payment, "payment.charged", nil))
	w.is("t1", "done", "confirm")
}

// The row of an instance is missing, as in a restored database. The reply to its command fails, and
// is not dropped.
func TestInstanceIsLost(t *testing.T) {
	t.Parallel()
	w := newRig(t)
	w.begin("t1")
	begun := w.wants("seat.book", "travel.deadline")
	w.give(w.reply(begun[0], "seat.booked", nil))
	payment := w.wants("payment.charge")[0]
	w.exec("DELETE FROM postroom.saga")
	w.fails(w.try(w.reply(payment, "payment.charged", nil)), "there is no such instance", false)
	if begun[1].CausationID != begun[0].ID {
		t.Errorf("the deadline was caused by %q, want the command %s", begun[1].CausationID, begun[0].ID)
	}
	w.give(begun[1]) // it comes long after the end of an instance that was removed
	w.wants()
}

// An operator replays a reply that was handled long ago.
func TestOldReplyAgainChangesNothing(t *testing.T) {
	t.Parallel()
	w := newRig(t)
	seat, payment := w.upTo("t1")
	old := w.reply(seat, "seat.booked", nil)
	w.give(w.reply(payment, "payment.charged", nil))
	w.wants("travel.booked")
	w.give(old)
	w.is("t1", "done", "confirm")
}

// A participant answers days later, in another transaction.
func TestAnswer(t *testing.T) {
	t.Parallel()
	w := newRig(t)
	_, payment := w.upTo("t1")
	later := saga.Answer(payment.ID, payment.Key, "payment.charged", paidFor{Receipt: "r9"})
	w.give(later)
	w.wants("travel.booked")
}

// With OnAny, an event with any cause counts while its step is pending, and not before.
func TestOnAny(t *testing.T) {
	t.Parallel()
	w := newRig(t, func(d *saga.Definition[trip]) {
		d.Steps[3] = saga.Step[trip]{Name: "approval", Done: saga.OnAny("trip.approved", nothing), Failed: saga.OnAny("trip.rejected", nothing)}
	})
	approved := postroom.NewEvent("trip.approved", nil)
	approved.Key = "t1"
	_, payment := w.upTo("t1")
	w.give(approved)
	w.is("t1", "running", "payment")
	w.give(w.reply(payment, "payment.charged", nil))
	w.is("t1", "running", "approval")
	late := w.reply(payment, "trip.approved", nil) // an earlier command caused it, so it says nothing about this step
	w.give(late)
	w.is("t1", "running", "approval")
	approved.ID = "second"
	w.give(approved)
	w.wants("travel.booked")
}

// The reply to the last command comes again after the end.
func TestLastReplyAgainChangesNothing(t *testing.T) {
	t.Parallel()
	w := newRig(t, func(d *saga.Definition[trip]) { d.Steps = d.Steps[:3] })
	_, payment := w.upTo("t1")
	w.give(w.reply(payment, "payment.charged", nil))
	w.wants("travel.booked")
	for _, eventType := range []string{"payment.charged", "payment.declined"} {
		w.give(w.reply(payment, eventType, nil))
		w.wants()
	}
	w.is("t1", "done", "payment")
}

// Another service says that a step failed while its command is under way. The outcome of the
// command is unknown, so the step's own Undo comes first.
func TestFailedOfAnyCause(t *testing.T) {
	t.Parallel()
	w := newRig(t, func(d *saga.Definition[trip]) {
		d.Steps[2].Failed = saga.OneOf(d.Steps[2].Failed, saga.OnAny("trip.cancelled", nothing))
	})
	_, payment := w.upTo("t1")
	cancelled := postroom.NewEvent("trip.cancelled", nil)
	cancelled.Key = "t1"
	w.give(cancelled)
	w.wants("payment.refund")
	w.give(w.reply(payment, "payment.charged", nil))
	w.is("t1", "compensating", "payment")
}

// The database was restored from a time before a command was written. The reply to the command is
// not dropped, so that it can be replayed when the instance has written the command again.
func TestReplyToAnUnknownCommandIsKept(t *testing.T) {
	t.Parallel()
	w := newRig(t)
	seat, payment := w.upTo("t1")
	w.give(w.reply(payment, "payment.declined", nil))
	free := w.wants("seat.free")[0]
	w.exec("UPDATE postroom.saga SET state = 'running', step = 'seat'") // as it was before
	w.exec("DELETE FROM postroom.saga_step WHERE revision > 1")
	w.exec("DELETE FROM postroom.outbox WHERE event_id = $1", free.ID)
	ahead := w.reply(payment, "payment.charged", nil)
	w.fails(w.try(ahead), "database was restored", false)
	w.fails(w.try(w.reply(free, "seat.freed", nil)), "database was restored", false)
	second := w.reply(seat, "seat.booked", nil)
	second.CausationID += ".2"
	w.fails(w.try(second), "database was restored", false)
	w.is("t1", "running", "seat")
	w.give(w.overrideDeadlineAndAlarm("t1")) // this time the instance takes another way
	w.wants("seat.free")
	w.fails(w.try(ahead), "database was restored", false)
	w.give(w.reply(free, "seat.freed", nil))
	w.wants("travel.cancelled")
	w.fails(w.try(ahead), "database was restored", false)
}

// A command was written twice, and the participant refused the second one. The first command may
// have had its effect.
func TestFailureOfTheSecondCommand(t *testing.T) {
	t.Parallel()
	w := newRig(t)
	_, payment := w.upTo("t1")
	w.decide(saga.Decision{Key: "t1", Choice: saga.Retry})
	again := w.wants("payment.charge")[0]
	w.give(w.reply(again, "payment.declined", nil))
	w.wants("payment.refund")
	w.give(w.reply(payment, "payment.charged", paidFor{Receipt: "r"}))
	w.is("t1", "compensating", "payment")
}
