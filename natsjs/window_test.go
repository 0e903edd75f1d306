package natsjs

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/relay/broker"
)

// A denial comes on another goroutine than the one that sends. It reports no event that is
// still being sent: the sender would still read it, while its slot already has another event.
func TestDenialSettlesOnlySentEvents(t *testing.T) {
	var reported []int64
	w := newWindow("acks.", func(f *broker.Message, _ broker.Outcome) { reported = append(reported, f.Seq) })
	var batch []*broker.Message
	for seq := range int64(3) {
		batch = append(batch, &broker.Message{Event: broker.Event{Seq: seq, Event: postroom.Event{Subject: "a.b"}}})
	}
	denial := fmt.Errorf("%w: Permissions Violation for Publish to \"a.b\"", nats.ErrPermissionViolation)
	w.expect(batch, time.Now())
	w.Deny(denial)
	if len(reported) > 0 {
		t.Fatalf("outcomes of %v before any was sent", reported)
	}
	w.sentAll(w.refs[0], nil)
	w.sentAll(w.refs[1], nil) // and reports what came meanwhile
	if fmt.Sprint(reported) != "[0 1]" {
		t.Errorf("outcomes of %v, want the two that were sent", reported)
	}
}

// After Run has returned, no goroutine receives outcomes. An answer that comes then reports
// nothing.
func TestClosedWindowReportsNothing(t *testing.T) {
	t.Parallel()
	w := ask(t.Errorf)
	replies := w.sendNow(together(0, 3))
	w.close()
	for i := range uint64(3) {
		w.answer(replies[0], stored("S", 7+i))
	}
	w.failAll(nats.ErrDisconnected)
	if len(w.outcomes) > 0 {
		t.Errorf("outcome %+v after the end", w.outcomes)
	}
}

// After an event ran out of time, another event has its slot. A late answer to the first does
// not count for the second.
func TestLateAnswerDoesNotCountForTheNextEvent(t *testing.T) {
	t.Parallel()
	w := ask(t.Errorf)
	first := w.sendNow(together(0, 1))
	w.expire(time.Now().Add(time.Second))
	next := w.sendNow(together(1, 1))
	w.answer(first[0], stored("S", 7))
	if o, told := w.outcomes[1]; told || len(w.slots) != 1 {
		t.Errorf("the answer to event 0 is taken for one to event 1: %+v (%d slots)", o, len(w.slots))
	}
	w.answer(next[0], stored("S", 8))
	if o := w.outcomes[1]; o.Class != broker.Stored || o.Sequence != 8 {
		t.Errorf("event 1 got outcome %+v, want that it is message 8", o)
	}
}
