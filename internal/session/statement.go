package session

import (
	"slices"
	"strings"
)

// Traces says what statements may leave behind, in their transaction or in the session.
type Traces uint32

// What statements may leave behind.
const (
	Local     Traces = 1 << iota // effects until the transaction ends: SET LOCAL, set_config(…, true), cursors and similar
	Locks                        // advisory locks of the session
	Settings                     // settings, including roles
	Temporary                    // temporary tables
	Kept                         // what may stay until the connection is closed: LISTEN, PREPARE, WITH HOLD, LOAD
	User                         // the session user or the current user, until the transaction ends or longer

	// Session is everything that stays after the transaction, except locks, which
	// look.sql releases.
	Session = Settings | Temporary | Kept
)

// See returns what a statement, or a text with several statements, may leave behind. It reads only
// the text, so it does not find what functions and triggers leave behind.
func See(sql string) Traces {
	s := scanner{sql: sql, begins: true}
	for s.next() {
		switch word := s.word; {
		case s.begins:
			s.begins = false
			s.traces |= s.command(word)
		case len(word) < 4 || len(word) > 28: // the method within knows only words of 4 to 28 characters
		default:
			s.traces |= s.within(word)
		}
		s.before = s.word
	}
	if s.traces&(Local|Settings) != 0 && namesUser(sql) {
		s.traces |= User
	}
	return s.traces
}

// MayEnd reports whether a text may end the transaction in which it is sent. It cannot, if each of
// its statements begins with one of a few words. A procedure that is called in a transaction block
// cannot end the block either. Another word may also be the name of a prepared COMMIT.
func MayEnd(sql string) bool {
	if strings.Contains(sql, `\\`) { // a setting of the session decides where a quoted text with it ends
		return true
	}
	s := scanner{sql: sql, begins: true}
	for s.next() {
		if s.begins && !slices.ContainsFunc(endNothing, func(word string) bool { return is(s.word, word) }) {
			return true
		}
		s.begins = false
	}
	return false
}

var endNothing = []string{
	"select", "insert", "update", "delete", "with", "merge", "values", "copy", "call", "do",
	"set", "lock", "notify", "create", "truncate",
}

// namesUser reports whether a text contains the name of a setting that changes the current user or
// the session user.
func namesUser(sql string) bool {
	return containsFold(sql, "role") || containsFold(sql, "authorization")
}

// command returns what a statement leaves behind, according to its first word.
func (s *scanner) command(word string) Traces {
	switch {
	case is(word, "set"):
		return s.set()
	case is(word, "reset"), is(word, "discard"):
		return Settings | Temporary
	case is(word, "listen"), is(word, "unlisten"), is(word, "prepare"), is(word, "deallocate"), is(word, "load"):
		return Kept
	case is(word, "declare"):
		if containsFold(s.sql[s.at:], "hold") {
			return Kept
		}
		return Local
	case is(word, "do"), is(word, "call"):
		s.opaque = true // the quoted text of the statement is code
	}
	return 0
}

// set returns what SET leaves behind.
func (s *scanner) set() Traces {
	rest := *s
	if rest.next() && (is(rest.word, "local") || is(rest.word, "constraints") || is(rest.word, "transaction")) {
		return Local
	}
	return Settings
}

// within returns what a statement leaves behind, by a word after its first word.
func (s *scanner) within(word string) Traces {
	switch {
	case is(word, "set_config"):
		var user Traces
		if !strings.HasPrefix(strings.TrimLeft(s.sql[s.at:], " \t\r\n("), "'") {
			user = User // the text does not show the name of the setting
		}
		if s.isLocal() {
			return Local | user
		}
		return Settings | user
	case is(word, "temp"), is(word, "temporary"):
		if is(s.before, "create") || is(s.before, "into") || is(s.before, "replace") || is(s.before, "local") || is(s.before, "global") {
			return Temporary
		}
	case is(word, "pg_temp"):
		return Temporary
	case hasPrefixFold(word, "pg_advisory_lock"), hasPrefixFold(word, "pg_try_advisory_lock"):
		return Locks
	case s.opaque && (is(word, "local") || is(word, "session") || is(word, "role") || is(word, "search_path")) && is(s.before, "set"):
		return Settings
	}
	return 0
}

// isLocal reports whether the last argument of set_config is true.
func (s *scanner) isLocal() bool {
	depth, last := 0, 0
	for i := s.at; i < len(s.sql); i++ {
		switch c := s.sql[i]; c {
		case '\'', '"':
			if c == '\'' && isEscapes(s.sql[:i]) {
				i = escaped(s.sql, i) - 1
				continue
			}
			i = quoted(s.sql, i, c, false) - 1
		case '(':
			depth++
		case ',':
			if depth == 1 {
				last = i + 1
			}
		case ')':
			if depth--; depth == 0 {
				return last > 0 && is(strings.TrimSpace(s.sql[last:i]), "true")
			}
		}
	}
	return false
}

// scanner reads the words of a text. It skips words in quotes and comments.
type scanner struct {
	sql          string
	at           int
	word, before string
	begins       bool // the next word begins a statement
	opaque       bool // the quoted text is code
	traces       Traces
}

// next reads the next word.
func (s *scanner) next() bool {
	for s.at < len(s.sql) {
		c := s.sql[s.at]
		if isLetter(c) {
			from := s.at
			for s.at < len(s.sql) && (isLetter(s.sql[s.at]) || s.sql[s.at]-'0' < 10 || s.sql[s.at] == '$') {
				s.at++
			}
			s.word = s.sql[from:s.at]
			if s.at < len(s.sql) && s.sql[s.at] == '\'' && is(s.word, "e") {
				//guard:a-doubled-quote-is-part-of-the-text = quoted(@1, @2, '\'', true)
				s.at = escaped(s.sql, s.at)
				continue
			}
			return true
		}
		s.skip(c)
	}
	return false
}

// skip skips a quoted text, a comment, or one character.
func (s *scanner) skip(c byte) {
	rest := s.sql[s.at:]
	switch {
	case c == ';':
		s.begins = true
	case c == '\'' && !s.opaque, c == '"':
		s.at = quoted(s.sql, s.at, c, false)
		return
	case strings.HasPrefix(rest, "--"):
		if n := strings.IndexAny(rest, "\r\n"); n >= 0 {
			s.at += n
			return
		}
		s.at = len(s.sql)
		return
	case strings.HasPrefix(rest, "/*"):
		s.at = commented(s.sql, s.at)
		return
	case c == '$' && !s.opaque:
		if n := strings.IndexByte(rest[1:], '$'); n >= 0 && isTag(rest[1:n+1]) {
			s.at = behind(s.sql, s.at+n+2, rest[:n+2])
			return
		}
	}
	s.at++
}

// quoted returns the position after the quoted text that begins at position at. It treats a doubled
// quote as the end of one quoted text and the beginning of another, which the caller then skips
// too.
func quoted(sql string, at int, quote byte, escapes bool) int {
	for at++; at < len(sql); at++ {
		switch {
		case sql[at] == '\\' && escapes:
			at++
		case sql[at] == quote:
			return at + 1
		}
	}
	return len(sql)
}

// isEscapes reports whether a text ends with the word E, which begins an escape string (E'…').
func isEscapes(before string) bool {
	n := len(before)
	if n == 0 || before[n-1] != 'e' && before[n-1] != 'E' {
		return false
	}
	return n == 1 || !isLetter(before[n-2]) && before[n-2]-'0' >= 10
}

// escaped returns the position after the escape string whose first quote is at position at. A
// doubled quote is part of the string. If only white space with a line break separates two strings,
// the second one continues the first.
func escaped(sql string, at int) int {
	for {
		at = quoted(sql, at, '\'', true)
		rest := strings.TrimLeft(sql[at:], " \t\r\n\f\v")
		next := len(sql) - len(rest)
		if !strings.HasPrefix(rest, "'") || next > at && !strings.ContainsAny(sql[at:next], "\r\n") {
			return at
		}
		at = next
	}
}

// commented returns the position after the comment that begins at position at. A comment may contain
// others.
func commented(sql string, at int) int {
	for depth := 0; at < len(sql); at++ {
		switch {
		case strings.HasPrefix(sql[at:], "/*"):
			depth, at = depth+1, at+1
		case strings.HasPrefix(sql[at:], "*/"):
			if depth, at = depth-1, at+1; depth == 0 {
				return at + 1
			}
		}
	}
	return len(sql)
}

// behind returns the position after the next occurrence of part.
func behind(sql string, at int, part string) int {
	if n := strings.Index(sql[at:], part); n >= 0 {
		return at + n + len(part)
	}
	return len(sql)
}

// isTag reports whether a text can be the tag of a dollar quote.
func isTag(text string) bool {
	for i := range len(text) {
		if !isLetter(text[i]) && (i == 0 || text[i]-'0' >= 10) {
			return false
		}
	}
	return true
}

func isLetter(c byte) bool { return c|0x20-'a' < 26 && c|0x20 >= 'a' || c == '_' || c >= 0x80 }

// is compares two words, ignoring case. The word lower must be in lower case.
func is(word, lower string) bool { return len(word) == len(lower) && strings.EqualFold(word, lower) }

func hasPrefixFold(word, lower string) bool {
	return len(word) >= len(lower) && strings.EqualFold(word[:len(lower)], lower)
}

func containsFold(text, lower string) bool {
	for i := range len(text) - len(lower) + 1 {
		if strings.EqualFold(text[i:i+len(lower)], lower) {
			return true
		}
	}
	return false
}

// Keeps reports whether something with these traces may stay after End: a notification channel, a
// prepared statement, a cursor, a library or, if the pool has a hook, a setting. Then the connection
// must be closed.
func (p *Pool) Keeps(seen Traces) bool {
	return seen&Kept != 0 || p.hooked && seen&Settings != 0
}
