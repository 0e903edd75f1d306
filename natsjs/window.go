package natsjs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/internal/wire"
	"github.com/postroom/postroom/natsjs/internal/replies"
	"github.com/postroom/postroom/relay/broker"
)

// A window has the events that were sent and not acknowledged. Each group of events has a slot. The
// number of the slot and a serial number are part of the subject of the group's acknowledgements.
// So the window recognises a late answer: the answer's slot is empty, or has another serial number.
type window struct {
	prefix   string
	reportFn func(f *broker.Message, o broker.Outcome)
	sendState

	mu      sync.Mutex // guards the fields below, except channels
	slots   []ackGroup
	vacant  []int
	serial  uint64 // the serial number of the last group
	closed  bool
	origins map[string]origin // the streams that answered, by name
	resends
	duplicates
	doubts

	unproven  map[string][]unproven // the answers that wait for a lookup of their stream, by its name
	unlooked  []string              // the names among them whose lookup has not begun
	originDue chan struct{}         // signals that there are such names

	toLookUp chan []slotRef // events for which no stream answered; their streams must be looked up
	overdue  chan struct{}  // signals that an acknowledgement did not come in time
}

// sendState has the fields that only the sending goroutine uses.
type sendState struct {
	encoder *wire.Encoder
	msg     nats.Msg
	refs    []slotRef // the groups of the batch
	names   []byte    // the reply subjects of the batch, one after another
}

// resends has events that are sent again without a group, such as those of ambiguous groups.
type resends struct {
	again         []*broker.Message // events to be sent again
	resend        chan struct{}     // signals that there are events to send again
	singlesLeft   int               // how many more events are sent without a group
	nextSingles   int               // the value of singlesLeft after the next ambiguous group
	lastAmbiguous uint64            // window.serial at the time when groups were last stopped (see backOff)
}

// duplicates has the events that the broker called duplicates.
type duplicates struct {
	verify     func(ctx context.Context, f *broker.Message, o broker.Outcome) (proven broker.Outcome, again bool) // see duplicateVerifier; if this field is nil, duplicates count as stored
	unverified []duplicateAnswer
	verifyDue  chan struct{} // signals that there are unverified duplicates
}

// doubts are about subjects whose events got no acknowledgement. Either a stream could not answer, or
// no stream takes the subject. In the second case the server answers at once, unless another program
// or JetStream listens on the subject: then there is no answer, or that of the other.
type doubts struct {
	doubted  map[string]struct{} // subjects to look up
	doubtDue chan struct{}       // signals that there are subjects to look up
}

// maxDoubts limits the number of subjects, and of streams of other JetStreams, that a window remembers.
const maxDoubts = 10_000

// slotRef refers to a group in a slot.
type slotRef struct {
	slot     int
	serial   uint64
	messages []*broker.Message // the messages of the group
	reply    string
	end      int // where the reply subject ends in sendState.names
}

func newWindow(prefix string, report func(f *broker.Message, o broker.Outcome)) *window {
	return &window{
		prefix: prefix, reportFn: report, origins: make(map[string]origin), unproven: make(map[string][]unproven), originDue: make(chan struct{}, 1), toLookUp: make(chan []slotRef, 1), overdue: make(chan struct{}, 1),
		sendState:  sendState{encoder: wire.NewEncoder()},
		resends:    resends{resend: make(chan struct{}, 1), nextSingles: minSingles},
		duplicates: duplicates{verifyDue: make(chan struct{}, 1)},
		doubts:     doubts{doubted: make(map[string]struct{}), doubtDue: make(chan struct{}, 1)},
	}
}

// expect puts the events of a batch into slots before they are sent.
func (w *window) expect(batch []*broker.Message, now time.Time) {
	w.refs, w.names = w.refs[:0], w.names[:0]
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(batch) > 0 {
		var messages []*broker.Message
		messages, batch = w.split(batch)
		if len(w.vacant) == 0 {
			w.vacant = append(w.vacant, len(w.slots))
			w.slots = append(w.slots, ackGroup{})
		}
		n := w.vacant[len(w.vacant)-1]
		w.vacant = w.vacant[:len(w.vacant)-1]
		w.serial++
		w.slots[n].fill(messages, w.serial, now)
		w.names = append(w.names, w.prefix...)
		w.names = strconv.AppendInt(w.names, int64(n), 36)
		w.names = append(w.names, '-')
		w.names = strconv.AppendUint(w.names, w.serial, 36)
		w.refs = append(w.refs, slotRef{slot: n, serial: w.serial, messages: messages, end: len(w.names)})
	}
	names, begin := string(w.names), 0 // one allocation for all names
	for i := range w.refs {
		o := &w.refs[i]
		o.reply, begin = names[begin:o.end], o.end
	}
}

// isWaiting reports whether there is an event without an outcome.
func (w *window) isWaiting() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.vacant) < len(w.slots)
}

// reportSingle reports the outcome of a group of one event. If the answer comes too late,
// the event has an outcome already, and reportSingle does nothing.
func (w *window) reportSingle(p slotRef, o broker.Outcome) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if g := w.group(p); g != nil {
		w.report(g.messages[0], o)
		w.vacate(p.slot)
	}
}

// group returns a group, or nil if the group has its outcome already.
func (w *window) group(p slotRef) *ackGroup {
	//guard:an-answer-finds-its-own-publish 2 true
	if p.slot < len(w.slots) && w.slots[p.slot].serial == p.serial && len(w.slots[p.slot].messages) > 0 {
		return &w.slots[p.slot]
	}
	return nil
}

func (w *window) report(f *broker.Message, o broker.Outcome) {
	//guard:a-closed-window-is-silent true
	//planted:unknown-outcome-counts-as-stored do if o.Class == broker.Unknown { o = broker.Outcome{Class: broker.Stored} }; @
	if !w.closed {
		w.reportFn(f, o)
	}
}

func (w *window) vacate(n int) {
	w.slots[n].clear()
	w.vacant = append(w.vacant, n)
}

// failAll reports all events as unacknowledged, even those that wait to be sent again.
func (w *window) failAll(cause error) {
	err := fmt.Errorf("%w: %w", broker.ErrUnacknowledged, cause)
	w.fail(func(*ackGroup, *broker.Message) error { return err })
	reportAll(w.takeAgain(), failure(err), w.reportFn)
}

// expire reports that an event is unacknowledged if it was sent before the given time.
func (w *window) expire(before time.Time) {
	err := fmt.Errorf("%w: %w", broker.ErrUnacknowledged, nats.ErrTimeout)
	w.fail(func(g *ackGroup, _ *broker.Message) error {
		if !g.sent.Before(before) {
			return nil
		}
		signal(w.overdue)
		return err
	})
}

// doubtOverdue queues a lookup for each subject of which an event was sent before the given time and has
// no outcome.
func (w *window) doubtOverdue(before time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for n := range w.slots {
		if g := &w.slots[n]; g.sent.Before(before) && !g.doubted {
			g.doubted = true
			for _, f := range g.messages {
				w.doubt(f.Subject)
			}
		}
	}
}

// doubt queues a lookup of a subject. The caller has locked w.mu.
func (w *window) doubt(subject string) {
	if len(w.doubted) < maxDoubts {
		w.doubted[subject] = struct{}{}
		signal(w.doubtDue)
	}
}

// lookUpDoubted makes the lookups that the method doubt queued, until ctx ends. If no stream takes a
// subject, it reports that for all events of the subject that have no outcome.
func (w *window) lookUpDoubted(ctx context.Context, nc *nats.Conn) {
	js, err := jetstream.New(nc)
	if err != nil {
		return // this is not reached, because New fails only for contradictory options
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.doubtDue:
		}
		w.mu.Lock()
		doubted := w.doubted
		w.doubted = make(map[string]struct{})
		w.mu.Unlock()
		streamless := make(map[string]bool)
		for subject := range doubted {
			o := streamOf(ctx, js, subject)
			if streamless[subject] = errors.Is(o.Err, broker.ErrNoStream); !streamless[subject] && o.Stream == "" {
				break // in an outage, no other lookup is answered either
			}
		}
		w.fail(func(_ *ackGroup, f *broker.Message) error {
			//guard:a-listener-without-a-stream-is-found-out false
			if streamless[f.Subject] {
				return broker.ErrNoStream
			}
			return nil
		})
	}
}

// Deny handles an error of the connection. If the error says that the user may not publish to a
// subject, Deny reports all events with this subject. The server does not say which event it
// refused, and sends no answer to the event's reply subject.
func (w *window) Deny(err error) {
	if subject, denied := replies.DeniedSubject(err); denied {
		w.fail(func(_ *ackGroup, f *broker.Message) error {
			if f.Subject == subject {
				return broker.ErrNotAllowed
			}
			return nil
		})
	}
}

// fail reports the events for which the given function returns an error. If a group is still being
// sent, fail only records the failure, and sentAll reports it after the group was sent. The publisher
// sends the other events of the group again.
func (w *window) fail(why func(g *ackGroup, f *broker.Message) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for n := range w.slots {
		if g := &w.slots[n]; g.allSent {
			w.failGroup(n, why)
		} else if slices.ContainsFunc(g.messages, func(f *broker.Message) bool { return why(g, f) != nil }) {
			//guard:denials-before-the-group-is-sent = @1[:0]
			g.earlyFailures = append(g.earlyFailures, why)
		}
	}
}

func (w *window) failGroup(slot int, why func(g *ackGroup, f *broker.Message) error) {
	g := &w.slots[slot]
	var others []*broker.Message
	for _, f := range g.messages {
		if err := why(g, f); err != nil {
			w.report(f, failure(err))
		} else {
			others = append(others, f)
		}
	}
	if len(others) == len(g.messages) {
		return
	}
	if g.shared {
		w.backOff(g)
	}
	w.sendAgain(others)
	w.vacate(slot)
}

// close stops all reports. Run calls it at the end.
func (w *window) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
}

// onAck handles an answer of the broker.
func (w *window) onAck(m *nats.Msg) {
	slotText, serialText, _ := strings.Cut(strings.TrimPrefix(m.Subject, w.prefix), "-")
	n, err1 := strconv.ParseUint(slotText, 36, 31)
	serial, err2 := strconv.ParseUint(serialText, 36, 64)
	if err1 != nil || err2 != nil {
		return // not an answer to a message that was sent
	}
	p := slotRef{slot: int(n), serial: serial} //nolint:gosec // 31 bits
	if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
		w.unanswered(p)
		return
	}
	a, err := parseAck(m.Data)
	w.mu.Lock()
	defer w.mu.Unlock()
	switch g := w.group(p); {
	case g == nil: // it has its outcome
	//guard:what-no-stream-can-answer-is-ignored false
	case errors.Is(err, broker.ErrUnacknowledged):
		w.ignore(g)
	default:
		w.take(p, g, a, err)
	}
}

// count counts an outcome as the answer for one event of a group.
func (w *window) count(p slotRef, g *ackGroup, o broker.Outcome) {
	if g.shared {
		g.addAnswer(o)
		w.resolve(p.slot)
		return
	}
	w.reportOrVerify(g.messages[0], o)
	w.vacate(p.slot)
}

// unanswered handles the broker's answer that no stream listens on an event's subject.
func (w *window) unanswered(p slotRef) {
	w.mu.Lock()
	g := w.group(p)
	if g != nil && g.shared {
		g.ambiguous = true
		w.resolve(p.slot)
		g = nil
	}
	w.mu.Unlock()
	if g != nil {
		w.ask(p)
	}
}

// ask queues a lookup of an event's stream. The lookup is needed because the server gives the same
// answer in two cases: no stream takes the subject, or the stream has no leader.
func (w *window) ask(p slotRef) {
	unanswered := []slotRef{p}
	for {
		select {
		case w.toLookUp <- unanswered:
			return
		case waiting := <-w.toLookUp: // add this event to those that wait
			unanswered = append(waiting, unanswered...)
		}
	}
}

// lookUp makes the lookups that the method ask queued, until ctx ends.
func (w *window) lookUp(ctx context.Context, nc *nats.Conn) {
	js, err := jetstream.New(nc)
	if err != nil {
		return // this is not reached, because New fails only for contradictory options
	}
	for {
		select {
		case <-ctx.Done():
			return
		case unanswered := <-w.toLookUp:
			known := make(map[string]broker.Outcome)
			for _, p := range unanswered {
				subject, ok := w.subject(p)
				if !ok {
					continue
				}
				o, ok := known[subject]
				if !ok {
					o = streamOf(ctx, js, subject)
					known[subject] = o
				}
				w.reportSingle(p, o)
			}
		}
	}
}

func (w *window) subject(p slotRef) (string, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if g := w.group(p); g != nil {
		return g.messages[0].Subject, true
	}
	return "", false
}

// streamOf returns the outcome of an event without an answer. It looks up the event's stream.
func streamOf(ctx context.Context, js jetstream.JetStream, subject string) broker.Outcome {
	ctx, cancel := context.WithTimeout(ctx, ackTimeout/2)
	defer cancel()
	name, err := js.StreamNameBySubject(ctx, subject)
	switch {
	case err == nil:
		return broker.Outcome{Class: broker.Unavailable, Stream: name, Err: broker.ErrNoLeader}
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return failure(broker.ErrNoStream)
	}
	return broker.Outcome{Class: broker.Unavailable, Err: broker.ErrNoLeader} // the lookup was not answered either
}

// signal sends to a channel with room for one signal. If a signal waits in the channel
// already, signal does nothing.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
