// Package cause recognises failures that have the same cause.
package cause

import (
	"crypto/sha256"
	"slices"
	"strings"
	"unicode"
)

// Fingerprint returns 16 bytes that are the same for all failures of a handler with the same cause.
// A cause is the class, the place (a function, a constraint, or nothing) and the wording of the
// text. The parameter known has values that differ between events, such as the event's id. The
// wording leaves out the known values, and all words that look like a value.
func Fingerprint(handler, class, place, text string, known ...string) []byte {
	sum := sha256.Sum256([]byte(handler + "\x00" + class + "\x00" + place + "\x00" + Wording(text, known...)))
	return sum[:16]
}

// Limits of a wording. Wording reads at most maxText bytes and maxWords words of a text. A word of
// longWord bytes or more counts as a value.
const (
	maxText  = 512
	maxWords = 24
	longWord = 32
)

// Wording returns, from the first line of a text, the words that do not differ between failures
// with the same cause. A '#' replaces quoted pieces, known values, long words, and words with a
// digit or a character of addresses and paths.
func Wording(text string, known ...string) string {
	text, _, _ = strings.Cut(text[:min(len(text), maxText)], "\n")
	known = slices.DeleteFunc(slices.Clone(known), func(value string) bool { return value == "" })
	for _, value := range known {
		if strings.ContainsAny(value, " \t") { // more than one word
			text = strings.ReplaceAll(text, value, "#")
		}
	}
	words := strings.Fields(unquote(strings.ToValidUTF8(text, "")))
	words = words[:min(len(words), maxWords)]
	for i, word := range words {
		bare := strings.TrimFunc(word, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
		name, _, assigned := strings.Cut(word, "=")
		switch {
		case slices.Contains(known, bare) || slices.Contains(known, strings.TrimRight(word, ":,.;)")):
			words[i] = "#"
		case assigned && !isValue(name):
			words[i] = name + "=#"
		case isValue(word):
			words[i] = "#"
		default:
			words[i] = strings.ToLower(bare)
		}
	}
	return strings.Join(slices.Compact(words), " ")
}

// isValue reports whether a word looks like a value.
func isValue(word string) bool {
	return len(word) >= longWord || strings.ContainsAny(word, "0123456789@/\\{}[]")
}

// unquote replaces each quoted piece with a '#'. An apostrophe after a letter is not a quote. An
// opening quote without a closing quote does not count.
func unquote(s string) string {
	var b strings.Builder
	for s != "" {
		open := strings.IndexAny(s, "\"'`“")
		if open < 0 {
			break
		}
		quote := s[open : open+1]
		width := 1
		if strings.HasPrefix(s[open:], "“") {
			quote, width = "”", len("“")
		}
		inWord := open > 0 && quote == "'" && isLetter(s[open-1])
		length := strings.Index(s[open+width:], quote)
		if inWord || length < 0 {
			b.WriteString(s[:open+width])
			s = s[open+width:]
			continue
		}
		b.WriteString(s[:open])
		b.WriteByte('#')
		s = s[open+width+length+len(quote):]
	}
	b.WriteString(s)
	return b.String()
}

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }
