// Package text says which texts PostgreSQL can store, and what a terminal or a shell would obey.
package text

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// Valid reports whether PostgreSQL can store s as a text: s is UTF-8 and has no NUL.
func Valid(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }

// EscapeControls returns a JSON document in which the control characters that JSON allows in strings
// are escaped: DEL and U+0080 to U+009F. A terminal may obey them.
func EscapeControls(document []byte) []byte {
	return controls.ReplaceAllFunc(document, func(c []byte) []byte {
		r, _ := utf8.DecodeRune(c)
		return fmt.Appendf(nil, `\u%04x`, r)
	})
}

var controls = regexp.MustCompile("[\u007f-\u009f]")

// Word returns s as one word of a shell: in quotes, if it needs them. Use it for each text of another
// role or system in a command that a tool advises, because an operator copies the command.
func Word(s string) string {
	//guard:an-advised-command-obeys-no-name true
	if plain.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

var plain = regexp.MustCompile(`^[\w/.:,-]+$`)
