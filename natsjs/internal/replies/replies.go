// Package replies waits for the broker's answers to the messages of an atomic batch.
package replies

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/postroom/postroom/relay/broker"
)

// Set has the answers that are expected. Each expected answer is a Reply, with a number that is
// part of the subject of the answer. If an answer comes after Drop, the set ignores it.
type Set struct {
	prefix string

	mu      sync.Mutex
	last    uint64
	waiting map[uint64]*Reply
}

// Reply is an answer that the caller expects.
type Reply struct {
	number   uint64
	messages []*broker.Message // the messages that were sent, if they have events
	subject  string            // the subject of the message, if it has no event
	got      chan Answer
}

// maxAnswers is how many answers to one message wait until the caller reads them. Usually one comes, but
// other programs and streams of another JetStream may answer too.
const maxAnswers = 16

// Got returns a channel that receives the answers.
func (w *Reply) Got() <-chan Answer { return w.got }

// Answer is the broker's answer, or the reason why there is none.
type Answer struct {
	Data []byte
	Err  error // if Err is set, Data is empty
}

// New returns an empty set. The subjects of its replies begin with prefix.
func New(prefix string) *Set {
	return &Set{prefix: prefix, waiting: make(map[uint64]*Reply)}
}

// ErrUnanswered means that neither a stream nor a program listens on the subject of a message.
var ErrUnanswered = nats.ErrNoResponders

// Expect adds a reply to the set. Call it before you send the messages. For a message without an
// event, the parameter messages is nil, and subject is the subject of the message.
func (r *Set) Expect(messages []*broker.Message, subject string) *Reply {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last++
	w := &Reply{number: r.last, messages: messages, subject: subject, got: make(chan Answer, maxAnswers)}
	r.waiting[w.number] = w
	return w
}

// Subjects returns a pattern that matches the subjects of all answers.
func (r *Set) Subjects() string { return r.prefix + "*" }

// Drop removes a reply. Then the set does not read the reply's messages: they may be used again.
func (r *Set) Drop(w *Reply) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.waiting, w.number)
}

// Subject returns the reply subject of the last message of a batch, or of the first message if the
// parameter first is true. The answer to the first message is empty, unless it is an error.
func (r *Set) Subject(w *Reply, first bool) string {
	subject := r.prefix + strconv.FormatUint(w.number, 36)
	if first {
		subject += "-first"
	}
	return subject
}

// A prefix is a subject that NewInbox of the NATS client returned, followed by a dot. nameLength is
// the length of the prefix's unique end: 22 random characters and the dot.
const nameLength = 23

// Name returns a name for the batch of a reply. No other reply of any set has this name.
func (r *Set) Name(w *Reply) string {
	return r.prefix[len(r.prefix)-nameLength:] + strconv.FormatUint(w.number, 36)
}

// Take passes an answer of the broker to the reply that waits for it.
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

// Put sends an answer to the channel of Got, unless the channel is full.
func (w *Reply) Put(a Answer) {
	select {
	case w.got <- a:
	default:
	}
}

// FailAll gives all replies an error as their answer.
func (r *Set) FailAll(cause error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range r.waiting {
		w.Put(Answer{Err: fmt.Errorf("%w: %w", broker.ErrUnacknowledged, cause)})
	}
}

// Deny examines an error of the connection. If the error says that the user may not publish to a
// subject, the replies to messages on this subject get the answer broker.ErrNotAllowed.
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

// DeniedSubject returns the subject if err says that the server does not let the user publish to
// it. For any other error, even if it is about a subscription, the result denied is false.
func DeniedSubject(err error) (subject string, denied bool) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return "", false
	}
	//guard:a-refused-subscription-denies-no-publication 2 = ` to "`
	_, words, denied := strings.Cut(err.Error(), `Publish to "`) // or: Subscription to "…"
	subject, _, _ = strings.Cut(words, `"`)
	return subject, denied
}
