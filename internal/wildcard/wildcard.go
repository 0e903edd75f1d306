// Package wildcard compares NATS subjects with wildcards.
package wildcard

import (
	"slices"
	"strings"
)

// Uncovered returns each subject of the list want that no subject of the list have covers.
func Uncovered(want, have []string) []string {
	return slices.DeleteFunc(slices.Clone(want), func(w string) bool { return coveredBy(w, have) })
}

// Union returns a list that matches everything that the list have or the list want matches. If no
// subject of have covers another, no subject of the result covers another. A server refuses a list
// in which one subject covers another.
func Union(have, want []string) []string {
	union := slices.Clone(have)
	for _, w := range want {
		if !coveredBy(w, union) {
			union = append(Uncovered(union, []string{w}), w)
		}
	}
	return union
}

// Covers reports whether every subject that matches b also matches a. '*' matches one token. '>'
// matches one or more tokens at the end.
func Covers(a, b string) bool {
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	for i, token := range as {
		switch {
		case token == ">":
			return len(bs) > i
		case i >= len(bs), bs[i] == ">":
			return false
		case token != "*" && token != bs[i]:
			return false
		}
	}
	return len(as) == len(bs)
}

func coveredBy(subject string, by []string) bool {
	return slices.ContainsFunc(by, func(b string) bool { return Covers(b, subject) })
}
