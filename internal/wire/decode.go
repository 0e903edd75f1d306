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

// structuredMode is the prefix of the content type of a message that is one JSON document as a
// whole (CloudEvents JSON format, section 3).
const structuredMode = "application/cloudevents+json"

// attributes has the values of a message's headers. An attribute, unlike the writer's own headers,
// may have only one value.
type attributes struct {
	msgID, id, source, eventType, eventTime, key, contentType              string
	loggedAt, correlation, causation, traceParent, traceState, specVersion string

	seen  uint              // one bit for each attribute that has a value
	other map[string]string // headers with a known prefix that Decode does not use
	own   map[string]string // the writer's own headers, by name
}

// Decode reads an event from a message. The case of header names does not matter. If another
// program wrote the message, headers may be missing. Without an id, the event gets the message id
// as its ID. Without a type, it gets the subject as its type.
func Decode(subject string, header map[string][]string, data []byte) (postroom.Event, error) {
	ev := postroom.Event{Subject: subject, Data: data}
	var a attributes
	if !a.read(header) {
		return ev, fmt.Errorf("%w: two values of %s", ErrUndecodable, disputed(header))
	}
	var err error
	if len(a.contentType) >= len(structuredMode) && strings.EqualFold(a.contentType[:len(structuredMode)], structuredMode) {
		err = decodeStructured(&ev, data)
	} else {
		err = decodeBinary(&ev, &a)
	}
	if err != nil {
		return ev, err
	}

	ev.CorrelationID = unescape(a.correlation)
	ev.CausationID = unescape(a.causation)
	ev.TraceParent, ev.TraceState = a.traceParent, a.traceState
	if a.loggedAt != "" {
		if ev.LoggedAt, err = time.Parse(time.RFC3339, a.loggedAt); err != nil {
			return ev, fmt.Errorf("%w: %s is no time", ErrUndecodable, loggedAt)
		}
	}
	if ev.ID == "" {
		ev.ID = a.msgID
	}
	if ev.Type == "" {
		ev.Type = subject
	}
	ev.Headers = a.own
	return ev, plain(&ev)
}

// read reads headers. It returns false if an attribute has two different values.
func (a *attributes) read(header map[string][]string) bool {
	for name, values := range header {
		slot, bit := a.slot(name)
		if slot == nil && !known(strings.ToLower(name)) {
			if len(values) > 0 { // take the first value, because Postroom never writes several values
				if a.own == nil {
					a.own = make(map[string]string)
				}
				a.own[name] = values[0]
			}
			continue
		}
		for _, value := range values {
			if !a.set(name, slot, bit, value) {
				return false
			}
		}
	}
	return true
}

// slot returns the field of a that has the value of the named header, and its bit in the field
// seen. If there is no field for this header, slot returns nil.
func (a *attributes) slot(name string) (*string, uint) {
	if name == MsgID { // the usual spelling; the other names are in lower case, so ToLower does not copy them
		return &a.msgID, 1
	}
	switch strings.ToLower(name) {
	case "nats-msg-id":
		return &a.msgID, 1
	case id:
		return &a.id, 1 << 1
	case source:
		return &a.source, 1 << 2
	case eventType:
		return &a.eventType, 1 << 3
	case eventTime:
		return &a.eventTime, 1 << 4
	case partitionKey:
		return &a.key, 1 << 5
	case contentType:
		return &a.contentType, 1 << 6
	case loggedAt:
		return &a.loggedAt, 1 << 7
	case correlationID:
		return &a.correlation, 1 << 8
	case causationID:
		return &a.causation, 1 << 9
	case traceParent:
		return &a.traceParent, 1 << 10
	case traceState:
		return &a.traceState, 1 << 11
	case specVersion:
		return &a.specVersion, 1 << 12
	}
	return nil, 0
}

// set stores a value. It returns false if the attribute has a different value already. It also
// stores headers that are known only by their prefix, to compare their values too.
func (a *attributes) set(name string, slot *string, bit uint, value string) bool {
	if slot != nil {
		same := a.seen&bit == 0 || *slot == value
		*slot, a.seen = value, a.seen|bit
		return same
	}
	if a.other == nil {
		a.other = make(map[string]string)
	}
	lower := strings.ToLower(name)
	was, ok := a.other[lower]
	a.other[lower] = value
	return !ok || was == value
}

// plain returns an error if an attribute has characters that the database does not accept, or that
// could forge a line in a log.
func plain(ev *postroom.Event) error {
	for _, attribute := range [...]struct{ name, text string }{
		{id, ev.ID},
		{source, ev.Source},
		{eventType, ev.Type},
		{partitionKey, ev.Key},
		{contentType, ev.ContentType},
		{correlationID, ev.CorrelationID},
		{causationID, ev.CausationID},
		{traceParent, ev.TraceParent},
		{traceState, ev.TraceState},
	} {
		if !isPlain(attribute.text) {
			return fmt.Errorf("%w: %s has a control character or is not UTF-8", ErrUndecodable, attribute.name)
		}
	}
	return nil
}

func isPlain(text string) bool {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' { // check in detail
			return utf8.ValidString(text) && !strings.ContainsFunc(text, unicode.IsControl)
		}
	}
	return true
}

func decodeBinary(ev *postroom.Event, a *attributes) error {
	ev.ID = unescape(a.id)
	ev.Source = unescape(a.source)
	ev.Type = unescape(a.eventType)
	ev.Key = unescape(a.key)
	ev.ContentType = a.contentType
	return parseTime(ev, unescape(a.eventTime))
}

// document is a CloudEvent in the JSON format.
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

// structuredData returns the value of the document's member "data" as bytes. If the content type is
// JSON, or if the value is not a string, the bytes are the JSON text. Otherwise they are the text
// of the string.
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

// Identity returns the source and the id of an event, from its headers only. If one of the two
// headers is missing or has several values, both results are empty.
func Identity(header map[string][]string) (eventSource, eventID string) {
	// Identity reads only the spelling that Encode writes. Headers of other programs may have other
	// spellings.
	ids, sources := header[id], header[source]
	//guard:a-message-of-two-events-is-none = @1.1 == 0 || @2.1 == 0
	if len(ids) != 1 || len(sources) != 1 {
		return "", ""
	}
	return unescape(sources[0]), unescape(ids[0])
}

// LoggedAt returns when an event was logged, from its headers only. If there is no such time, the
// result is zero.
func LoggedAt(header map[string][]string) time.Time {
	times := header[loggedAt]
	if len(times) != 1 {
		return time.Time{}
	}
	at, err := time.Parse(time.RFC3339, times[0])
	if err != nil {
		return time.Time{}
	}
	return at
}

// disputed returns the first attribute, by name, that has two different values.
func disputed(header map[string][]string) string {
	first := make(map[string]string)
	for _, name := range slices.Sorted(maps.Keys(header)) {
		lower := strings.ToLower(name)
		for _, value := range header[name] {
			if was, ok := first[lower]; ok && was != value && known(lower) {
				return lower
			}
			first[lower] = value
		}
	}
	return ""
}

// known reports whether a header is an attribute, and not one of the writer's own headers. The name
// must be in lower case.
func known(lower string) bool {
	for _, prefix := range []string{"ce-", "postroom-", "nats-"} {
		if strings.HasPrefix(lower, prefix) {
			return true
		}
	}
	return lower == contentType || lower == traceParent || lower == traceState
}

// unescape reverses the function escape. If a percent sign does not begin an escape, unescape keeps
// the sign, because another program may have written it without an escape.
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
