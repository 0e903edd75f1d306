package relay

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/internal/wire"
)

// window is what was sent and not acknowledged. Every event in it has a slot,
// whose number and a number of this publish make the subject of its
// acknowledgement: an answer that comes after its time finds the slot empty, or
// with another publish in it.
type window struct {
	prefix string
	settle func(f *Flight, o Outcome)

	// Used by the goroutine that sends.
	encoder *wire.Encoder
	msg     nats.Msg
	opened  []opened // what the batch has
	names   []byte   // for reuse

	// sent is the serial of the last publish that is with the connection. What
	// comes after it has a slot, and its event is still being read.
	sent atomic.Uint64

	mu      sync.Mutex
	slots   []slot
	vacant  []int
	serial  uint64            // of the last publish
	streams map[string]string // the names that acknowledgements have, each once
	closed  bool

	lost chan []opened // nobody answered; to be looked up
}

type slot struct {
	f      *Flight // nil: vacant
	serial uint64
	sent   time.Time
}

// opened is a publish in a slot.
type opened struct {
	slot   int
	serial uint64
	reply  string
	end    int // where reply ends among those of the batch
}

func newWindow(prefix string, settle func(f *Flight, o Outcome)) *window {
	return &window{
		prefix: prefix, settle: settle, encoder: wire.NewEncoder(),
		streams: make(map[string]string), lost: make(chan []opened, 1),
	}
}

// expect gives the events of a batch their slots before they are sent.
func (w *window) expect(batch []*Flight, now time.Time) {
	w.opened, w.names = w.opened[:0], w.names[:0]
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range batch {
		if len(w.vacant) == 0 {
			w.vacant = append(w.vacant, len(w.slots))
			w.slots = append(w.slots, slot{})
		}
		n := w.vacant[len(w.vacant)-1]
		w.vacant = w.vacant[:len(w.vacant)-1]
		w.serial++
		w.slots[n] = slot{f, w.serial, now}
		w.names = append(w.names, w.prefix...)
		w.names = strconv.AppendInt(w.names, int64(n), 36)
		w.names = append(w.names, '-')
		w.names = strconv.AppendUint(w.names, w.serial, 36)
		w.opened = append(w.opened, opened{slot: n, serial: w.serial, end: len(w.names)})
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

// report reports the outcome of a publish, unless it has one already: an answer
// that comes after its time is no news.
func (w *window) report(p opened, o Outcome) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.isOpen(p) {
		w.vacate(p.slot, o)
	}
}

func (w *window) isOpen(p opened) bool {
	return p.slot < len(w.slots) && w.slots[p.slot].f != nil && w.slots[p.slot].serial == p.serial
}

func (w *window) vacate(n int, o Outcome) {
	f := w.slots[n].f
	w.slots[n].f = nil
	w.vacant = append(w.vacant, n)
	if !w.closed {
		w.settle(f, o)
	}
}

// failAll reports every open event as unacknowledged.
func (w *window) failAll(cause error) {
	w.fail(fmt.Errorf("%w: %w", ErrUnacknowledged, cause), func(slot) bool { return true })
}

// expire reports events that were sent before the given time.
func (w *window) expire(before time.Time) {
	w.fail(fmt.Errorf("%w: %w", ErrUnacknowledged, nats.ErrTimeout), func(s slot) bool { return s.sent.Before(before) })
}

// deny reports events whose subject an error of the connection says the user
// may not publish to. The server tells it in words and names no event; the
// publish itself stays without an answer.
func (w *window) deny(err error) {
	if subject, denied := deniedSubject(err); denied {
		w.fail(ErrNotAllowed, func(s slot) bool { return s.f.Subject == subject })
	}
}

// deniedSubject returns the subject that the server says this user may not publish to.
func deniedSubject(err error) (subject string, denied bool) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return "", false
	}
	_, words, _ := strings.Cut(err.Error(), `"`)
	subject, _, _ = strings.Cut(words, `"`)
	return subject, true
}

// fail reports those events that were sent. Another goroutine may be sending
// others: each of these that is denied gets a denial of its own.
func (w *window) fail(err error, which func(s slot) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	o := failure(err)
	sent := w.sent.Load()
	for n, s := range w.slots {
		if s.f != nil && s.serial <= sent && which(s) {
			w.vacate(n, o)
		}
	}
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
		w.ask(p)
		return
	}
	stream, seq, duplicate, err := parseAck(m.Data)
	o := Outcome{Duplicate: duplicate, Sequence: seq}
	if err != nil {
		o = failure(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.isOpen(p) {
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
	w.vacate(p.slot, o)
}

// parseAck reads a publish acknowledgement. The name of the stream is part of
// data.
func parseAck(data []byte) (stream []byte, seq uint64, duplicate bool, err error) {
	// The usual answer names stream and sequence and nothing else.
	if rest, ok := bytes.CutPrefix(data, []byte(`{"stream":"`)); ok {
		name, rest, ok := bytes.Cut(rest, []byte(`"`))
		digits, ok2 := bytes.CutPrefix(rest, []byte(`,"seq":`))
		digits, ok3 := bytes.CutSuffix(digits, []byte(`}`))
		if seq, number := parseNumber(digits); ok && ok2 && ok3 && len(name) > 0 && isPlain(name) && number {
			return name, seq, false, nil
		}
	}
	var answer struct {
		Stream    string `json:"stream"`
		Sequence  uint64 `json:"seq"`
		Duplicate bool   `json:"duplicate"`
		Error     *struct {
			Code        int    `json:"err_code"`
			Status      int    `json:"code"`
			Description string `json:"description"`
		} `json:"error"`
	}
	switch err := json.Unmarshal(data, &answer); {
	case err == nil && answer.Error != nil:
		return []byte(answer.Stream), 0, false, &BrokerError{Code: answer.Error.Code, Status: answer.Error.Status, Description: answer.Error.Description}
	case err == nil && answer.Stream != "" && answer.Sequence > 0: // anybody may answer on a subject
		return []byte(answer.Stream), answer.Sequence, answer.Duplicate, nil
	}
	return nil, 0, false, fmt.Errorf("%w: the answer cannot be read", ErrUnacknowledged)
}

// isPlain reports whether a name stands in JSON as it is: without escapes, which '&' and
// '<' can come as.
func isPlain(name []byte) bool {
	for _, c := range name {
		if c < ' ' || c > '~' || c == '\\' {
			return false
		}
	}
	return true
}

// parseNumber reads a number above zero, in at most 18 digits.
func parseNumber(text []byte) (n uint64, ok bool) {
	if len(text) == 0 || len(text) > 18 || text[0] < '1' {
		return 0, false
	}
	for _, c := range text {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + uint64(c-'0')
	}
	return n, true
}

// failure returns the outcome of an error.
func failure(err error) Outcome { return Outcome{Class: classify(err), Err: err} }

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
			known := make(map[string]Outcome)
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
	if !w.isOpen(p) {
		return "", false
	}
	return w.slots[p.slot].f.Subject, true
}

// streamOf returns the outcome of an event that nobody answered to.
func streamOf(ctx context.Context, js jetstream.JetStream, subject string) Outcome {
	ctx, cancel := context.WithTimeout(ctx, ackTimeout/2)
	defer cancel()
	name, err := js.StreamNameBySubject(ctx, subject)
	switch {
	case err == nil:
		return Outcome{Class: Unavailable, Stream: name, Err: ErrNoLeader}
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return failure(ErrNoStream)
	}
	return Outcome{Class: Unavailable, Err: ErrNoLeader} // who would know does not answer either
}
