// Package text says which texts PostgreSQL can store.
package text

import (
	"strings"
	"unicode/utf8"
)

// Valid reports whether PostgreSQL can store s as a text: s is UTF-8 and has no NUL.
func Valid(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }
