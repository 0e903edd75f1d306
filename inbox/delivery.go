package inbox

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/guard"
	"github.com/postroom/postroom/internal/wire"
)

// task is an event that a handler is to decide: a delivery of the broker, or a
// held event that is due.
type task struct {
	ev      postroom.Event
	key     string // the dedupe key
	digest  []byte // nil where the key is derived
	attempt int    // counts from 1
	retried bool   // from held
}

// delivery is a message of the broker on its way into a handler.
type delivery struct {
	task

	msg       jetstream.Msg
	seq       uint64    // in the stream
	pos       int64     // in its key
	term      *term     // of the reader of an ordered handler
	parked    bool      // it has waited here for its key
	rewound   bool      // it was published again, because the stream did not have it any more
	stored    time.Time // when the stream got it
	delivered uint64    // how often the broker has sent it
	ageless   bool      // it was in the stream when the handler was new
	fault     *failure  // why it cannot be handled; nil for an event
	flight    string    // what it waits for, if another has the same; see flights
	began     string    // the id of its last transaction, if the inbox did not commit that
}

// decode reads a message and derives the event's identity. It cannot fail: what
// is no event has a fault, and an identity by its place in the stream.
func (c *consumer) decode(msg jetstream.Msg) (*delivery, error) {
	meta, err := msg.Metadata()
	if err != nil {
		return nil, fmt.Errorf("read metadata: %w", err)
	}
	d := &delivery{
		msg: msg, seq: meta.Sequence.Stream, stored: meta.Timestamp, delivered: meta.NumDelivered,
		ageless: meta.Sequence.Stream <= c.backfillThrough, task: task{attempt: 1},
	}
	// A stream that was deleted and made again counts from 1 again.
	place := c.sub.Stream + "@" + c.streamCreated.UTC().Format(time.RFC3339Nano) + "#" + strconv.FormatUint(d.seq, 10)
	d.pos = int64(min(d.seq, 1<<61)) //nolint:gosec // bounded just here
	_, d.rewound = msg.Headers()[wire.Rewind]
	d.ev, err = wire.Decode(msg.Subject(), msg.Headers(), msg.Data())
	if err != nil {
		d.ev = postroom.Event{ID: place, Subject: clean(msg.Subject(), maxSubject), Data: msg.Data()}
		d.fault = &failure{class: classUndecodable, text: clean(err.Error(), maxFailureText), permanent: true}
	}
	if d.ev.ID == "" {
		d.ev.ID = place
	}
	if d.ev.LoggedAt.IsZero() {
		d.ev.LoggedAt = meta.Timestamp
	}
	c.identify(d)
	d.flight = d.key
	return d, nil
}

// maxSubject is how much is kept of a subject that no producer of ours wrote.
const maxSubject = 1024

// identify derives the dedupe key and the digest.
func (c *consumer) identify(d *delivery) {
	d.key, d.digest = dedupeKey(d.ev), digest(d.ev)
	if c.sub.DedupeKey == nil || d.fault != nil {
		return
	}
	derived, err := c.derive(d.ev)
	if err != nil {
		f := failureOf(err)
		f.class, f.permanent = classDedupeKey, true
		d.fault = &f
		return
	}
	d.key, d.digest = bounded(derived), nil // one effect for each key, whatever the event says
}

// derive calls the subscription's function, which may be wrong: it panics, ends the
// goroutine, or does not return.
func (c *consumer) derive(ev postroom.Event) (string, error) {
	key, err := guard.Apart(c.sub.Timeout, func() (string, error) { return c.sub.DedupeKey(ev), nil })
	switch {
	case err != nil:
		return "", fmt.Errorf("DedupeKey: %w", err)
	case key == "" || clean(key, len(key)) != key:
		return "", errNoKey
	}
	return key, nil
}

var errNoKey = errors.New("DedupeKey returned an empty text, or one that is not UTF-8")

// dedupeKey is source and id. A source of ours has no white space in it; one
// that has must not be taken for another that ends earlier.
func dedupeKey(ev postroom.Event) string {
	return bounded(strings.ReplaceAll(ev.Source, " ", "%20") + " " + ev.ID)
}

// maxKey is the longest key that is kept as it is: the column takes 1,024 bytes,
// and a conflict adds its digest.
const maxKey = 960

// bounded shortens a key that the ledger does not take. Two that differ still do.
func bounded(key string) string {
	if len(key) <= maxKey {
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
