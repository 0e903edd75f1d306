package saga

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/postroom/postroom"
)

// TB is the part of a *testing.T that [Test] uses.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
}

// Trial plays one instance of a saga for a test, without a database. If the saga does something
// that the test does not expect, the methods fail the test at once.
//
//	saga.Test(t, checkout).Begin(order).
//		Sends("payment.charge").Gets("payment.charged", receipt).
//		Sends("stock.reserve").Deadline().
//		Sends("stock.release").Gets("stock.released", nil).
//		Sends("payment.refund").Gets("payment.refunded", nil).
//		Ends(saga.Undone)
//
// Functions of [Local] do not run. All count as successful, except those of [Trial.FailLocal].
type Trial[S any] struct {
	tb     TB
	def    Definition[S]
	turn   *turn[S]
	now    time.Time
	fails  map[string]error
	sent   []postroom.Event // events for which Sends was not called yet
	last   postroom.Event   // the command of the last call of Sends
	events int
}

// Test returns a trial of a definition. It fails the test if the definition has faults.
func Test[S any](tb TB, d Definition[S]) *Trial[S] {
	tb.Helper()
	d.complete()
	if err := d.validate(); err != nil {
		tb.Fatalf("%v", err)
	}
	return &Trial[S]{tb: tb, def: d, now: time.Unix(1_000_000_000, 0), fails: make(map[string]error)}
}

// FailLocal makes the [Local] function of a step give up with an error. Call it before Begin.
func (tr *Trial[S]) FailLocal(step string, err error) *Trial[S] {
	tr.fails[step] = GiveUp(err)
	return tr
}

// Begin begins the instance.
func (tr *Trial[S]) Begin(s S) *Trial[S] {
	tr.tb.Helper()
	p := tr.def.plans()[0]
	inst := &instance[S]{data: s, row: row{key: "key", correlation: "process", run: 1}}
	tr.turn = &turn[S]{moment: moment{now: tr.now}, plan: p, inst: inst}
	tr.turn.begin()
	tr.run()
	return tr
}

// Sends expects an event of the given type: a command, or the event that announces the end. The
// next Gets answers the command. Call Sends in the order in which the saga writes these events.
func (tr *Trial[S]) Sends(eventType string) *Trial[S] {
	tr.tb.Helper()
	if len(tr.sent) == 0 {
		tr.tb.Fatalf("the saga sends nothing, want %s; it is %s at step %s", eventType, tr.turn.inst.state, tr.turn.inst.step)
	} else if tr.sent[0].Type != eventType {
		tr.tb.Fatalf("the saga sends %s, want %s", tr.sent[0].Type, eventType)
	} else {
		tr.last, tr.sent = tr.sent[0], tr.sent[1:]
	}
	return tr
}

// Gets gives the saga the reply to the command of the last Sends.
func (tr *Trial[S]) Gets(eventType string, data any) *Trial[S] {
	tr.tb.Helper()
	return tr.get(postroom.NewEvent(eventType, data), tr.last.ID)
}

// GetsAny gives the saga an event that no command caused, for [OnAny].
func (tr *Trial[S]) GetsAny(eventType string, data any) *Trial[S] {
	tr.tb.Helper()
	return tr.get(postroom.NewEvent(eventType, data), "")
}

func (tr *Trial[S]) get(ev postroom.Event, cause string) *Trial[S] {
	tr.tb.Helper()
	ev.Key, ev.CausationID = tr.turn.inst.key, cause
	tr.next(ev.ID)
	m, err := tr.turn.reply(ev)
	if err != nil {
		tr.tb.Fatalf("%s: %v", ev.Type, err)
	}
	if m != counts {
		tr.tb.Fatalf("%s does not count, it is %s: %s", ev.Type, m, tr.turn.inst.note)
	}
	tr.run()
	return tr
}

// Deadline lets the deadline of the pending step pass.
func (tr *Trial[S]) Deadline() *Trial[S] {
	tr.tb.Helper()
	if tr.turn.inst.deadline.IsZero() {
		tr.tb.Fatalf("step %s has no deadline", tr.turn.inst.step)
		return tr
	}
	due := tr.turn.inst.deadline
	for tr.now = due; !tr.turn.inst.alarm.IsZero() && tr.turn.inst.deadline.Equal(due); {
		before := tr.turn.inst.alarm
		if before.After(tr.now) {
			tr.now = before
		}
		tr.next("deadline")
		if _, over := tr.turn.ring(alarm{before}); over {
			tr.turn.tooLate()
		}
		tr.run()
	}
	return tr
}

// Holds expects that the function ok returns true for the state.
func (tr *Trial[S]) Holds(what string, ok func(S) bool) *Trial[S] {
	tr.tb.Helper()
	if s := tr.turn.inst.data; !ok(s) {
		document, err := json.Marshal(s)
		tr.tb.Fatalf("the state does not have %s: %s", what, errors.Join(errors.New(string(document)), err))
	}
	return tr
}

// Ends expects that the instance has ended in the given state, and that it sends nothing more.
func (tr *Trial[S]) Ends(state State) {
	tr.tb.Helper()
	if tr.turn.inst.state != state {
		tr.tb.Fatalf("the saga is %s at step %s, want %s", tr.turn.inst.state, tr.turn.inst.step, state)
	}
	for _, ev := range tr.sent {
		tr.tb.Fatalf("the saga also sends %s", ev.Type)
	}
}

// next begins the turn of another event.
func (tr *Trial[S]) next(cause string) {
	tr.events++
	before := tr.turn
	tr.turn = &turn[S]{moment: moment{now: tr.now}, plan: before.plan, inst: before.inst, cause: fmt.Sprintf("%s-%d", cause, tr.events)}
}

// run continues as if a turn's Local functions had run, and collects the events.
func (tr *Trial[S]) run() {
	tr.tb.Helper()
	for tr.turn.local != nil {
		if err := tr.turn.localEnded(tr.fails[tr.turn.inst.step]); err != nil {
			tr.tb.Fatalf("%v", err)
			return
		}
	}
	for _, ev := range tr.turn.events {
		if err := ev.Validate(); err != nil {
			tr.tb.Fatalf("%s: %v", ev.Type, err)
		}
		if ev.Type != tr.def.Name+deadlineSuffix {
			tr.sent = append(tr.sent, ev)
		}
	}
}
