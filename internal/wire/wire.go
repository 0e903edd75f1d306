// Package wire is the form in which events travel over NATS: CloudEvents 1.0 in
// binary mode, attributes as headers and the data as the message. Structured
// mode (one JSON document) is read, not written.
package wire

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/postroom/postroom"
)

// Headers that Postroom writes. CloudEvents attributes carry the prefix ce-;
// the trace context keeps its W3C names, in lower case.
const (
	MsgID = "Nats-Msg-Id" // the broker drops a second message with it, within its duplicate window

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

// ErrUndecodable is returned for a message that is no event: two values for one
// attribute, or a structured message that is no CloudEvent.
var ErrUndecodable = errors.New("undecodable message")

// maxMsgID is the longest message id that is sent as it is. The broker keeps
// the ids of its duplicate window in memory.
const maxMsgID = 128

// MessageID returns the id by which the broker knows a repeated publish:
// source and id of the event, hashed where they are long. Neither has a '#' in
// it, so no two events share one: a hashed one has two.
func MessageID(ev postroom.Event) string {
	s := ev.Source + "#" + ev.ID
	if len(s) <= maxMsgID {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return "sha256##" + hex.EncodeToString(sum[:])
}

// Encode returns the headers of an event's message. The data travels as it is.
func Encode(ev postroom.Event) map[string][]string {
	h := make(map[string][]string, 10+len(ev.Headers))
	for name, value := range ev.Headers {
		h[name] = []string{value}
	}
	h[MsgID] = []string{MessageID(ev)}
	h[specVersion] = []string{"1.0"}
	h[id] = []string{escape(ev.ID)}
	h[source] = []string{escape(ev.Source)}
	h[eventType] = []string{ev.Type}
	h[contentType] = []string{ev.ContentType}
	h[eventTime] = []string{stamp(ev.Time)}
	h[loggedAt] = []string{stamp(ev.LoggedAt)}
	optional := func(name, value string) {
		if value != "" {
			h[name] = []string{value}
		}
	}
	optional(partitionKey, escape(ev.Key))
	optional(correlationID, escape(ev.CorrelationID))
	optional(causationID, escape(ev.CausationID))
	optional(traceParent, ev.TraceParent)
	optional(traceState, ev.TraceState)
	return h
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// escape percent-encodes a text for a header as the CloudEvents bindings ask:
// space, quote, percent, and whatever is not printable ASCII.
func escape(s string) string {
	if strings.IndexFunc(s, mustEscape) < 0 {
		return s
	}
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; mustEscape(rune(c)) {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

func mustEscape(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '%' }
