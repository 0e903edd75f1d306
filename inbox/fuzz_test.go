package inbox_test

import (
	"reflect"
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/postroom/postroom/inbox"
)

// FuzzPattern checks that the expression with which the database chooses held events matches the
// same subjects as the subscription.
func FuzzPattern(f *testing.F) {
	f.Add("a.*", "b.>", "a.b")
	f.Add("*.b.>", "a", "a.b.c")
	f.Add("a.b+", "$x.(y)", "$x.(y)")
	f.Add("a>", "a*", "ab")
	f.Fuzz(func(t *testing.T, one, other, subject string) {
		for _, s := range []string{one, other, subject} {
			if !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsSpace) || strings.Contains("."+s+".", "..") || strings.Contains("."+s, ".>.") {
				return // a server has no such subject
			}
		}
		if tokens := "." + subject + "."; strings.Contains(tokens, ".*.") || strings.Contains(tokens, ".>.") {
			return // no event has such a subject
		}
		patterns := []string{one, other}
		re, err := regexp.Compile(*inbox.Pattern(patterns))
		if err != nil {
			t.Fatalf("%q: %v", patterns, err)
		}
		if got, want := re.MatchString(subject), inbox.Match(patterns, subject); got != want {
			t.Errorf("%q matches %q: %t in the database, %t here", patterns, subject, got, want)
		}
	})
}

// FuzzHeaders checks that the headers of a message that cannot be decoded read back as they
// were written.
func FuzzHeaders(f *testing.F) {
	f.Add([]byte("ce-id: e-1\r\nX-Tenant: a\r\nX-Tenant: b\r\n"))
	f.Add([]byte("a:: b\r\n: \r\n\r\nno header\r\nx: \r"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		header := inbox.ParseHeaders(raw)
		if again := inbox.ParseHeaders(inbox.RawHeaders(header)); !reflect.DeepEqual(again, header) {
			t.Errorf("%q: %q reads back as %q", raw, header, again)
		}
	})
}
