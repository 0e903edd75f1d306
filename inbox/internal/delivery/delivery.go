// Package delivery has the types that the parts of the inbox share: an event on its way
// to a handler, how it failed, how it is held and how it ended. It does no I/O.
package delivery

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/guard"
	"github.com/postroom/postroom/internal/identity"
	"github.com/postroom/postroom/internal/wildcard"
	"github.com/postroom/postroom/internal/wire"
)

// Task is an event for a handler: a delivery of the broker, or a held event that is due.
type Task struct {
	Event   postroom.Event
	Key     string    // the dedupe key
	Digest  []byte    // hash of the type and data; nil if a DedupeKey function made the key
	Attempt int       // counts from 1
	Retried bool      // the event runs from the table held
	Start   time.Time // when a worker began with the event; zero if that is not known
}

// Delivery is a message of the broker on its way to a handler.
type Delivery struct {
	Task

	Msg    jetstream.Msg
	Source Source
	Place  Place

	Pos    int64    // the event's position in the order of its key
	Parked bool     // the delivery has waited in memory for its key
	Fault  *Failure // why the message cannot be handled; nil if it can
	Flight string   // if another delivery in flight has the same Flight, this delivery waits; see dispatch.Duplicates
	Bare   bool     // no DedupeKey function was called, because it may end the process; see OwnKey
	Began  string   // the id of its last transaction; empty if the inbox committed that transaction, or may have committed it
	Unheld *Unheld  // how to hold it, if it has waited because it could not be held and no event waits for it
	Doubts []Doubt  // the transactions that may have decided it, because their commits were not answered
}

// Place has the stream's data about a message.
type Place struct {
	Seq         uint64
	Stored      time.Time // when the stream stored it
	Delivered   uint64    // how often the broker has sent it
	Number      uint64    // the number that the consumer gave this delivery; it counts from 1
	Republished bool      // the relay published it again because the stream had lost it
	Ageless     bool      // it was in the stream when the handler was new, and has never been decided, so its age does not matter
	Consumer    time.Time // when the durable consumer that sent it was created; zero if an ordered reader read it
}

// Source is the reader that read a delivery from the stream. The inbox tells it how the
// delivery ended.
type Source interface {
	// Ack says that the delivery is decided.
	Ack(ctx context.Context, d *Delivery)

	// HandBack says that the delivery is not decided, and must be delivered again at
	// once.
	HandBack(ctx context.Context, d *Delivery)

	// Delay says that the delivery could not even be held, and must be delivered again
	// later.
	Delay(ctx context.Context, d *Delivery, err error)

	// IsOver reports whether the reader's term is over. If so, deliveries of this reader must not
	// begin any more, because they will be read again.
	IsOver() bool

	// Suspects reports whether the events that are read now may end the process.
	Suspects() bool

	// Held tells the reader that one of its deliveries is held, and how.
	Held(h Holding)

	// Epoch returns the epoch of the reader's lease: a number that no other reader of the handler
	// has. It returns 0 for a reader that has no lease.
	Epoch() int64
}

// IsOver reports whether the term of the delivery's reader is over. If so, the delivery must not
// begin any more, because the message will be read again.
func (d *Delivery) IsOver() bool { return d.Source != nil && d.Source.IsOver() }

// Epoch returns the epoch of the delivery's reader, or 0 if the reader has none.
func (d *Delivery) Epoch() int64 {
	if d.Source == nil {
		return 0
	}
	return d.Source.Epoch()
}

// Since returns the earlier of two times: when the event was logged, and when the stream stored it.
func (d *Delivery) Since() time.Time {
	if d.Place.Stored.Before(d.Event.LoggedAt) {
		return d.Place.Stored
	}
	return d.Event.LoggedAt
}

// Origin is the stream that a message comes from.
type Origin struct {
	Stream   string
	Created  time.Time // distinguishes two streams with the same name
	Floor    uint64    // every event up to this sequence was decided, and its inbox row may have expired
	Backfill uint64    // above Floor and up to this sequence, the age of an event does not matter
}

// Decode reads a message. If the message is not an event, the delivery has a fault, and
// its identity is its place in the stream. Decode returns an error only if the message is
// not from a stream.
func Decode(msg jetstream.Msg, from Origin) (*Delivery, error) {
	meta, err := msg.Metadata()
	if err != nil {
		return nil, fmt.Errorf("read metadata: %w", err)
	}
	d := &Delivery{
		Msg: msg, Task: Task{Attempt: 1},
		Place: Place{
			Seq: meta.Sequence.Stream, Stored: meta.Timestamp, Delivered: meta.NumDelivered, Number: meta.Sequence.Consumer,
			//guard:a-decided-event-of-the-backfill-has-an-age 1 true
			Ageless: from.Floor < meta.Sequence.Stream && meta.Sequence.Stream <= from.Backfill,
		},
	}
	// A stream that was deleted and created again counts from 1 again, so Created is part
	// of the id.
	id := from.Stream + "@" + from.Created.UTC().Format(time.RFC3339Nano) + "#" + strconv.FormatUint(d.Place.Seq, 10)
	d.Pos = int64(min(d.Place.Seq, 1<<61)) //nolint:gosec // bounded just here
	_, d.Place.Republished = msg.Headers()[wire.Republish]
	d.Event, err = wire.Decode(msg.Subject(), msg.Headers(), msg.Data())
	if err != nil {
		d.Event = postroom.Event{ID: id, Subject: guard.Clean(msg.Subject(), maxSubject), Data: msg.Data()}
		d.Fault = &Failure{Class: ClassUndecodable, Text: guard.Clean(err.Error(), guard.MaxText), Permanent: true}
	}
	if d.Event.ID == "" {
		d.Event.ID = id
	}
	if d.Event.LoggedAt.IsZero() {
		d.Event.LoggedAt = meta.Timestamp
	}
	return d, nil
}

// maxSubject is how many bytes the inbox keeps of the subject of a message that it cannot read or
// store as an event.
const maxSubject = 1024

// Identify sets the dedupe key and the digest. If the function by is not nil, it makes the key, and
// must return within the given time.
func (d *Delivery) Identify(by func(postroom.Event) string, within time.Duration) {
	d.Key, d.Digest = DefaultKey(d.Event), Digest(d.Event)
	if by != nil && d.Fault == nil {
		//guard:the-key-of-a-suspect-is-made-later false
		if d.IsSuspect() {
			d.Bare = true
		} else if key, fault := OwnKey(by, within, d.Event); fault != nil {
			d.Fault = fault
		} else {
			d.Key, d.Digest = key, nil // no digest: each key has one effect, even if the contents differ
		}
	}
	d.Flight = d.Key
}

// IsSuspect reports whether a delivery may have ended processes. It may also only have been in them
// when they ended.
func (d *Delivery) IsSuspect() bool {
	return d.Place.Delivered > suspectAfter || d.Source != nil && d.Source.Suspects()
}

// suspectAfter is the number of deliveries after which an event is run alone. The broker
// counts deliveries, not attempts. So the counts of harmless events also rise if they are
// in the same process as an event that ends the process.
const suspectAfter = 3

// OwnKey returns the dedupe key that the subscription's DedupeKey function makes for an event, or
// why it made none.
func OwnKey(by func(postroom.Event) string, within time.Duration, ev postroom.Event) (string, *Failure) {
	key, err := derive(by, within, ev)
	if err != nil {
		f := FailureOf(err)
		f.Class, f.Permanent = classDedupeKey, true
		return "", &f
	}
	return Bounded(key), nil
}

// derive calls the subscription's DedupeKey function. It returns an error if the function panics,
// ends its goroutine, or does not return in time.
func derive(by func(postroom.Event) string, within time.Duration, ev postroom.Event) (string, error) {
	key, err := guard.Apart(within, func() (string, error) { return by(ev), nil })
	switch {
	case err != nil:
		return "", fmt.Errorf("DedupeKey: %w", err)
	case key == "" || guard.Clean(key, len(key)) != key:
		return "", errNoKey
	}
	return key, nil
}

var errNoKey = errors.New("DedupeKey returned an empty text, or one that is not UTF-8")

// Bounded shortens a key that is too long for the table inbox.
func Bounded(key string) string { return identity.Bounded(key) }

// DefaultKey returns the dedupe key of an event whose handler has no DedupeKey function.
func DefaultKey(ev postroom.Event) string { return identity.DedupeKey(ev.Source, ev.ID) }

// Digest returns the first 16 bytes of SHA-256 over type and data.
func Digest(ev postroom.Event) []byte {
	h := sha256.New()
	h.Write([]byte(ev.Type))
	h.Write([]byte{0}) // a separator: no type contains it
	h.Write(ev.Data)
	return h.Sum(nil)[:16]
}

// Selection says which events a process takes for a handler: events of some types, or
// events on some subjects, with wildcards.
type Selection struct{ Types, Subjects []string }

// Takes reports whether the selection includes an event.
func (s Selection) Takes(ev postroom.Event) bool {
	if len(s.Types) > 0 {
		return slices.Contains(s.Types, ev.Type)
	}
	return slices.ContainsFunc(s.Subjects, func(pattern string) bool { return wildcard.Covers(pattern, ev.Subject) })
}

// Wished returns the types and a pattern for the subjects, in the form that claim.sql
// needs. nil means all.
func (s Selection) Wished() (types, subjects *string) {
	if len(s.Types) > 0 {
		all := strings.Join(s.Types, " ")
		types = &all
	}
	return types, s.pattern()
}

// pattern returns a regular expression that matches the subjects of the selection, or nil if the
// selection has no subjects.
func (s Selection) pattern() *string {
	if len(s.Subjects) == 0 {
		return nil
	}
	alternatives := make([]string, len(s.Subjects))
	for i, subject := range s.Subjects {
		tokens := strings.Split(subject, ".")
		for j, token := range tokens {
			switch token { // a '*' or '>' within a token is a character like any other
			case "*":
				tokens[j] = `[^.]+`
			case ">":
				tokens[j] = `.+`
			default:
				tokens[j] = regexp.QuoteMeta(token)
			}
		}
		alternatives[i] = strings.Join(tokens, `\.`)
	}
	all := "^(?:" + strings.Join(alternatives, "|") + ")$"
	return &all
}
