package natsjs

import (
	"time"

	"github.com/postroom/postroom/relay/broker"
)

const (
	// The largest number of events in an ack group.
	maxGroup = 32

	// After an ambiguous group (see ackGroup), the publisher sends minSingles events without a
	// group, because few groups succeed if other programs publish much to the stream. Each further
	// ambiguous group doubles this number, up to maxSingles. The number falls when groups succeed.
	minSingles = 1 << 10
	maxSingles = 1 << 20
)

// ackGroup is a group of events whose acknowledgements come on one subject. For each answer, the
// broker looks up which clients listen on the answer's subject, and it caches the last lookups. If
// each event had its own subject for the answer, the cache would never help, and the lookups would
// be a tenth of the broker's work for an event.
//
// An acknowledgement does not say which event it is for. But the broker stores a connection's
// messages in order, and no message gets two sequences. So an event's place in the group gives its
// sequence if there is one acknowledgement for each event, all from one stream, with consecutive
// sequences. Also, all events must be new, or all must be duplicates: a cluster may answer a
// duplicate before a new message that came earlier, because it must first store the new message. If
// one of these conditions is not met, the group is ambiguous, and the publisher sends its events
// again without a group. The stream drops events that it already has, because it knows their ids.
type ackGroup struct {
	messages      []*broker.Message // none if the slot is vacant
	serial        uint64
	sent          time.Time
	shared        bool                                         // the group had several events when it was sent
	doubted       bool                                         // the streams of its subjects are being looked up
	allSent       bool                                         // all events were written to the connection; before that, they must not be reported
	earlyFailures []func(g *ackGroup, f *broker.Message) error // failures that came while the group was being sent: see window.fail

	stream    string // the stream in the answers
	last      uint64 // the last sequence in the answers
	answered  int
	duplicate bool // the broker called the events duplicates
	ambiguous bool // the answers do not say clearly which events are stored
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

// addAnswer adds an answer to a group of several events.
func (g *ackGroup) addAnswer(o broker.Outcome) {
	//guard:answers-of-a-group-follow-each-other true
	//guard:duplicates-and-new-events-share-no-answer 2.3 true
	follows := g.answered == 0 || o.Stream == g.stream && o.Sequence == g.last+1 && o.Duplicate == g.duplicate
	if o.Class != broker.Stored || !follows {
		g.ambiguous = true
		return
	}
	g.stream, g.last, g.duplicate = o.Stream, o.Sequence, o.Duplicate
	g.answered++
}

// outcome returns the outcome of the i-th event, after all answers came.
func (g *ackGroup) outcome(i int) broker.Outcome {
	return broker.Outcome{
		Class: broker.Stored, Stream: g.stream, Sequence: g.last - uint64(g.answered-1-i), //nolint:gosec // i is below answered
		Duplicate: g.duplicate,
	}
}

// split splits a batch into its first group and the rest.
func (w *window) split(batch []*broker.Message) (messages, rest []*broker.Message) {
	n := 1
	if w.singlesLeft > 0 {
		w.singlesLeft--
	} else if batch[0].AckGroup != "" {
		//guard:streams-share-no-answer 2 true
		for n < min(len(batch), maxGroup) && batch[n].AckGroup == batch[0].AckGroup {
			n++
		}
	}
	return batch[:n], batch[n:]
}

// resolve reports the outcomes of a group if all answers are there. If the group is ambiguous,
// resolve sends its events again.
func (w *window) resolve(slot int) {
	g := &w.slots[slot]
	switch {
	case !g.allSent:
		return
	case g.ambiguous, g.answered > len(g.messages):
		w.backOff(g)
		w.sendAgain(g.messages)
	//guard:a-group-needs-all-its-answers = @1 > 0
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

// backOff stops the making of groups for a while, after an ambiguous group. Other groups that were
// in flight at that time may be ambiguous for the same reason, so backOff ignores them.
func (w *window) backOff(g *ackGroup) {
	if g.serial <= w.lastAmbiguous {
		return
	}
	w.lastAmbiguous = w.serial
	w.singlesLeft, w.nextSingles = w.nextSingles, min(2*w.nextSingles, maxSingles)
}

// sentAll notes that a group was written to the connection, except for the failed events.
func (w *window) sentAll(p slotRef, failed map[*broker.Message]broker.Outcome) {
	w.mu.Lock()
	defer w.mu.Unlock()
	g := w.group(p)
	if g == nil {
		return // the group had one event, which has its outcome
	}
	g.allSent = true
	if len(failed) > 0 {
		w.drop(g, failed)
	}
	for _, why := range g.earlyFailures {
		w.failGroup(p.slot, why)
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

// drop reports events that were not sent, and removes them from their group.
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

// sendAgain queues events to be sent again, each without a group.
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

// takeAgain returns the events that must be sent again.
func (w *window) takeAgain() []*broker.Message {
	w.mu.Lock()
	defer w.mu.Unlock()
	again := w.again
	w.again = nil
	return again
}
