package natsjs

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/postroom/postroom/broker"
)

// replies are the answers that are waited for. Each has a number, which the
// subject names that it comes on: one that comes after its time finds nobody.
type replies struct {
	prefix string

	mu      sync.Mutex
	last    uint64
	waiting map[uint64]*reply
}

// reply is an answer to messages that were sent.
type reply struct {
	number  uint64
	flights []*broker.Message // what the messages are of; nil: of none
	subject string            // of a message that is of none
	got     chan answer
}

// answer is what the broker said, or why it did not.
type answer struct {
	data []byte
	err  error // in place of data
}

func newReplies(prefix string) *replies {
	return &replies{prefix: prefix, waiting: make(map[uint64]*reply)}
}

// errUnanswered says that nobody listens on the subject.
var errUnanswered = nats.ErrNoResponders

// expect returns a reply to the messages of events that are about to be sent, or to
// a message on a subject.
func (r *replies) expect(flights []*broker.Message, subject string) *reply {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last++
	w := &reply{number: r.last, flights: flights, subject: subject, got: make(chan answer, 1)}
	r.waiting[w.number] = w
	return w
}

// drop ends the waiting for a reply: its events are no longer ours.
func (r *replies) drop(w *reply) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.waiting, w.number)
}

// subject returns where a reply to a message is to go: to the first of a batch,
// which is answered without a word where all is well, or to the last.
func (r *replies) subject(w *reply, first bool) string {
	subject := r.prefix + strconv.FormatUint(w.number, 36)
	if first {
		subject += "-first"
	}
	return subject
}

// take takes an answer from the broker.
func (r *replies) take(m *nats.Msg) {
	text, first := strings.CutSuffix(strings.TrimPrefix(m.Subject, r.prefix), "-first")
	number, err := strconv.ParseUint(text, 36, 64)
	if err != nil {
		return // not an answer to anything that was sent
	}
	a := answer{data: m.Data}
	switch {
	case len(m.Data) == 0 && m.Header.Get("Status") == "503":
		a = answer{err: errUnanswered}
	case len(m.Data) == 0 && first:
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := r.waiting[number]; w != nil {
		w.put(a)
	}
}

// put hands an answer over, unless there is one already.
func (w *reply) put(a answer) {
	select {
	case w.got <- a:
	default:
	}
}

// failAll answers everybody that there is no answer.
func (r *replies) failAll(cause error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range r.waiting {
		w.put(answer{err: fmt.Errorf("%w: %w", broker.ErrUnacknowledged, cause)})
	}
}

// deny answers those who sent to a subject of which an error of the connection
// says that this user may not publish to it. See window.deny.
func (r *replies) deny(err error) {
	subject, denied := deniedSubject(err)
	if !denied {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range r.waiting {
		if w.subject == subject || slices.ContainsFunc(w.flights, func(f *broker.Message) bool { return f.Subject == subject }) {
			w.put(answer{err: broker.ErrNotAllowed})
		}
	}
}
