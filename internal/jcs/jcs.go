// Package jcs makes one text of all spellings of a JSON text, in the form of RFC 8785: white
// space, the order of members, escapes and the spelling of numbers do not matter.
package jcs

import (
	"bytes"
	"errors"
	"slices"
	"unicode/utf8"
)

// ErrNoForm says that a text is not JSON of which there is one canonical form.
var ErrNoForm = errors.New("no JSON of which there is one canonical form")

const (
	maxDepth = 512 // how deep arrays and objects may be nested

	// maxText bounds a text, so that offsets in its canonical form are int32: that form is
	// at most six times as long, where 1e20 becomes its digits.
	maxText = 256 << 20
)

// Form returns the one form that all spellings of a JSON text share. It takes time and
// memory in proportion to the text. There is [ErrNoForm] for what has no such form: what is
// not JSON or not UTF-8, an object with one name twice, half of a surrogate pair, an
// exponent of more than 18 digits, a number beyond the range of a double where numbers are
// doubles, more than 512 levels, more than 256 MiB.
func Form(in []byte, numbers Numbers) ([]byte, error) {
	if len(in) > maxText || !utf8.Valid(in) {
		return nil, ErrNoForm
	}
	c := canon{in: in, numbers: numbers, out: make([]byte, 0, len(in))}
	if err := c.value(0); err != nil {
		return nil, err
	}
	c.space()
	if c.at != len(c.in) {
		return nil, ErrNoForm
	}
	return c.inOrder(), nil
}

// canon reads a text and writes its canonical form. Members of objects are written in the
// order in which they are read; where that is not the canonical order, the object is
// noted, and inOrder puts all of them into order at the end, in one go: done at once, each
// level of nesting would move once more whatever is in it.
type canon struct {
	in      []byte
	at      int
	numbers Numbers
	out     []byte

	open    []member // of the objects that are being read
	moved   []span   // of objects whose members are out of order, in order
	objects []object // these objects; an inner one before the one that it is in
	texts   []byte   // what strings with escapes say
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
		return ErrNoForm
	}
	switch b := c.next(); b {
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

// span is a stretch of what was written, and which of the noted objects are in it.
type span struct{ from, to, first, behind int32 }

// member is one of an object: its name, and where it was written.
type member struct {
	name []byte
	span
}

// object is one whose members were written out of order: where, and which they are. The
// noted objects in it end with itself.
type object struct {
	span
	members, end int32 // of moved
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

// close notes an object whose members are out of order.
func (c *canon) close(begin int, members []member, inner int) error {
	byName := func(a, b member) int { return compareUTF16(a.name, b.name) }
	sorted := slices.IsSortedFunc(members, byName)
	if !sorted {
		slices.SortFunc(members, byName)
	}
	for i := 1; i < len(members); i++ {
		if bytes.Equal(members[i-1].name, members[i].name) {
			return ErrNoForm
		}
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

// since is what was written, and noted, from there on.
func (c *canon) since(begin, inner int) span {
	return span{int32(begin), int32(len(c.out)), int32(inner), int32(len(c.objects))} //nolint:gosec // see maxText
}

// inOrder returns what was written, with the members of all noted objects in order. It
// writes from the end to the front, as the outermost of the objects in a stretch of text
// is the last one noted.
func (c *canon) inOrder() []byte {
	if len(c.objects) == 0 {
		return c.out
	}
	to := make([]byte, len(c.out)) // only the order is another
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
