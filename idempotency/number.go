package idempotency

import (
	"bytes"
	"math"
	"strconv"
)

// exact is the largest integer of which all below are doubles as well.
const exact = 1<<53 - 1

// number reads a number and writes it as ECMAScript would, or as it is written where
// that would lose an integer or a digit.
func (c *canon) number() error {
	begin := c.at
	if !c.numeral() {
		return errJSON
	}
	literal := c.in[begin:c.at]
	f, err := strconv.ParseFloat(string(literal), 64)
	if err != nil || math.IsInf(f, 0) {
		return errJSON
	}
	if !bytes.ContainsAny(literal, ".eE") { // an integer
		if math.Abs(f) > exact {
			c.out = append(c.out, literal...)
			return nil
		}
		c.out = appendNumber(c.out, f)
		return nil
	}
	at := len(c.out)
	c.out = appendNumber(c.out, f)
	if said := decimalOf(literal); said.loses(decimalOf(c.out[at:])) {
		c.out = append(c.out[:at], literal...)
	}
	return nil
}

// numeral passes over a number as JSON writes them.
func (c *canon) numeral() bool {
	digits := func() bool {
		begin := c.at
		for c.at < len(c.in) && c.in[c.at] >= '0' && c.in[c.at] <= '9' {
			c.at++
		}
		return c.at > begin
	}
	if c.is("-") {
		c.at++
	}
	if c.is("0") {
		c.at++
	} else if !digits() {
		return false
	}
	if c.is(".") {
		c.at++
		if !digits() {
			return false
		}
	}
	if c.is("eE") {
		c.at++
		if c.is("+-") {
			c.at++
		}
		return digits()
	}
	return true
}

// is reports whether the next byte is one of those in set.
func (c *canon) is(set string) bool {
	return c.at < len(c.in) && bytes.IndexByte([]byte(set), c.in[c.at]) >= 0
}

// appendNumber writes a double as ECMAScript's Number.prototype.toString does.
func appendNumber(out []byte, f float64) []byte {
	if f == 0 {
		return append(out, '0') // and not -0
	}
	if size := math.Abs(f); size >= 1e-6 && size < 1e21 {
		return strconv.AppendFloat(out, f, 'f', -1, 64)
	}
	out = strconv.AppendFloat(out, f, 'e', -1, 64)
	if n := len(out); n >= 4 && out[n-4] == 'e' && out[n-2] == '0' { // e-07 is e-7
		out = append(out[:n-2], out[n-1])
	}
	return out
}

// decimal is the value of a numeral: 0.digits × 10^power.
type decimal struct {
	digits []byte // without zeros at either end
	power  int
}

func decimalOf(numeral []byte) decimal {
	numeral = bytes.TrimPrefix(numeral, []byte("-"))
	var power int
	if i := bytes.IndexAny(numeral, "eE"); i >= 0 {
		power, _ = strconv.Atoi(string(numeral[i+1:])) // beyond an int it was no double
		numeral = numeral[:i]
	}
	whole, fraction, _ := bytes.Cut(numeral, []byte("."))
	digits := append(append(make([]byte, 0, len(numeral)), whole...), fraction...)
	power += len(whole)
	trimmed := bytes.TrimLeft(digits, "0")
	power -= len(digits) - len(trimmed)
	return decimal{bytes.TrimRight(trimmed, "0"), power}
}

// loses reports whether other, which a double was written as, is another value than d
// and the difference matters: d is an integer, or has more digits than a double ever
// needs. (0.1 written with 17 digits is 0.1.)
func (d decimal) loses(other decimal) bool {
	same := d.power == other.power && bytes.Equal(d.digits, other.digits)
	integer := d.power >= len(d.digits)
	return !same && len(d.digits) > 0 && (integer || len(d.digits) > 17)
}
