package wildcard_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/postroom/postroom/internal/wildcard"
)

// matches reports whether a server matches a subject with a pattern: '*' is one token, '>' is all
// tokens that follow.
func matches(pattern, subject string) bool {
	var expression strings.Builder
	for i, token := range strings.Split(pattern, ".") {
		if i > 0 {
			expression.WriteString(`\.`)
		}
		switch token {
		case "*":
			expression.WriteString(`[^.]+`)
		case ">":
			expression.WriteString(`.+`)
		default:
			expression.WriteString(regexp.QuoteMeta(token))
		}
	}
	return regexp.MustCompile(`\A(?s:` + expression.String() + `)\z`).MatchString(subject)
}

// valid reports whether a server accepts a subject, or with wildcards a pattern.
func valid(subject string, wildcards bool) bool {
	tokens := strings.Split(subject, ".")
	for i, token := range tokens {
		if token == "" || token == "*" && !wildcards || token == ">" && (!wildcards || i < len(tokens)-1) || strings.ToValidUTF8(token, "") != token {
			return false
		}
	}
	return true
}

// FuzzCovers checks Covers: if a pattern covers another one, it matches every subject that the
// other one matches.
func FuzzCovers(f *testing.F) {
	f.Add("order.>", "order.*", "order.placed")
	f.Add(">", "a", "a.b")
	f.Add("*.b", "a.>", "a.b")
	f.Add("a>", "a*", "aXb")
	f.Fuzz(func(t *testing.T, a, b, subject string) {
		covers := wildcard.Covers(a, b)
		if !valid(a, true) || !valid(subject, false) {
			return
		}
		if got := wildcard.Covers(a, subject); got != matches(a, subject) {
			t.Errorf("Covers(%q, %q) = %t, and a server says %t", a, subject, got, !got)
		}
		if valid(b, true) && covers && matches(b, subject) && !matches(a, subject) {
			t.Errorf("%q covers %q, and does not match %q", a, b, subject)
		}
	})
}

// The union of two lists matches exactly the subjects that one of the lists matches. No pattern in
// the union covers another.
func TestUnionMatchesWhatBothMatch(t *testing.T) {
	token := rapid.SampledFrom([]string{"a", "b", "*"})
	pattern := rapid.Custom(func(t *rapid.T) string {
		tokens := rapid.SliceOfN(token, 1, 3).Draw(t, "tokens")
		if rapid.Bool().Draw(t, "open") {
			tokens = append(tokens, ">")
		}
		return strings.Join(tokens, ".")
	})
	var all []string
	for _, x := range []string{"a", "b", "c"} {
		all = append(all, x)
		for _, y := range []string{"a", "b", "c"} {
			all = append(all, x+"."+y, x+"."+y+".a", x+"."+y+".b", x+"."+y+".a.b.c")
		}
	}
	any := func(patterns []string, subject string) bool {
		return slices.ContainsFunc(patterns, func(p string) bool { return matches(p, subject) })
	}
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOfN(pattern, 0, 4).Draw(t, "want")
		have := wildcard.Union(nil, rapid.SliceOfN(pattern, 0, 4).Draw(t, "have"))
		union := wildcard.Union(have, want)
		for _, subject := range all {
			if got, expect := any(union, subject), any(have, subject) || any(want, subject); got != expect {
				t.Errorf("Union(%q, %q) = %q matches %q: %t, want %t", have, want, union, subject, got, expect)
			}
		}
		for i, one := range union {
			for j, other := range union {
				if i != j && wildcard.Covers(one, other) {
					t.Errorf("Union(%q, %q) = %q: %q covers %q", have, want, union, one, other)
				}
			}
		}
		if left := wildcard.Uncovered(want, union); len(left) > 0 {
			t.Errorf("Union(%q, %q) = %q does not cover %q", have, want, union, left)
		}
	})
}
