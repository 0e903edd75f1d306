package postroom

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Limits of an event. The database enforces the same limits (postroom.check_event), because some
// writers do not use this package. Together the limits keep a message below the broker's default
// max_payload of 1 MiB and its header limit of 64 KiB.
const (
	// MaxID is the longest ID, source, correlation id and causation id, in bytes.
	MaxID = 255
	// MaxType is the longest type and the longest subject, in bytes.
	MaxType = 255
	// MaxKey is the longest key, in bytes.
	MaxKey = 255
	// MaxContentType is the longest content type, in bytes.
	MaxContentType = 255
	// MaxTraceState is the longest tracestate, in bytes (W3C Trace Context,
	// section 3.3.1.5).
	MaxTraceState = 512
	// MaxHeaders is the largest number of user headers of one event.
	MaxHeaders = 64
	// MaxHeaderBytes is the largest total size of the names and values of the user
	// headers, in bytes.
	MaxHeaderBytes = 32 << 10
	// MaxData is the largest body, in bytes.
	MaxData = 960 << 10
)

// MaxAccepted is the largest body, in bytes, of an event that an inbox gets without a broker
// (Inbox.Accept of package inbox). The inbox never publishes such an event, so the broker's
// limits do not apply. This limit exists because each worker has one body in memory.
const MaxAccepted = 8 << 20

// ValidateAccepted is [Event.Validate] for an event that is not published. The body may
// have up to [MaxAccepted] bytes.
func (ev Event) ValidateAccepted() error {
	var size error
	//guard:an-accepted-body-has-a-limit false
	if n := len(ev.Data); n > MaxAccepted {
		size = &FieldError{Field: "Data", Problem: fmt.Sprintf("is %d bytes, at most %d are allowed; store large bodies elsewhere and send a reference", n, MaxAccepted)}
	}
	ev.Data = nil
	return errors.Join(ev.Validate(), size)
}

// Validate returns all faults of ev, joined into one error. Each fault is a [*FieldError]. Validate
// returns nil for an event that the outbox will accept. But only the outbox finds Data that is not JSON
// although ContentType says so. An empty ID, Source or Subject is not a
// fault, because the outbox sets it.
func (ev Event) Validate() error {
	var faults []error
	add := func(field, problem string) {
		if problem != "" {
			faults = append(faults, &FieldError{Field: field, Problem: problem})
		}
	}

	if ev.fault != nil {
		faults = append(faults, &FieldError{Field: "Data", Problem: ev.fault.Error(), err: ev.fault})
	}
	add("ID", identifierProblem(ev.ID))
	add("Source", identifierProblem(ev.Source))
	if ev.Type == "" {
		add("Type", "is empty")
	}
	add("Type", subjectProblem(ev.Type))
	add("Subject", subjectProblem(ev.Subject))
	add("Key", textProblem(ev.Key, MaxKey))
	add("ContentType", contentTypeProblem(ev.ContentType))
	add("CorrelationID", textProblem(ev.CorrelationID, MaxID))
	add("CausationID", textProblem(ev.CausationID, MaxID))
	add("TraceParent", textProblem(ev.TraceParent, MaxID))
	add("TraceState", textProblem(ev.TraceState, MaxTraceState))
	add("Time", timeProblem(ev.Time))
	add("NotBefore", timeProblem(ev.NotBefore))
	if n := len(ev.Data); n > MaxData {
		add("Data", fmt.Sprintf("is %d bytes, at most %d are allowed; store large bodies elsewhere and send a reference", n, MaxData))
	}
	return errors.Join(append(faults, headerFaults(ev.Headers)...)...)
}

// headerFaults returns a fault for each user header that cannot be sent, or whose name has a
// meaning for the broker, CloudEvents or Postroom. It also returns a fault if there are too many
// headers, or if they are too large.
func headerFaults(headers map[string]string) []error {
	if len(headers) == 0 {
		return nil
	}
	var faults []error
	add := func(name, problem string) {
		faults = append(faults, &FieldError{Field: "Headers[" + clip(name) + "]", Problem: problem})
	}

	total := 0
	seen := make(map[string]bool, len(headers))
	for _, name := range sortedKeys(headers) {
		//guard:the-error-of-headers-is-bounded false
		if len(faults) >= 2*MaxHeaders {
			break // there are too many headers: an error for each of them would have megabytes, and a relay logs it
		}
		value := headers[name]
		total += len(name) + len(value)
		lower := strings.ToLower(name)
		switch {
		case !isHeaderName(name):
			add(name, "is not a header name: use letters, digits, '-' and '_', at most 128")
		case reservedHeader(lower):
			add(name, "is reserved: names that begin with Nats-, ce- or Postroom-, traceparent, tracestate, content-type, status and description have a meaning of their own")
		case seen[lower]:
			add(name, "differs from another header in case only")
		}
		seen[lower] = true
		if p := textProblem(value, MaxHeaderBytes); p != "" {
			add(name, p)
		}
	}
	if len(headers) > MaxHeaders {
		faults = append(faults, &FieldError{Field: "Headers", Problem: fmt.Sprintf("are %d, at most %d are allowed", len(headers), MaxHeaders)})
	}
	if total > MaxHeaderBytes {
		faults = append(faults, &FieldError{Field: "Headers", Problem: fmt.Sprintf("are %d bytes together, at most %d are allowed", total, MaxHeaderBytes)})
	}
	return faults
}

// reservedHeader reports whether a name, in lower case, has a meaning for the broker, for
// CloudEvents or for Postroom. A user header with such a name could purge a stream
// (Nats-Rollup), suppress another event (Nats-Msg-Id) or forge an identity (ce-id).
func reservedHeader(lower string) bool {
	for _, prefix := range []string{"nats-", "ce-", "postroom-"} {
		if strings.HasPrefix(lower, prefix) {
			return true
		}
	}
	return slices.Contains([]string{"traceparent", "tracestate", "content-type", "status", "description"}, lower)
}

// identifierProblem says what is wrong with an id or a source. '#' is not allowed, because a
// message id has '#' between the source and the id.
func identifierProblem(s string) string {
	if p := textProblem(s, MaxID); p != "" {
		return p
	}
	if strings.Contains(s, "#") || !isPlain(s) && strings.ContainsFunc(s, unicode.IsSpace) {
		return "has a '#' or white space in it"
	}
	return ""
}

// reservedSubject begins the subjects of the relay's lease messages (package internal/wire). The
// readers of a stream skip messages with such subjects.
const reservedSubject = "postroom.lease."

// subjectProblem says what is wrong with a type or a subject.
func subjectProblem(s string) string {
	//guard:no-event-has-the-subject-of-a-lease false
	if strings.HasPrefix(s, reservedSubject) {
		return "begins with " + reservedSubject + ", which is reserved for the relay: readers would skip the event"
	}
	if s == "" || isSubject(s) {
		return ""
	}
	if len(s) > MaxType {
		return fmt.Sprintf("is %d bytes, at most %d are allowed", len(s), MaxType)
	}
	for token := range strings.SplitSeq(s, ".") {
		if token == "" {
			return "has an empty token: write tokens of letters, digits, '_' and '-' with single dots between them"
		}
		if strings.IndexFunc(token, notTokenChar) >= 0 {
			return "has a character other than letters, digits, '_', '-' and dots"
		}
	}
	return ""
}

// isSubject reports whether s is a valid subject. Like isPlain, it reads each byte once.
func isSubject(s string) bool {
	if len(s) > MaxType {
		return false
	}
	var before byte = '.'
	for i := range len(s) {
		if c := s[i]; notTokenChar(rune(c)) && (c != '.' || before == '.') {
			return false
		}
		before = s[i]
	}
	return before != '.'
}

// contentTypeProblem says what is wrong with a content type. Content types that begin with
// application/cloudevents are not allowed: a reader would take the body for the complete event.
func contentTypeProblem(s string) string {
	if s == jsonType {
		return ""
	}
	if p := textProblem(s, MaxContentType); p != "" {
		return p
	}
	if strings.HasPrefix(strings.ToLower(s), "application/cloudevents") {
		return "says that the body is a whole event"
	}
	return ""
}

// timeProblem says what is wrong with a time. Times are stored and sent in UTC. The zero time means
// no time. It is valid, because its year is 1.
func timeProblem(t time.Time) string {
	if year := t.UTC().Year(); year < 1 || year > 9999 {
		return "is outside the years 1 to 9999"
	}
	return ""
}

// textProblem says what is wrong with a text that will be a header's value.
func textProblem(s string, limit int) string {
	switch {
	case len(s) > limit:
		return fmt.Sprintf("is %d bytes, at most %d are allowed", len(s), limit)
	case isPlain(s):
		return ""
	case !utf8.ValidString(s):
		return "is not valid UTF-8"
	case strings.ContainsFunc(s, unicode.IsControl):
		return "has a control character in it"
	case strings.TrimSpace(s) != s:
		return "begins or ends with white space"
	}
	return ""
}

// isPlain reports whether s has only visible ASCII, as most texts do. It saves time, because it
// reads each byte once. The other checks of textProblem read the bytes several times.
func isPlain(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

func isHeaderName(s string) bool {
	return s != "" && len(s) <= 128 && strings.IndexFunc(s, notTokenChar) < 0
}

func notTokenChar(r rune) bool {
	switch {
	case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '-':
		return false
	}
	return true
}

// clip shortens a name for an error text, because a faulty name may be long.
func clip(s string) string {
	const limit = 40
	if len(s) > limit {
		s = s[:limit] + "…"
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return '?' // a line break would forge a log line
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
