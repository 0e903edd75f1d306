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

// A message whose content type begins with cloudEvents is a CloudEvent as a whole, in the format
// that the rest of the content type names, or several CloudEvents. Only the JSON format is read
// (CloudEvents JSON format, section 3).
const (
	cloudEvents    = "application/cloudevents"
	structuredMode = cloudEvents + "+json"
)

// Unreadable marks a message whose headers the NATS client could not read, for instance because of a
// line break in a value. The client delivers such a message without headers.
const Unreadable = "postroom-unreadable-headers"

// attributes has the values of a message's headers. An attribute, unlike the writer's own headers,
// may have only one value.
type attributes struct {
	msgID, id, source, eventType, eventTime, key, contentType             string
	loggedAt, correlation, causation, traceParent, traceState, unreadable string

	seen uint              // one bit for each attribute that has a value
	own  map[string]string // the writer's own headers, by name
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
	switch {
	//guard:a-message-that-lost-its-headers-is-no-event false
	case a.unreadable != "":
		err = fmt.Errorf("%w: its headers cannot be read", ErrUndecodable)
	//guard:a-batch-of-events-is-no-event = !hasPrefixFold(a.contentType, structuredMode)
	case !hasPrefixFold(a.contentType, cloudEvents):
		err = decodeBinary(&ev, &a)
	case hasPrefixFold(a.contentType, structuredMode):
		err = decodeStructured(&ev, data)
	default:
		err = fmt.Errorf("%w: %s of a format that is not read: send each event as %s or with ce- headers", ErrUndecodable, cloudEvents, structuredMode)
	}
	if err != nil {
		return ev, err
	}

	ev.CorrelationID = unescape(a.correlation)
	ev.CausationID = unescape(a.causation)
	ev.TraceParent, ev.TraceState = a.traceParent, a.traceState
	if a.loggedAt != "" {
		if ev.LoggedAt, err = parseTime(loggedAt, a.loggedAt); err != nil {
			return ev, err
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

// hasPrefixFold reports whether a text begins with a prefix, in any case.
func hasPrefixFold(text, prefix string) bool {
	return len(text) >= len(prefix) && strings.EqualFold(text[:len(prefix)], prefix)
}

// read reads headers. It returns false if an attribute has two different values. Other headers may have
// several: a server adds a value to some of its own at each stream that passes a message on.
func (a *attributes) read(header map[string][]string) bool {
	for name, values := range header {
		slot, bit := a.slot(name)
		if slot == nil {
			if len(values) > 0 && !known(strings.ToLower(name)) { // take the first value, because Postroom never writes several values
				if a.own == nil {
					a.own = make(map[string]string)
				}
				a.own[name] = values[0]
			}
			continue
		}
		for _, value := range values {
			if a.seen&bit != 0 && *slot != value {
				return false
			}
			*slot, a.seen = value, a.seen|bit
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
	case Unreadable:
		return &a.unreadable, 1 << 12
	}
	return nil, 0
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
	return setTime(ev, unescape(a.eventTime))
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
	//guard:bytes-that-are-not-utf-8-become-no-other-event 1 false
	if err := json.Unmarshal(data, &doc); !utf8.Valid(data) || err != nil { // Unmarshal replaces such bytes, so that two ids could become one
		return fmt.Errorf("%w: structured mode, and no JSON document", ErrUndecodable)
	}
	if doc.ID == "" || doc.Source == "" || doc.Type == "" {
		return fmt.Errorf("%w: structured mode without id, source or type", ErrUndecodable)
	}
	//guard:halves-of-characters-become-no-other-event false
	if strings.ContainsRune(doc.ID+doc.Source, utf8.RuneError) { // Unmarshal replaces half a surrogate pair too
		return fmt.Errorf("%w: structured mode, and the id or source has a character that stands for an unknown one", ErrUndecodable)
	}
	ev.ID, ev.Source, ev.Type, ev.Key, ev.ContentType = doc.ID, doc.Source, doc.Type, doc.PartitionKey, doc.ContentType
	ev.Data = doc.Base64
	if ev.Data == nil {
		ev.Data = structuredData(doc)
	}
	return setTime(ev, doc.Time)
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

func setTime(ev *postroom.Event, s string) (err error) {
	if s != "" {
		ev.Time, err = parseTime(eventTime, s)
	}
	return err
}

// parseTime parses a time as RFC 3339 (section 5.6) allows it: T and Z may be in lower case, and a minute
// may have a leap second, which counts as the second before it.
func parseTime(name, s string) (time.Time, error) {
	const minutes = len("2006-01-02T15:04:")
	upper := strings.ToUpper(s)
	//guard:a-text-that-shrinks-is-no-time 1 = len(s) > minutes
	if len(upper) > minutes && strings.HasPrefix(upper[minutes:], "60") { // upper is shorter than s if s has letters such as U+017F
		upper = upper[:minutes] + "59" + upper[minutes+2:]
	}
	at, err := time.Parse(time.RFC3339, upper)
	if err != nil {
		return at, fmt.Errorf("%w: %s is no time", ErrUndecodable, name)
	}
	return at, nil
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
	at, err := parseTime(loggedAt, times[0])
	if err != nil {
		return time.Time{}
	}
	return at
}

// disputed returns the first attribute, by name, that has two different values.
func disputed(header map[string][]string) string {
	var a attributes
	first := make(map[string]string)
	for _, name := range slices.Sorted(maps.Keys(header)) {
		slot, _ := a.slot(name)
		lower := strings.ToLower(name)
		for _, value := range header[name] {
			if was, ok := first[lower]; ok && was != value && slot != nil {
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
