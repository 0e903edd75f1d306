// Package delivery has what the parts of the inbox tell each other: an event on its way
// into a handler, how it failed, how it is held and how it ended. It does no I/O.
package delivery

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
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
	"github.com/postroom/postroom/internal/wildcard"
	"github.com/postroom/postroom/internal/wire"
)

// Task is an event that a handler is to decide: a delivery of the broker, or a
// held event that is due.
type Task struct {
	Event   postroom.Event
	Key     string // the dedupe key
	Digest  []byte // nil where the key is derived
	Attempt int    // counts from 1
	Retried bool   // from held
}

// Delivery is a message of the broker on its way into a handler.
type Delivery struct {
	Task

	Msg    jetstream.Msg
	Source Source
	Place  Place

	Pos    int64    // in its key
	Parked bool     // it has waited here for its key
	Fault  *Failure // why it cannot be handled; nil for an event
	Flight string   // what it waits for, if another has the same; see dispatch.Duplicates
	Began  string   // the id of its last transaction, if the inbox did not commit that
}

// Place is what the stream says of a message.
type Place struct {
	Seq       uint64
	Stored    time.Time // when the stream got it
	Delivered uint64    // how often the broker has sent it
	Rewound   bool      // it was published again, because the stream did not have it any more
	Ageless   bool      // it was in the stream when the handler was new
}

// Source is who read a delivery from the stream, and is told what became of it.
type Source interface {
	// Ack says that the delivery is decided.
	Ack(ctx context.Context, d *Delivery)

	// HandBack says that it is not, and is to be delivered again at once.
	HandBack(ctx context.Context, d *Delivery)

	// Delay says that it could not even be held, and is to be delivered again later.
	Delay(ctx context.Context, d *Delivery, err error)

	// IsOver reports whether what was read is not to be begun any more: it is read again.
	IsOver() bool

	// Suspects reports whether what is read now may be what ends processes.
	Suspects() bool

	// Held says how the delivery is held.
	Held(h Holding)

	// Epoch tells one reader of an ordered handler from the next; 0 of others.
	Epoch() int64
}

// IsOver reports whether a delivery is not to be begun any more: it is read again.
func (d *Delivery) IsOver() bool { return d.Source != nil && d.Source.IsOver() }

// Epoch is the one in which it was read; 0 if that does not matter.
func (d *Delivery) Epoch() int64 {
	if d.Source == nil {
		return 0
	}
	return d.Source.Epoch()
}

// Since is when the event was logged or stored, whichever was first.
func (d *Delivery) Since() time.Time {
	if d.Place.Stored.Before(d.Event.LoggedAt) {
		return d.Place.Stored
	}
	return d.Event.LoggedAt
}

// Origin is the stream that a message comes from.
type Origin struct {
	Stream   string
	Created  time.Time // tells two streams of one name apart
	Backfill uint64    // up to here the age of an event does not matter
}

// Decode reads a message. What is no event has a fault, and an identity by its place in
// the stream. It fails only if the message is none of a stream.
func Decode(msg jetstream.Msg, from Origin) (*Delivery, error) {
	meta, err := msg.Metadata()
	if err != nil {
		return nil, fmt.Errorf("read metadata: %w", err)
	}
	d := &Delivery{
		Msg: msg, Task: Task{Attempt: 1},
		Place: Place{
			Seq: meta.Sequence.Stream, Stored: meta.Timestamp, Delivered: meta.NumDelivered,
			Ageless: meta.Sequence.Stream <= from.Backfill,
		},
	}
	// A stream that was deleted and made again counts from 1 again.
	id := from.Stream + "@" + from.Created.UTC().Format(time.RFC3339Nano) + "#" + strconv.FormatUint(d.Place.Seq, 10)
	d.Pos = int64(min(d.Place.Seq, 1<<61)) //nolint:gosec // bounded just here
	_, d.Place.Rewound = msg.Headers()[wire.Rewind]
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

// maxSubject is how much is kept of a subject that no producer of ours wrote.
const maxSubject = 1024

// Identify derives the dedupe key and the digest; the key with a user's function, unless
// that is nil, which has so much time.
func (d *Delivery) Identify(by func(postroom.Event) string, within time.Duration) {
	d.Key, d.Digest = dedupeKey(d.Event), digest(d.Event)
	if by != nil && d.Fault == nil {
		key, err := derive(by, within, d.Event)
		if err != nil {
			f := FailureOf(err)
			f.Class, f.Permanent = classDedupeKey, true
			d.Fault = &f
		} else {
			d.Key, d.Digest = Bounded(key), nil // one effect for each key, whatever the event says
		}
	}
	d.Flight = d.Key
}

// derive calls the subscription's function, which may be wrong: it panics, ends the
// goroutine, or does not return.
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

// dedupeKey is source and id. A source of ours has no white space in it; one
// that has must not be taken for another that ends earlier.
func dedupeKey(ev postroom.Event) string {
	return Bounded(strings.ReplaceAll(ev.Source, " ", "%20") + " " + ev.ID)
}

// MaxKey is the longest key that is kept as it is: the column takes 1,024 bytes,
// and a conflict adds its digest.
const MaxKey = 960

// Bounded shortens a key that the ledger does not take. Two that differ still do.
func Bounded(key string) string {
	if len(key) <= MaxKey {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return strings.ToValidUTF8(key[:512], "") + "… sha256:" + hex.EncodeToString(sum[:])
}

// digest is the first 16 bytes of SHA-256 over type and data.
func digest(ev postroom.Event) []byte {
	h := sha256.New()
	h.Write([]byte(ev.Type))
	h.Write([]byte{0}) // no type has it in it
	h.Write(ev.Data)
	return h.Sum(nil)[:16]
}

// Selection says which events a process takes for a handler: those of some types, or those
// on some subjects, which may have wildcards.
type Selection struct{ Types, Subjects []string }

// Takes reports whether it takes an event.
func (s Selection) Takes(ev postroom.Event) bool {
	if len(s.Types) > 0 {
		return slices.Contains(s.Types, ev.Type)
	}
	return slices.ContainsFunc(s.Subjects, func(pattern string) bool { return wildcard.Covers(pattern, ev.Subject) })
}

// Wished are the types and a pattern for the subjects, as claim.sql has them; nil for all.
func (s Selection) Wished() (types, subjects *string) {
	if len(s.Types) > 0 {
		all := strings.Join(s.Types, " ")
		types = &all
	}
	return types, s.pattern()
}

// pattern returns a regular expression that matches the same subjects, or nil
// if there are none.
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
