package inbox

import (
	"regexp"
	"slices"
	"strings"

	"github.com/postroom/postroom/internal/wildcard"
)

// subjects are NATS subjects with wildcards.
type subjects []string

// match reports whether one of them matches a subject without wildcards.
func (s subjects) match(subject string) bool {
	return slices.ContainsFunc(s, func(pattern string) bool { return wildcard.Covers(pattern, subject) })
}

// pattern returns a regular expression that matches the same subjects, or nil
// where there are none.
func (s subjects) pattern() *string {
	if len(s) == 0 {
		return nil
	}
	alternatives := make([]string, len(s))
	for i, subject := range s {
		tokens := strings.Split(subject, ".")
		for j, token := range tokens {
			switch token { // a '*' or '>' within a token is a character like any other
			case "*":
				tokens[j] = `[^.]+`
			case ">":
				tokens[j] = `.+`
			default:
				tokens[j] = regexp.QuoteMeta(token)
			}
		}
		alternatives[i] = strings.Join(tokens, `\.`)
	}
	all := "^(?:" + strings.Join(alternatives, "|") + ")$"
	return &all
}
