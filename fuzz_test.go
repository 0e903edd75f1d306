package postroom_test

import (
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/postroom/postroom"
)

// FuzzValidate checks that Validate does not panic, that it reports only *FieldErrors, and that an
// event that it accepts has the documented syntax. This test has its own implementation of that
// syntax.
func FuzzValidate(f *testing.F) {
	f.Add("018f", "/shop", "order.placed", "orders.eu", "o-1", "application/json", "c-1", "e-1", "x-tenant", "a", "{}", int64(1_700_000_000))
	f.Add("", "", "a", "", "", "", "", "", "", "", "", int64(0))
	f.Add("a#b", "a b", "order.*", ".", " key", "text/plain\n", "\xff", "\x00", "Nats-Rollup", "all\r\n", "\x00", int64(1<<62))
	f.Add("größe", "\u2003", "a..b", "$JS.API", "k\u0085", "application/cloudevents+json", "ü", "😀", "CE-Id", "\t", "\xff", int64(-1<<62))
	f.Add(strings.Repeat("i", 256), "s", strings.Repeat("t.", 128), "a.b", strings.Repeat("k", 255), "", "", "", strings.Repeat("h", 129), "", "", int64(-62135596801))

	f.Fuzz(func(t *testing.T, id, source, eventType, subject, key, contentType, correlation, causation, name, value, data string, seconds int64) {
		ev := postroom.Event{
			ID: id, Source: source, Type: eventType, Subject: subject, Key: key, ContentType: contentType,
			CorrelationID: correlation, CausationID: causation, Data: []byte(data), Time: time.Unix(seconds, 0),
		}
		if name != "" || value != "" {
			ev.Headers = map[string]string{name: value}
		}
		if err := ev.Validate(); err != nil {
			for _, part := range err.(interface{ Unwrap() []error }).Unwrap() {
				var fault *postroom.FieldError
				if !errors.As(part, &fault) || fault.Field == "" || fault.Problem == "" || !utf8.ValidString(fault.Error()) {
					t.Errorf("%q is no fault of a field that one could show", part)
				}
			}
			return
		}
		for what, broken := range brokenSyntax(ev) {
			if broken {
				t.Errorf("accepted, but %s: %+v", what, ev)
			}
		}
	})
}

var (
	subjectSyntax = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)
	nameSyntax    = regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`)
	reservedNames = regexp.MustCompile(`(?i)^(nats-.*|ce-.*|postroom-.*|traceparent|tracestate|content-type|status|description)$`)
)

// brokenSyntax reports, for each documented rule, whether ev breaks it.
func brokenSyntax(ev postroom.Event) map[string]bool {
	unfit := func(limit int, texts ...string) bool {
		for _, s := range texts {
			if len(s) > limit || !utf8.ValidString(s) || strings.TrimSpace(s) != s || strings.ContainsFunc(s, unicode.IsControl) {
				return true
			}
		}
		return false
	}
	broken := map[string]bool{
		"an identifier is unfit":       unfit(postroom.MaxID, ev.ID, ev.Source),
		"an identifier has a '#'":      strings.Contains(ev.ID+ev.Source, "#"),
		"an identifier has space":      len(strings.Fields(ev.ID)) > 1 || len(strings.Fields(ev.Source)) > 1,
		"the type has another form":    !subjectSyntax.MatchString(ev.Type) || len(ev.Type) > postroom.MaxType,
		"the subject has another form": ev.Subject != "" && !subjectSyntax.MatchString(ev.Subject) || len(ev.Subject) > postroom.MaxType,
		"the key is unfit":             unfit(postroom.MaxKey, ev.Key),
		"the content type is unfit":    unfit(postroom.MaxContentType, ev.ContentType),
		"the correlation is unfit":     unfit(postroom.MaxID, ev.CorrelationID, ev.CausationID),
		"the body is too large":        len(ev.Data) > postroom.MaxData,
		"the time cannot be written":   len(ev.Time.UTC().Format(time.RFC3339)) != len("2006-01-02T15:04:05Z"),
		"there are too many headers":   len(ev.Headers) > postroom.MaxHeaders,
	}
	total := 0
	for name, value := range ev.Headers {
		total += len(name) + len(value)
		broken["a header's name is unfit"] = broken["a header's name is unfit"] || !nameSyntax.MatchString(name)
		broken["a header is reserved"] = broken["a header is reserved"] || reservedNames.MatchString(name)
		broken["a header's value is unfit"] = broken["a header's value is unfit"] || unfit(postroom.MaxHeaderBytes, value)
	}
	broken["the headers are too large"] = total > postroom.MaxHeaderBytes
	return broken
}
