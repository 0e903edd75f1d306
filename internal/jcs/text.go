package jcs

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"
)

// compareUTF16 orders names by their UTF-16 code units, as RFC 8785 does. In this order, a
// character above U+FFFF comes before U+E000, and not after U+FFFF.
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

// unit returns a number that orders characters by their first UTF-16 code unit, and then by their
// second.
func unit(r rune) int {
	if r < 0x10000 {
		return int(r) << 10
	}
	high, low := utf16.EncodeRune(r)
	return int(high)<<10 | int(low-0xdc00)
}

// text reads a string and returns the decoded string.
func (c *canon) text() ([]byte, error) {
	c.at++
	begin := c.at
	for c.at < len(c.in) { // most strings have no escapes and need no copy
		switch b := c.in[c.at]; {
		case b == '"':
			c.at++
			return c.in[begin : c.at-1], nil
		case b == '\\':
			return c.escaped(begin)
		case b < 0x20:
			return nil, ErrNoForm
		}
		c.at++
	}
	return nil, ErrNoForm
}

func (c *canon) escaped(begin int) ([]byte, error) {
	// If the function append moves c.texts, the slices that earlier calls returned keep the old
	// array and stay valid.
	from := len(c.texts)
	c.texts = append(c.texts, c.in[begin:c.at]...)
	for c.at < len(c.in) {
		b := c.in[c.at]
		c.at++
		switch {
		case b == '"':
			return c.texts[from:len(c.texts):len(c.texts)], nil
		case b < 0x20:
			return nil, ErrNoForm
		case b != '\\':
			c.texts = append(c.texts, b)
		default:
			r, ok := c.escape()
			if !ok {
				return nil, ErrNoForm
			}
			c.texts = utf8.AppendRune(c.texts, r)
		}
	}
	return nil, ErrNoForm
}

var plainEscapes = map[byte]rune{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// escape reads an escape after its backslash.
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
