// Package jcs returns the canonical form of a JSON text, as RFC 8785 defines it. If two
// texts differ only in white space, the order of members, escapes or the spelling of
// numbers, they have the same form.
package jcs

import (
	"bytes"
	"errors"
	"slices"
	"unicode"
	"unicode/utf8"
)

// ErrNoForm says that a text has no canonical form.
var ErrNoForm = errors.New("not JSON, or JSON without a canonical form")

const (
	maxDepth = 512 // the largest number of nested arrays and objects

	// maxText limits the length of a text, so that each offset in its canonical form fits
	// into an int32. The canonical form is at most six times as long as the text, because
	// 1e20 becomes 21 digits.
	maxText = 256 << 20
)

// Form returns the canonical form of a JSON text. It needs time and memory in proportion to the
// text. It returns [ErrNoForm] if the text is not JSON or not UTF-8, or has more than 256 MiB or
// more than 512 levels. It also returns [ErrNoForm] if an object has the same name twice, or a
// string has half of a surrogate pair. If numbers are exact, an exponent must not have more than 18
// digits. If numbers are doubles, a number must not be too large for a double, and a number that is
// too small becomes 0.
func Form(in []byte, numbers Numbers) ([]byte, error) { return form(in, numbers, false) }

// Distinct does what Form does. It also returns [ErrNoForm] if two names of an object differ in
// letter case only: package encoding/json takes both for one member, and the later value counts. So
// the order of these members matters to its callers.
func Distinct(in []byte, numbers Numbers) ([]byte, error) { return form(in, numbers, true) }

func form(in []byte, numbers Numbers, distinct bool) ([]byte, error) {
	if len(in) > maxText || !utf8.Valid(in) {
		return nil, ErrNoForm
	}
	c := canon{in: in, numbers: numbers, distinct: distinct, out: make([]byte, 0, len(in))}
	if err := c.value(0); err != nil {
		return nil, err
	}
	c.space()
	if c.at != len(c.in) {
		return nil, ErrNoForm
	}
	return c.inOrder(), nil
}

// canon reads a text and writes its canonical form. It writes the members of an object in
// the order in which it reads them. If that is not the canonical order, it notes the object.
// At the end, inOrder sorts the members of all noted objects in one pass. If each object
// were sorted immediately, a deeply nested value would be moved once for each level.
type canon struct {
	in       []byte
	at       int
	numbers  Numbers
	distinct bool // names must differ in more than their letter case
	out      []byte

	open    []member // the members of the objects that are being read
	moved   []span   // the members of the noted objects, sorted
	objects []object // the noted objects; an inner one comes before the outer one
	texts   []byte   // the decoded strings that had escapes
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

// next skips white space and returns the next byte, or 0 at the end.
func (c *canon) next() byte {
	c.space()
	if c.at == len(c.in) {
		return 0
	}
	return c.in[c.at]
}

// take skips white space. If the next byte is b, it also skips b and returns true.
func (c *canon) take(b byte) bool {
	if c.next() != b {
		return false
	}
	c.at++
	return true
}

func (c *canon) value(depth int) error {
	b := c.next()
	//guard:nesting-has-a-bound false
	if depth >= maxDepth && (b == '{' || b == '[') {
		return ErrNoForm
	}
	switch b {
	case '{':
		return c.object(depth)
	case '[':
		return c.array(depth)
	case '"':
		kept := len(c.texts)
		s, err := c.text()
		c.out, c.texts = appendText(c.out, s), c.texts[:kept]
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
		return ErrNoForm
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
			return ErrNoForm
		}
	}
}

// span is a part of the output: out[from:to]. Its noted objects are objects[first:behind].
type span struct{ from, to, first, behind int32 }

// member is a member of an object: its name, and its part of the output.
type member struct {
	name []byte
	span
}

// object is a noted object: its part of the output, and its members. The span's noted objects are
// those inside the object, without the object itself.
type object struct {
	span
	members, end int32 // its members are moved[members:end]
}

func (c *canon) object(depth int) error {
	c.at++
	begin, members, inner := len(c.out), len(c.open), len(c.objects)
	c.out = append(c.out, '{')
	if !c.take('}') {
		for more := true; more; {
			m, err := c.member(depth)
			if err != nil {
				return err
			}
			c.open = append(c.open, m)
			switch more = c.take(','); {
			case more:
				c.out = append(c.out, ',')
			case !c.take('}'):
				return ErrNoForm
			}
		}
	}
	c.out = append(c.out, '}')
	err := c.close(begin, c.open[members:], inner)
	c.open = c.open[:members]
	return err
}

// close notes an object if its members are not in order. It returns an error if two members have
// the same name.
func (c *canon) close(begin int, members []member, inner int) error {
	byName := func(a, b member) int { return compareUTF16(a.name, b.name) }
	sorted := slices.IsSortedFunc(members, byName)
	if !sorted {
		slices.SortFunc(members, byName)
	}
	for i := 1; i < len(members); i++ {
		//guard:one-name-twice-has-no-canonical-form false
		if bytes.Equal(members[i-1].name, members[i].name) {
			return ErrNoForm
		}
	}
	//guard:letter-case-alone-makes-no-other-name 1 false
	if c.distinct && sameFold(members) {
		return ErrNoForm
	}
	if !sorted {
		at := len(c.moved)
		for _, m := range members {
			c.moved = append(c.moved, m.span)
		}
		c.objects = append(c.objects, object{c.since(begin, inner), int32(at), int32(len(c.moved))})
	}
	return nil
}

// few is the largest number of members that sameFold compares pair by pair.
const few = 8

// sameFold reports whether the names of two members differ at most in letter case.
func sameFold(members []member) bool {
	if len(members) <= few {
		for i, m := range members {
			for _, other := range members[:i] {
				if bytes.EqualFold(m.name, other.name) {
					return true
				}
			}
		}
		return false
	}
	seen := make(map[string]struct{}, len(members))
	for _, m := range members {
		seen[string(bytes.Map(folded, m.name))] = struct{}{}
	}
	return len(seen) < len(members)
}

// folded returns the smallest of the characters that differ from r in letter case only.
func folded(r rune) rune {
	for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
		if next < r {
			return folded(next)
		}
	}
	return r
}

func (c *canon) member(depth int) (member, error) {
	if c.next() != '"' {
		return member{}, ErrNoForm
	}
	begin, inner := len(c.out), len(c.objects)
	var m member
	var err error
	if m.name, err = c.text(); err != nil {
		return m, err
	}
	c.out = append(appendText(c.out, m.name), ':')
	if !c.take(':') {
		return m, ErrNoForm
	}
	err = c.value(depth + 1)
	m.span = c.since(begin, inner)
	return m, err
}

// since returns the span that begins at the given positions and ends at the end of the output.
func (c *canon) since(begin, inner int) span {
	return span{int32(begin), int32(len(c.out)), int32(inner), int32(len(c.objects))} //nolint:gosec // see maxText
}

// inOrder returns the output with the members of all noted objects sorted. It writes from the
// end to the beginning, because the outermost object of a span was noted last.
func (c *canon) inOrder() []byte {
	//guard:members-are-put-in-order true
	if len(c.objects) == 0 {
		return c.out
	}
	to := make([]byte, len(c.out)) // only the order changes
	at := len(to)
	put := func(part ...byte) { at -= copy(to[at-len(part):], part) }
	var write func(part span)
	write = func(part span) {
		for part.behind > part.first {
			o := c.objects[part.behind-1]
			put(c.out[o.to:part.to]...)
			put('}')
			for i := o.end - 1; i >= o.members; i-- {
				write(c.moved[i])
				if i > o.members {
					put(',')
				}
			}
			put('{')
			part.to, part.behind = o.from, o.first
		}
		put(c.out[part.from:part.to]...)
	}
	write(c.since(0, 0))
	return to
}
