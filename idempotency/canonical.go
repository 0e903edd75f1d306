package idempotency

import (
	"bytes"
	"errors"
	"slices"
	"unicode/utf16"
	"unicode/utf8"
)

// errJSON says that a text is not JSON of which there is one canonical form.
var errJSON = errors.New("no JSON of which there is one canonical form")

// maxDepth is how deep arrays and objects may be nested.
const maxDepth = 512

// CanonicalJSON returns the one form that all spellings of a JSON text share: white
// space, the order of members, escapes and the spelling of numbers do not matter. It is
// the form of RFC 8785 with exact integers: where that would round two numbers to one,
// here they stay two.
//
// There is an error for what has no such form: what is not JSON or not UTF-8, an object
// with one name twice, half of a surrogate pair, a number beyond the range of a double,
// more than 512 levels.
func CanonicalJSON(in []byte) ([]byte, error) {
	if !utf8.Valid(in) {
		return nil, errJSON
	}
	c := canon{in: in, out: make([]byte, 0, len(in))}
	if err := c.value(0); err != nil {
		return nil, err
	}
	c.space()
	if c.at != len(c.in) {
		return nil, errJSON
	}
	return c.out, nil
}

// canon reads a text and writes its canonical form.
type canon struct {
	in  []byte
	at  int
	out []byte
}

func (c *canon) space() {
	for c.at < len(c.in) {
		switch c.in[c.at] {
		case ' ', '\t', '\n', '\r':
			c.at++
		default:
			return
		}
	}
}

// next passes over white space and returns the byte behind it, or 0.
func (c *canon) next() byte {
	c.space()
	if c.at == len(c.in) {
		return 0
	}
	return c.in[c.at]
}

// take passes over b where it is next.
func (c *canon) take(b byte) bool {
	if c.next() != b {
		return false
	}
	c.at++
	return true
}

func (c *canon) value(depth int) error {
	if depth > maxDepth {
		return errJSON
	}
	switch b := c.next(); b {
	case '{':
		return c.object(depth)
	case '[':
		return c.array(depth)
	case '"':
		s, err := c.text()
		c.out = appendText(c.out, s)
		return err
	case 't':
		return c.word("true")
	case 'f':
		return c.word("false")
	case 'n':
		return c.word("null")
	default:
		return c.number()
	}
}

func (c *canon) word(w string) error {
	if !bytes.HasPrefix(c.in[c.at:], []byte(w)) {
		return errJSON
	}
	c.at += len(w)
	c.out = append(c.out, w...)
	return nil
}

func (c *canon) array(depth int) error {
	c.at++
	c.out = append(c.out, '[')
	if c.take(']') {
		c.out = append(c.out, ']')
		return nil
	}
	for {
		if err := c.value(depth + 1); err != nil {
			return err
		}
		switch {
		case c.take(','):
			c.out = append(c.out, ',')
		case c.take(']'):
			c.out = append(c.out, ']')
			return nil
		default:
			return errJSON
		}
	}
}

// member is one of an object: its name, and where its canonical form was written.
type member struct {
	name     []byte
	from, to int
}

func (c *canon) object(depth int) error {
	c.at++
	begin := len(c.out)
	var members []member
	if !c.take('}') {
		for more := true; more; {
			m, err := c.member(depth)
			if err != nil {
				return err
			}
			members = append(members, m)
			more = c.take(',')
			if !more && !c.take('}') {
				return errJSON
			}
		}
	}
	slices.SortFunc(members, func(a, b member) int { return compareUTF16(a.name, b.name) })
	sorted := make([]byte, 0, len(c.out)-begin+len(members)+2)
	sorted = append(sorted, '{')
	for i, m := range members {
		if i > 0 {
			if bytes.Equal(members[i-1].name, m.name) {
				return errJSON
			}
			sorted = append(sorted, ',')
		}
		sorted = append(sorted, c.out[m.from:m.to]...)
	}
	c.out = append(c.out[:begin], append(sorted, '}')...)
	return nil
}

func (c *canon) member(depth int) (member, error) {
	if c.next() != '"' {
		return member{}, errJSON
	}
	m := member{from: len(c.out)}
	var err error
	if m.name, err = c.text(); err != nil {
		return m, err
	}
	c.out = append(appendText(c.out, m.name), ':')
	if !c.take(':') {
		return m, errJSON
	}
	err = c.value(depth + 1)
	m.to = len(c.out)
	return m, err
}

// compareUTF16 orders names as RFC 8785 does, by their UTF-16 code units: what is beyond
// U+FFFF comes before U+E000, and not behind everything.
func compareUTF16(a, b []byte) int {
	for len(a) > 0 && len(b) > 0 {
		x, n := utf8.DecodeRune(a)
		y, m := utf8.DecodeRune(b)
		if x != y {
			return unit(x) - unit(y)
		}
		a, b = a[n:], b[m:]
	}
	return len(a) - len(b)
}

// unit returns what r is ordered by: its first code unit, and r within those that share
// one.
func unit(r rune) int {
	if r < 0x10000 {
		return int(r) << 10
	}
	high, low := utf16.EncodeRune(r)
	return int(high)<<10 | int(low-0xdc00)
}

// text reads a string and returns what it says.
func (c *canon) text() ([]byte, error) {
	c.at++
	begin := c.at
	for c.at < len(c.in) { // most have no escapes, and need no copy
		switch b := c.in[c.at]; {
		case b == '"':
			c.at++
			return c.in[begin : c.at-1], nil
		case b == '\\':
			return c.escaped(begin)
		case b < 0x20:
			return nil, errJSON
		}
		c.at++
	}
	return nil, errJSON
}

func (c *canon) escaped(begin int) ([]byte, error) {
	s := slices.Clone(c.in[begin:c.at])
	for c.at < len(c.in) {
		b := c.in[c.at]
		c.at++
		switch {
		case b == '"':
			return s, nil
		case b < 0x20:
			return nil, errJSON
		case b != '\\':
			s = append(s, b)
		default:
			r, ok := c.escape()
			if !ok {
				return nil, errJSON
			}
			s = utf8.AppendRune(s, r)
		}
	}
	return nil, errJSON
}

var plainEscapes = map[byte]rune{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// escape reads what follows a backslash.
func (c *canon) escape() (rune, bool) {
	if c.at == len(c.in) {
		return 0, false
	}
	b := c.in[c.at]
	c.at++
	if b != 'u' {
		r, ok := plainEscapes[b]
		return r, ok
	}
	r, ok := c.hex()
	if !ok || !utf16.IsSurrogate(r) {
		return r, ok
	}
	if !bytes.HasPrefix(c.in[c.at:], []byte(`\u`)) {
		return 0, false
	}
	c.at += 2
	low, ok := c.hex()
	pair := utf16.DecodeRune(r, low)
	return pair, ok && pair != utf8.RuneError
}

func (c *canon) hex() (r rune, ok bool) {
	if len(c.in)-c.at < 4 {
		return 0, false
	}
	for _, b := range c.in[c.at : c.at+4] {
		switch {
		case b >= '0' && b <= '9':
			r = r<<4 | rune(b-'0')
		case b|0x20 >= 'a' && b|0x20 <= 'f':
			r = r<<4 | rune(b|0x20-'a'+10)
		default:
			return 0, false
		}
	}
	c.at += 4
	return r, true
}

const hexDigits = "0123456789abcdef"

// appendText writes a string with as few escapes as JSON allows.
func appendText(out, s []byte) []byte {
	out = append(out, '"')
	for _, b := range s {
		switch {
		case b == '"' || b == '\\':
			out = append(out, '\\', b)
		case b >= 0x20:
			out = append(out, b)
		default:
			if i := bytes.IndexByte([]byte("\b\t\n\f\r"), b); i >= 0 {
				out = append(out, '\\', "btnfr"[i])
			} else {
				out = append(out, '\\', 'u', '0', '0', hexDigits[b>>4], hexDigits[b&15])
			}
		}
	}
	return append(out, '"')
}
