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

	"github.com/postroom/postroom/broker"
	"github.com/postroom/postroom/internal/wire"
	"github.com/postroom/postroom/natsjs/internal/replies"
)

// window is what was sent and not acknowledged. Every group of events in it has a
// slot, whose number and a number of this publish make the subject of their
// acknowledgements: an answer that comes after its time finds the slot empty, or
// with another group in it.
type window struct {
	prefix string
	settle func(f *broker.Message, o broker.Outcome)
	sending

	mu      sync.Mutex // guards what follows, but for channels
	slots   []group
	vacant  []int
	serial  uint64            // of the last group
	streams map[string]string // the names that acknowledgements have, each once
	closed  bool
	parting
	proving

	lost chan []opened // nobody answered; to be looked up
}

// sending is used by the goroutine that sends.
type sending struct {
	encoder *wire.Encoder
	msg     nats.Msg
	opened  []opened // what the batch has
	names   []byte   // for reuse
}

// parting is what goes by itself because the answers to a group did not tell.
type parting struct {
	again   []*broker.Message // of such groups, and not sent yet
	resend  chan struct{}     // there are such
	alone   int               // so many events more go by themselves
	pause   int               // so many will, after the next group that does not tell
	doubted uint64            // the last group when one did not
}

// proving is what the broker called duplicates.
type proving struct {
	prove    func(ctx context.Context, f *broker.Message, o broker.Outcome) (proven broker.Outcome, again bool) // see prover; nil: duplicates are believed
	doubtful []doubtful
	proofs   chan struct{} // there are such
}

// opened is a group in a slot.
type opened struct {
	slot    int
	serial  uint64
	flights []*broker.Message // those of the batch
	reply   string
	end     int // where reply ends among those of the batch
}

func newWindow(prefix string, settle func(f *broker.Message, o broker.Outcome)) *window {
	return &window{
		prefix: prefix, settle: settle, streams: make(map[string]string), lost: make(chan []opened, 1),
		sending: sending{encoder: wire.NewEncoder()},
		parting: parting{resend: make(chan struct{}, 1), pause: minPause},
		proving: proving{proofs: make(chan struct{}, 1)},
	}
}

// expect gives the events of a batch their slots before they are sent.
func (w *window) expect(batch []*broker.Message, now time.Time) {
	w.opened, w.names = w.opened[:0], w.names[:0]
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(batch) > 0 {
		var flights []*broker.Message
		flights, batch = w.split(batch)
		if len(w.vacant) == 0 {
			w.vacant = append(w.vacant, len(w.slots))
			w.slots = append(w.slots, group{})
		}
		n := w.vacant[len(w.vacant)-1]
		w.vacant = w.vacant[:len(w.vacant)-1]
		w.serial++
		w.slots[n].open(flights, w.serial, now)
		w.names = append(w.names, w.prefix...)
		w.names = strconv.AppendInt(w.names, int64(n), 36)
		w.names = append(w.names, '-')
		w.names = strconv.AppendUint(w.names, w.serial, 36)
		w.opened = append(w.opened, opened{slot: n, serial: w.serial, flights: flights, end: len(w.names)})
	}
	names, begin := string(w.names), 0 // one piece of memory for all of them
	for i := range w.opened {
		o := &w.opened[i]
		o.reply, begin = names[begin:o.end], o.end
	}
}

// isWaiting reports whether any event has no outcome yet.
func (w *window) isWaiting() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.vacant) < len(w.slots)
}

// report reports the outcome of a single publish, unless it has one already: an answer
// that comes after its time is no news.
func (w *window) report(p opened, o broker.Outcome) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if g := w.group(p); g != nil {
		w.tell(g.flights[0], o)
		w.vacate(p.slot)
	}
}

// group returns a group unless it has its outcome.
func (w *window) group(p opened) *group {
	if p.slot < len(w.slots) && w.slots[p.slot].serial == p.serial && len(w.slots[p.slot].flights) > 0 {
		return &w.slots[p.slot]
	}
	return nil
}

func (w *window) tell(f *broker.Message, o broker.Outcome) {
	if !w.closed {
		w.settle(f, o)
	}
}

func (w *window) vacate(n int) {
	w.slots[n].clear()
	w.vacant = append(w.vacant, n)
}

// failAll reports every open event as unacknowledged, and those that were to be sent
// again.
func (w *window) failAll(cause error) {
	err := fmt.Errorf("%w: %w", broker.ErrUnacknowledged, cause)
	w.fail(err, func(*group, *broker.Message) bool { return true })
	settleAll(w.takeAgain(), failure(err), w.settle)
}

// expire reports events that were sent before the given time.
func (w *window) expire(before time.Time) {
	w.fail(fmt.Errorf("%w: %w", broker.ErrUnacknowledged, nats.ErrTimeout), func(g *group, _ *broker.Message) bool { return g.sent.Before(before) })
}

// Deny reports events whose subject an error of the connection says the user
// may not publish to. The server tells it in words and names no event; the
// publish itself stays without an answer.
func (w *window) Deny(err error) {
	if subject, denied := replies.DeniedSubject(err); denied {
		w.fail(broker.ErrNotAllowed, func(_ *group, f *broker.Message) bool { return f.Subject == subject })
	}
}

// fail reports those events that were sent. Another goroutine may be sending
// others: they are reported when their group is sent, since a denial can come before
// that. What was sent with one of them is sent again.
func (w *window) fail(err error, which func(g *group, f *broker.Message) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for n := range w.slots {
		if g := &w.slots[n]; g.whole {
			w.failGroup(n, err, which)
		} else if slices.ContainsFunc(g.flights, func(f *broker.Message) bool { return which(g, f) }) {
			g.early = append(g.early, early{err, which})
		}
	}
}

func (w *window) failGroup(slot int, err error, which func(g *group, f *broker.Message) bool) {
	g := &w.slots[slot]
	var others []*broker.Message
	for _, f := range g.flights {
		if which(g, f) {
			w.tell(f, failure(err))
		} else {
			others = append(others, f)
		}
	}
	if len(others) == len(g.flights) {
		return
	}
	if g.shared {
		w.doubt(g)
	}
	w.sendAgain(others)
	w.vacate(slot)
}

// close ends reporting: Run has returned.
func (w *window) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
}

// onAck takes an answer from the broker.
func (w *window) onAck(m *nats.Msg) {
	slotText, serialText, _ := strings.Cut(strings.TrimPrefix(m.Subject, w.prefix), "-")
	n, err1 := strconv.ParseUint(slotText, 36, 31)
	serial, err2 := strconv.ParseUint(serialText, 36, 64)
	if err1 != nil || err2 != nil {
		return // not an answer to anything that was sent
	}
	p := opened{slot: int(n), serial: serial} //nolint:gosec // 31 bits
	if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
		w.unanswered(p)
		return
	}
	stream, seq, duplicate, err := parseAck(m.Data)
	o := broker.Outcome{Duplicate: duplicate, Sequence: seq}
	if err != nil {
		o = failure(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	g := w.group(p)
	if g == nil {
		return
	}
	if len(stream) > 0 {
		name, ok := w.streams[string(stream)]
		if !ok {
			name = string(stream)
			w.streams[name] = name
		}
		o.Stream = name
	}
	if !g.shared {
		w.conclude(g.flights[0], o)
		w.vacate(p.slot)
		return
	}
	g.take(o)
	w.judge(p.slot)
}

// unanswered takes in that nobody listens on an event's subject.
func (w *window) unanswered(p opened) {
	w.mu.Lock()
	g := w.group(p)
	if g != nil && g.shared {
		g.vague = true
		w.judge(p.slot)
		g = nil
	}
	w.mu.Unlock()
	if g != nil {
		w.ask(p)
	}
}

// ask has the stream of an event looked up: the server says in the same words
// that no stream has a subject, and that the stream which has it is without a
// leader.
func (w *window) ask(p opened) {
	unanswered := []opened{p}
	for {
		select {
		case w.lost <- unanswered:
			return
		case waiting := <-w.lost: // one look answers for many
			unanswered = append(waiting, unanswered...)
		}
	}
}

// lookUp answers to ask until ctx ends.
func (w *window) lookUp(ctx context.Context, nc *nats.Conn) {
	js, err := jetstream.New(nc)
	if err != nil {
		return // not reached: it fails for options that contradict each other
	}
	for {
		select {
		case <-ctx.Done():
			return
		case unanswered := <-w.lost:
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
				w.report(p, o)
			}
		}
	}
}

func (w *window) subject(p opened) (string, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if g := w.group(p); g != nil {
		return g.flights[0].Subject, true
	}
	return "", false
}

// streamOf returns the outcome of an event that nobody answered to.
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
	return broker.Outcome{Class: broker.Unavailable, Err: broker.ErrNoLeader} // who would know does not answer either
}

// signal notes that there is news; one note is enough.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
