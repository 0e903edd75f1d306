package postmill

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postroom/postroom"
)

// The headers that a Publisher gives to the event that it makes from a Watermill message.
const (
	uuidHeader     = "watermill-uuid"
	metadataHeader = "watermill-metadata"
)

// jetStreamUUIDHeader has the UUID of a message that Watermill's own publisher for JetStream sent.
// The other headers of that message are its metadata.
const jetStreamUUIDHeader = "_watermill_message_uuid"

// Keys of metadata whose values also become properties of the event. They stay in the metadata.
const (
	contentTypeKey   = "content-type"
	correlationIDKey = "correlation_id" // the key that Watermill's middleware uses
)

// anyBytes is the content type of an event if the metadata has no valid content type.
const anyBytes = "application/octet-stream"

// subjectPrefix is the beginning of each topic's subject if SubjectOf is not set.
const subjectPrefix = "wm."

func prefixed(topic string) string { return subjectPrefix + topic }

// checkTopic returns an error if a topic cannot be a part of a subject.
func checkTopic(topic string) error {
	if (postroom.Event{Type: topic}).Validate() == nil {
		return nil
	}
	return fmt.Errorf("%w: topic %q: write tokens of letters, digits, '_' and '-' with single dots between them", postroom.ErrInvalidEvent, topic)
}

// setContent puts the payload, the UUID and the metadata of a message into an event.
func setContent(ev *postroom.Event, msg *message.Message) error {
	ev.Data, ev.ContentType = msg.Payload, anyBytes
	ev.Headers = map[string]string{uuidHeader: quoteUnlessPlain(msg.UUID)}
	if len(msg.Metadata) > 0 {
		for _, key := range slices.Sorted(maps.Keys(msg.Metadata)) {
			if !utf8.ValidString(key) || !utf8.ValidString(msg.Metadata[key]) {
				return fmt.Errorf("%w: metadata %q is not valid UTF-8", postroom.ErrInvalidEvent, key)
			}
		}
		ev.Headers[metadataHeader] = asciiJSON(msg.Metadata)
	}
	if !utf8.ValidString(msg.UUID) {
		return fmt.Errorf("%w: the UUID %q is not valid UTF-8", postroom.ErrInvalidEvent, msg.UUID)
	}
	if contentType := msg.Metadata.Get(contentTypeKey); contentType != "" && (postroom.Event{Type: ev.Type, ContentType: contentType}).Validate() == nil {
		ev.ContentType = contentType
	}
	if id := msg.Metadata.Get(correlationIDKey); id != "" && (postroom.Event{Type: ev.Type, CorrelationID: id}).Validate() == nil {
		ev.CorrelationID = id
	}
	return nil
}

// toMessage converts an event to a message. If a Publisher, or Watermill's publisher for JetStream,
// made the event from a message, toMessage returns that message again. Otherwise the UUID is the
// event's id, and the metadata is the event's headers. The payload is a copy, because a subscriber
// may change a message, but must not change an event.
func toMessage(ev postroom.Event) *message.Message {
	//guard:watermill-the-payload-is-a-copy 2 = @1
	msg := message.NewMessage(ev.ID, bytes.Clone(ev.Data))
	uuid, written := ev.Headers[uuidHeader]
	var metadata message.Metadata
	if text, ok := ev.Headers[metadataHeader]; written && ok {
		written = json.Unmarshal([]byte(text), &metadata) == nil
	}
	if written && strings.HasPrefix(uuid, `"`) {
		written = json.Unmarshal([]byte(uuid), &uuid) == nil
	}
	if !written {
		maps.Copy(msg.Metadata, ev.Headers)
		fromJetStream(msg, ev)
		return msg
	}
	msg.UUID = uuid
	maps.Copy(msg.Metadata, metadata)
	return msg
}

// fromJetStream sets the UUID, and the metadata that the inbox reads as parts of an event, if Watermill's own
// publisher for JetStream sent ev.
func fromJetStream(msg *message.Message, ev postroom.Event) {
	uuid, ok := ev.Headers[jetStreamUUIDHeader]
	if !ok {
		return
	}
	msg.UUID = uuid
	delete(msg.Metadata, jetStreamUUIDHeader)
	for key, value := range map[string]string{contentTypeKey: ev.ContentType, "traceparent": ev.TraceParent, "tracestate": ev.TraceState} {
		if value != "" {
			msg.Metadata[key] = value
		}
	}
}

// quoteUnlessPlain returns a text in a form that a header can have: unchanged, or as a JSON string.
func quoteUnlessPlain(s string) string {
	if s == "" || s[0] == '"' || strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return asciiJSON(s)
	}
	return s
}

// asciiJSON returns a value as JSON in printable ASCII, which is valid in every header.
func asciiJSON(v any) string {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err) // strings and maps of strings always encode
	}
	var out strings.Builder
	for _, r := range strings.TrimSuffix(text.String(), "\n") {
		switch {
		case r > 0xffff:
			r -= 0x10000
			fmt.Fprintf(&out, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		case r > '~':
			fmt.Fprintf(&out, `\u%04x`, r)
		default:
			out.WriteRune(r)
		}
	}
	return out.String()
}
