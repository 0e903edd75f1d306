package wire

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/postroom/postroom"
)

// structuredMode begins the content type of a message that is one JSON
// document: CloudEvents JSON format, section 3.
const structuredMode = "application/cloudevents+json"

// Decode reads an event from a message. Headers are read without regard to
// case. What a foreign writer left out stays empty: the ID falls back to the
// message id, the type to the subject.
func Decode(subject string, header map[string][]string, data []byte) (postroom.Event, error) {
	ev := postroom.Event{Subject: subject, Data: data}
	attributes, err := fold(header)
	if err != nil {
		return ev, err
	}
	if strings.HasPrefix(strings.ToLower(attributes[contentType]), structuredMode) {
		err = decodeStructured(&ev, data)
	} else {
		err = decodeBinary(&ev, attributes)
	}
	if err != nil {
		return ev, err
	}

	ev.CorrelationID = unescape(attributes[correlationID])
	ev.CausationID = unescape(attributes[causationID])
	ev.TraceParent, ev.TraceState = attributes[traceParent], attributes[traceState]
	if at := attributes[loggedAt]; at != "" {
		if ev.LoggedAt, err = time.Parse(time.RFC3339, at); err != nil {
			return ev, fmt.Errorf("%w: %s is no time", ErrUndecodable, loggedAt)
		}
	}
	if ev.ID == "" {
		ev.ID = attributes[strings.ToLower(MsgID)]
	}
	if ev.Type == "" {
		ev.Type = subject
	}
	ev.Headers = userHeaders(header)
	return ev, plain(ev)
}

// plain refuses attributes that no database column takes or that would forge a
// line of a log.
func plain(ev postroom.Event) error {
	for name, text := range map[string]string{
		id: ev.ID, source: ev.Source, eventType: ev.Type, partitionKey: ev.Key, contentType: ev.ContentType,
		correlationID: ev.CorrelationID, causationID: ev.CausationID, traceParent: ev.TraceParent, traceState: ev.TraceState,
	} {
		if !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) {
			return fmt.Errorf("%w: %s has a control character or is not UTF-8", ErrUndecodable, name)
		}
	}
	return nil
}

func decodeBinary(ev *postroom.Event, attributes map[string]string) error {
	ev.ID = unescape(attributes[id])
	ev.Source = unescape(attributes[source])
	ev.Type = unescape(attributes[eventType])
	ev.Key = unescape(attributes[partitionKey])
	ev.ContentType = attributes[contentType]
	return parseTime(ev, unescape(attributes[eventTime]))
}

// document is a CloudEvent in JSON format.
type document struct {
	ID, Source, Type string
	Time             string
	PartitionKey     string          `json:"partitionkey"`
	ContentType      string          `json:"datacontenttype"`
	Data             json.RawMessage `json:"data"`
	Base64           []byte          `json:"data_base64"`
}

func decodeStructured(ev *postroom.Event, data []byte) error {
	var doc document
	if err := json.Unmarshal(data, &doc); err != nil {
		return fmt.Errorf("%w: structured mode, and no JSON document", ErrUndecodable)
	}
	if doc.ID == "" || doc.Source == "" || doc.Type == "" {
		return fmt.Errorf("%w: structured mode without id, source or type", ErrUndecodable)
	}
	ev.ID, ev.Source, ev.Type, ev.Key, ev.ContentType = doc.ID, doc.Source, doc.Type, doc.PartitionKey, doc.ContentType
	ev.Data = doc.Base64
	if ev.Data == nil {
		ev.Data = structuredData(doc)
	}
	return parseTime(ev, doc.Time)
}

// structuredData returns the data member as bytes: JSON stays JSON, and a
// string under another content type is the text itself.
func structuredData(doc document) []byte {
	var s string
	isJSON := doc.ContentType == "" || strings.Contains(strings.ToLower(doc.ContentType), "json")
	if !isJSON && json.Unmarshal(doc.Data, &s) == nil {
		return []byte(s)
	}
	return doc.Data
}

func parseTime(ev *postroom.Event, s string) error {
	if s == "" {
		return nil
	}
	at, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return fmt.Errorf("%w: %s is no time", ErrUndecodable, eventTime)
	}
	ev.Time = at
	return nil
}

// fold returns headers by their names in lower case. An attribute that has two
// different values could mean two things, and is refused.
func fold(header map[string][]string) (map[string]string, error) {
	folded := make(map[string]string, len(header))
	for _, name := range slices.Sorted(maps.Keys(header)) {
		lower := strings.ToLower(name)
		for _, value := range header[name] {
			if was, ok := folded[lower]; ok && was != value && known(lower) {
				return nil, fmt.Errorf("%w: two values of %s", ErrUndecodable, lower)
			}
			folded[lower] = value
		}
	}
	return folded, nil
}

// known reports whether a header, in lower case, has a meaning to Decode.
func known(lower string) bool {
	for _, prefix := range []string{"ce-", "postroom-", "nats-"} {
		if strings.HasPrefix(lower, prefix) {
			return true
		}
	}
	return lower == contentType || lower == traceParent || lower == traceState
}

// userHeaders returns the headers that are the writer's own. Of several values
// of one, which Postroom does not write, the first counts.
func userHeaders(header map[string][]string) map[string]string {
	var own map[string]string
	for name, values := range header {
		if known(strings.ToLower(name)) || len(values) == 0 {
			continue
		}
		if own == nil {
			own = make(map[string]string)
		}
		own[name] = values[0]
	}
	return own
}

// unescape reverses escape. A percent sign that begins no escape is kept: a
// foreign writer may not have encoded it.
func unescape(s string) string {
	if !strings.Contains(s, "%") {
		return s
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			hi, lo := unhex(s[i+1]), unhex(s[i+2])
			if hi >= 0 && lo >= 0 {
				b = append(b, byte(hi<<4|lo)) //nolint:gosec // two hexadecimal digits are a byte
				i += 2
				continue
			}
		}
		b = append(b, s[i])
	}
	return string(b)
}

func unhex(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}
