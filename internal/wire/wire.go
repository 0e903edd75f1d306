// Package wire encodes and decodes events as NATS messages: CloudEvents 1.0 in binary mode, with
// the attributes as headers and the data as the body. It also decodes structured mode, in which the
// message is one JSON document.
package wire

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/postroom/postroom"
)

// Headers that Postroom writes. The headers of CloudEvents attributes have the prefix ce-. The
// headers of the trace context have their W3C names, in lower case.
const (
	MsgID = "Nats-Msg-Id" // the broker drops a second message with the same id within its duplicate window

	// Republish marks an event that is published again because an operator ordered it. The relay
	// may have published later events of the same key already.
	Republish = "postroom-republish"

	specVersion   = "ce-specversion"
	id            = "ce-id"
	source        = "ce-source"
	eventType     = "ce-type"
	eventTime     = "ce-time"
	partitionKey  = "ce-partitionkey"
	contentType   = "content-type"
	loggedAt      = "postroom-logged-at"
	correlationID = "postroom-correlation-id"
	causationID   = "postroom-causation-id"
	traceParent   = "traceparent"
	traceState    = "tracestate"
)

// LeasePrefix is the prefix of the subjects of lease messages. In each term, a relay with atomic
// batches publishes a lease message to a stream before its first batch. From then on, the stream
// refuses the batches of relays that this relay has replaced. Lease messages are not events, and
// consumers ignore them.
const LeasePrefix = "postroom.lease."

// IsLease reports whether a message with the given subject is a lease message.
func IsLease(subject string) bool { return strings.HasPrefix(subject, LeasePrefix) }

// ErrUndecodable says that a message is not an event: for instance, an attribute has two values or
// an invalid value, or a structured message is not a CloudEvent.
var ErrUndecodable = errors.New("undecodable message")

// maxMsgID is the length of the longest message id that MessageID does not hash. MessageID hashes
// longer ids, because the broker keeps the ids of its duplicate window in memory.
const maxMsgID = 128

// MessageID returns the id by which the broker recognises a repeated publish: the source and id of
// the event, hashed if they are long. Two events never have the same message id: source and id
// contain no '#', and only a hashed message id has "##". If an event is replayed or republished, or
// its message was lost, its next message has a new message id. With the old id, the broker could
// drop this message as a duplicate.
func MessageID(ev postroom.Event, c Copy) string {
	return string(appendMessageID(nil, ev.Source, ev.ID, c))
}

// Copy distinguishes the messages of an event. The zero value is the first message.
type Copy struct {
	Replays     int   // how often an operator replayed the event when it was dead
	RepublishID int64 // the republish that publishes the event; 0 if there is none

	// Lost is the sequence of the lost message that this message replaces; 0 if it replaces none.
	Lost uint64
}

// appendMessageID appends a message id to text, which must be empty.
func appendMessageID(text []byte, source, id string, c Copy) []byte {
	text = append(text, source...)
	text = append(text, '#')
	text = append(text, id...)
	if c.Replays > 0 {
		text = strconv.AppendInt(append(text, "#r"...), int64(c.Replays), 10)
	}
	if c.RepublishID > 0 {
		text = strconv.AppendInt(append(text, "#g"...), c.RepublishID, 10)
	}
	//guard:a-copy-of-a-loss-has-its-own-id false
	if c.Lost > 0 {
		text = strconv.AppendUint(append(text, "#l"...), c.Lost, 10)
	}
	if len(text) <= maxMsgID {
		return text
	}
	sum := sha256.Sum256(text)
	return hex.AppendEncode(append(text[:0], "sha256##"...), sum[:])
}

// Encode returns the headers of an event's first message. The body of the message is the event's
// data, unchanged.
func Encode(ev postroom.Event) map[string][]string {
	return NewEncoder().Encode(&ev, Copy{})
}

// Encoder encodes one event after another into the same map, so that it allocates only the texts.
// The caller must copy or send the headers before it encodes the next event. An Encoder is not safe
// for concurrent use.
type Encoder struct {
	header map[string][]string
	own    []string // user headers of the last event
	text   []byte   // memory for reuse

	msgID, id, source, eventType, contentType, eventTime, loggedAt []string

	optional []optionalHeader
	marked   bool // the header Republish is set for the last event
}

// optionalHeader is a header that the Encoder leaves out if the event has no value for it.
type optionalHeader struct {
	name  string
	value []string
}

// NewEncoder returns an encoder.
func NewEncoder() *Encoder {
	e := &Encoder{header: make(map[string][]string, 16)}
	slot := func(name string) []string {
		value := make([]string, 1)
		e.header[name] = value
		return value
	}
	slot(specVersion)[0] = "1.0"
	e.msgID, e.id, e.source, e.eventType = slot(MsgID), slot(id), slot(source), slot(eventType)
	e.contentType, e.eventTime, e.loggedAt = slot(contentType), slot(eventTime), slot(loggedAt)
	for _, name := range []string{partitionKey, correlationID, causationID, traceParent, traceState} {
		e.optional = append(e.optional, optionalHeader{name, make([]string, 1)})
	}
	return e
}

// Encode returns the headers of a message of ev. c says which of the event's messages this is. The
// headers are valid until the next call.
func (e *Encoder) Encode(ev *postroom.Event, c Copy) map[string][]string {
	for _, name := range e.own {
		delete(e.header, name)
	}
	e.own = e.own[:0]
	for name, value := range ev.Headers {
		e.own = append(e.own, name)
		e.header[name] = []string{value}
	}
	e.setOwnTexts(ev, c)
	e.id[0], e.source[0] = escape(ev.ID), escape(ev.Source)
	e.eventType[0], e.contentType[0] = ev.Type, ev.ContentType
	e.mark(c.RepublishID)
	e.eventTime[0] = e.loggedAt[0]
	if ev.Time != ev.LoggedAt {
		e.eventTime[0] = stamp(ev.Time)
	}
	values := [...]string{escape(ev.Key), escape(ev.CorrelationID), escape(ev.CausationID), ev.TraceParent, ev.TraceState}
	for i, value := range values {
		o := &e.optional[i]
		if there := o.value[0] != ""; there && value == "" {
			delete(e.header, o.name)
		} else if !there && value != "" {
			e.header[o.name] = o.value
		}
		o.value[0] = value
	}
	return e.header
}

// setOwnTexts sets the message id and the time at which the event was logged. It allocates one text
// for both.
func (e *Encoder) setOwnTexts(ev *postroom.Event, c Copy) {
	e.text = appendMessageID(e.text[:0], ev.Source, ev.ID, c)
	n := len(e.text)
	e.text = appendStamp(e.text, ev.LoggedAt)
	text := string(e.text)
	e.msgID[0], e.loggedAt[0] = text[:n], text[n:]
}

// mark sets the header Republish, or removes it if no republish publishes the event.
func (e *Encoder) mark(republish int64) {
	if republish > 0 {
		e.header[Republish] = []string{strconv.FormatInt(republish, 10)}
		//guard:a-republish-marks-its-own-events false
	} else if e.marked {
		delete(e.header, Republish)
	}
	e.marked = republish > 0
}

func stamp(t time.Time) string { return string(appendStamp(nil, t)) }

func appendStamp(text []byte, t time.Time) []byte {
	return t.UTC().AppendFormat(text, time.RFC3339Nano)
}

// escape percent-encodes a text for a header, as the CloudEvents bindings require. It encodes
// space, quote, percent, and all characters that are not printable ASCII.
func escape(s string) string {
	plain := 0
	for plain < len(s) && !mustEscape(s[plain]) {
		plain++
	}
	if plain == len(s) {
		return s
	}
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; mustEscape(c) {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

func mustEscape(c byte) bool { return c <= ' ' || c > '~' || c == '"' || c == '%' }
