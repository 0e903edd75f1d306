// Package replies waits for what the broker answers to the messages of an atomic batch.
package replies

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/postroom/postroom/broker"
)

// Set is the answers that are waited for. Each has a number, which the
// subject names that it comes on: one that comes after its time finds nobody.
type Set struct {
	prefix string

	mu      sync.Mutex
	last    uint64
	waiting map[uint64]*Reply
}

// Reply is an answer to messages that were sent.
type Reply struct {
	number   uint64
	messages []*broker.Message // what the messages are of; nil: of none
	subject  string            // of a message that is of none
	got      chan Answer
}

// Got returns a channel that receives the answer.
func (w *Reply) Got() <-chan Answer { return w.got }

// Answer is what the broker said, or why it did not.
type Answer struct {
	Data []byte
	Err  error // in place of Data
}

// New returns an empty set. The subjects of its replies begin with prefix.
func New(prefix string) *Set {
	return &Set{prefix: prefix, waiting: make(map[uint64]*Reply)}
}

// ErrUnanswered says that nobody listens on the subject.
var ErrUnanswered = nats.ErrNoResponders

// Expect returns a reply to the messages of events that are about to be sent, or to
// a message on a subject.
func (r *Set) Expect(messages []*broker.Message, subject string) *Reply {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last++
	w := &Reply{number: r.last, messages: messages, subject: subject, got: make(chan Answer, 1)}
	r.waiting[w.number] = w
	return w
}

// Subjects returns the subjects that answers come on.
func (r *Set) Subjects() string { return r.prefix + "*" }

// Drop ends the waiting for a reply: its events are no longer ours.
func (r *Set) Drop(w *Reply) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.waiting, w.number)
}

// Subject returns where a reply to a message is to go: to the first of a batch,
// which is answered without a word where all is well, or to the last.
func (r *Set) Subject(w *Reply, first bool) string {
	subject := r.prefix + strconv.FormatUint(w.number, 36)
	if first {
		subject += "-first"
	}
	return subject
}

// nameLength is how much of a prefix, from its end, tells it from all others: the
// unique part of an inbox, and a point.
const nameLength = 23

// Name returns a text that no other reply has, whoever waits for it.
func (r *Set) Name(w *Reply) string {
	return r.prefix[len(r.prefix)-nameLength:] + strconv.FormatUint(w.number, 36)
}

// Take takes an answer from the broker.
func (r *Set) Take(m *nats.Msg) {
	text, first := strings.CutSuffix(strings.TrimPrefix(m.Subject, r.prefix), "-first")
	number, err := strconv.ParseUint(text, 36, 64)
	if err != nil {
		return // not an answer to anything that was sent
	}
	a := Answer{Data: m.Data}
	switch {
	case len(m.Data) == 0 && m.Header.Get("Status") == "503":
		a = Answer{Err: ErrUnanswered}
	case len(m.Data) == 0 && first:
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := r.waiting[number]; w != nil {
		w.Put(a)
	}
}

// Put hands an answer over, unless there is one already.
func (w *Reply) Put(a Answer) {
	select {
	case w.got <- a:
	default:
	}
}

// FailAll answers everybody that there is no answer.
func (r *Set) FailAll(cause error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range r.waiting {
		w.Put(Answer{Err: fmt.Errorf("%w: %w", broker.ErrUnacknowledged, cause)})
	}
}

// Deny answers those who sent to a subject of which an error of the connection
// says that this user may not publish to it.
func (r *Set) Deny(err error) {
	subject, denied := DeniedSubject(err)
	if !denied {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range r.waiting {
		if w.subject == subject || slices.ContainsFunc(w.messages, func(f *broker.Message) bool { return f.Subject == subject }) {
			w.Put(Answer{Err: broker.ErrNotAllowed})
		}
	}
}

// DeniedSubject returns the subject that the server says this user may not publish to.
func DeniedSubject(err error) (subject string, denied bool) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return "", false
	}
	_, words, _ := strings.Cut(err.Error(), `"`)
	subject, _, _ = strings.Cut(words, `"`)
	return subject, true
}
