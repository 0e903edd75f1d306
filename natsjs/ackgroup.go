package natsjs

import (
	"time"

	"github.com/postroom/postroom/broker"
)

const (
	// The most events that are acknowledged together.
	maxGroup = 32

	// After a group whose answers did not tell, so many events go by themselves: twice
	// as many each time, and fewer again as groups succeed. Where others publish much to
	// the same stream, few groups would.
	minSingles = 1 << 10
	maxSingles = 1 << 20
)

// ackGroup is events whose answers come on one subject. The broker has to find out
// where the answers to a subject go, and remembers the last ones: with a subject for
// each event it never knows, and that is a tenth of what an event costs it.
//
// An answer does not say which event it is to. It need not, where as many answers
// came as there are events, all of them from one stream, and the sequences in them
// follow on one another: then each event has its place in the stream, for no message
// gets two sequences, and a connection's messages are stored in order. Any other
// answer makes the group vague, and its events are sent again, each by itself: the
// stream knows by their ids what it has.
type ackGroup struct {
	messages      []*broker.Message // none: the slot is vacant
	serial        uint64
	sent          time.Time
	shared        bool // there were several
	allSent       bool // all are with the connection; before, one may still be being read
	earlyFailures []earlyFailure

	stream     string // of the answers
	last       uint64 // sequence in them
	answered   int
	duplicates uint64 // a bit for each event
	ambiguous  bool   // it is not known what became of which
}

// earlyFailure is a failure that came while a group was being sent.
type earlyFailure struct {
	err   error
	which func(g *ackGroup, f *broker.Message) bool
}

// fill puts events into a vacant slot.
func (g *ackGroup) fill(messages []*broker.Message, serial uint64, now time.Time) {
	*g = ackGroup{messages: append(g.messages[:0], messages...), serial: serial, sent: now, shared: len(messages) > 1}
}

// clear makes the slot vacant.
func (g *ackGroup) clear() {
	clear(g.messages)
	*g = ackGroup{messages: g.messages[:0]}
}

// addAnswer takes in an answer to one of several events.
func (g *ackGroup) addAnswer(o broker.Outcome) {
	follows := g.answered == 0 || o.Stream == g.stream && o.Sequence == g.last+1
	if o.Class != broker.Stored || o.Stream == "" || !follows {
		g.ambiguous = true
		return
	}
	if o.Duplicate {
		g.duplicates |= 1 << g.answered
	}
	g.stream, g.last = o.Stream, o.Sequence
	g.answered++
}

// outcome returns that of the i-th event, when all have been answered.
func (g *ackGroup) outcome(i int) broker.Outcome {
	return broker.Outcome{
		Stream: g.stream, Sequence: g.last - uint64(g.answered-1-i), //nolint:gosec // i is below answered
		Duplicate: g.duplicates&(1<<i) != 0,
	}
}

// split returns the first events of a batch that may be acknowledged together, and
// the rest.
func (w *window) split(batch []*broker.Message) (messages, rest []*broker.Message) {
	n := 1
	if w.singlesLeft > 0 {
		w.singlesLeft--
	} else if batch[0].AckGroup != "" {
		for n < min(len(batch), maxGroup) && batch[n].AckGroup == batch[0].AckGroup {
			n++
		}
	}
	return batch[:n], batch[n:]
}

// resolve reports the outcomes of a group when they are known, or has its events sent
// again when they will not be.
func (w *window) resolve(slot int) {
	g := &w.slots[slot]
	switch {
	case !g.allSent:
		return
	case g.ambiguous, g.answered > len(g.messages):
		w.backOff(g)
		w.sendAgain(g.messages)
	case g.answered == len(g.messages):
		w.nextSingles = max(w.nextSingles-g.answered, minSingles)
		for i, f := range g.messages {
			w.reportOrVerify(f, g.outcome(i))
		}
	default:
		return
	}
	w.vacate(slot)
}

// backOff has events go by themselves for a while, after a group that did not tell. Many
// may be under way at the time, which then do not tell for the same reason.
func (w *window) backOff(g *ackGroup) {
	if g.serial <= w.lastAmbiguous {
		return
	}
	w.lastAmbiguous = w.serial
	w.singlesLeft, w.nextSingles = w.nextSingles, min(2*w.nextSingles, maxSingles)
}

// sentAll notes that the messages of a group are with the connection, but for those
// of some events.
func (w *window) sentAll(p slotRef, failed map[*broker.Message]broker.Outcome) {
	w.mu.Lock()
	defer w.mu.Unlock()
	g := w.group(p)
	if g == nil {
		return // it was a single one, and is answered
	}
	g.allSent = true
	if len(failed) > 0 {
		w.drop(g, failed)
	}
	for _, e := range g.earlyFailures {
		w.failGroup(p.slot, e.err, e.which)
		if w.group(p) == nil {
			return
		}
	}
	if len(g.messages) == 0 {
		w.vacate(p.slot)
	} else if g.shared {
		w.resolve(p.slot)
	}
}

// drop reports events that were not sent, and takes them out of their group.
func (w *window) drop(g *ackGroup, failed map[*broker.Message]broker.Outcome) {
	sent := g.messages[:0]
	for _, f := range g.messages {
		if o, ok := failed[f]; ok {
			w.report(f, o)
		} else {
			sent = append(sent, f)
		}
	}
	clear(g.messages[len(sent):])
	g.messages = sent
}

// sendAgain has events sent by themselves.
func (w *window) sendAgain(messages []*broker.Message) {
	if len(messages) == 0 {
		return
	}
	for _, f := range messages {
		f.AckGroup = ""
	}
	w.again = append(w.again, messages...)
	signal(w.resend)
}

// takeAgain returns the events that are to be sent again.
func (w *window) takeAgain() []*broker.Message {
	w.mu.Lock()
	defer w.mu.Unlock()
	again := w.again
	w.again = nil
	return again
}
