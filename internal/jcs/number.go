package jcs

import (
	"bytes"
	"math"
	"strconv"
)

// Numbers says when two numbers are equal, and therefore have the same form.
type Numbers int

const (
	// Exact compares numbers as decimals of any length.
	Exact Numbers = iota

	// Doubles compares numbers as doubles, as RFC 8785 does.
	Doubles
)

// maxExponent is the largest number of digits of an exponent. With this limit, the sum of an
// exponent and the length of any text fits into an int64.
const maxExponent = 18

// number reads a number and writes it in the form of ECMAScript.
func (c *canon) number() error {
	begin := c.at
	if !c.numeral() {
		return ErrNoForm
	}
	literal := c.in[begin:c.at]
	if c.numbers == Doubles {
		f, err := strconv.ParseFloat(string(literal), 64)
		if err != nil || math.IsInf(f, 0) {
			return ErrNoForm
		}
		c.out = appendDouble(c.out, f)
		return nil
	}
	d, ok := decimalOf(literal)
	if !ok {
		return ErrNoForm
	}
	c.out = d.append(c.out)
	return nil
}

// numeral skips a JSON number. It reports whether there was a number.
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

// is reports whether the parameter set contains the next byte.
func (c *canon) is(set string) bool {
	return c.at < len(c.in) && bytes.IndexByte([]byte(set), c.in[c.at]) >= 0
}

// appendDouble writes a double as Number.prototype.toString of ECMAScript does.
func appendDouble(out []byte, f float64) []byte {
	if f == 0 {
		return append(out, '0') // -0 is written as 0
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

// decimal is the value of a JSON number: 0.digits × 10^power. The digits are in two parts,
// before and after the point, without zeros at either end. Zero has no digits. The digits
// of equal values may be divided at different places.
type decimal struct {
	minus           bool
	whole, fraction []byte
	power           int64
}

// decimalOf returns the value of a JSON number. It allocates no memory: the digits are slices of
// numeral, and the exponent is an integer. ok is false if the exponent has more than 18 digits.
func decimalOf(numeral []byte) (d decimal, ok bool) {
	numeral, d.minus = bytes.CutPrefix(numeral, []byte("-"))
	var exponent []byte
	if i := bytes.IndexAny(numeral, "eE"); i >= 0 {
		numeral, exponent = numeral[:i], numeral[i+1:]
	}
	d.whole, d.fraction, _ = bytes.Cut(numeral, []byte("."))
	d.power = int64(len(d.whole))
	trimmed := bytes.TrimLeft(d.whole, "0")
	d.power -= int64(len(d.whole) - len(trimmed))
	if d.whole = trimmed; len(d.whole) == 0 {
		trimmed = bytes.TrimLeft(d.fraction, "0")
		d.power -= int64(len(d.fraction) - len(trimmed))
		d.fraction = trimmed
	}
	if d.fraction = bytes.TrimRight(d.fraction, "0"); len(d.fraction) == 0 {
		d.whole = bytes.TrimRight(d.whole, "0")
	}
	//guard:zero-has-no-sign false
	if d.digits() == 0 {
		return decimal{}, true // zero, with any sign and exponent
	}
	if len(exponent) > 0 {
		negative := exponent[0] == '-'
		exponent = bytes.TrimLeft(bytes.TrimLeft(exponent, "+-"), "0")
		//guard:an-exponent-is-not-carried-out false
		if len(exponent) > maxExponent {
			return decimal{}, false
		}
		var e int64
		for _, b := range exponent {
			e = 10*e + int64(b-'0')
		}
		if negative {
			e = -e
		}
		d.power += e
	}
	return d, true
}

func (d decimal) digits() int { return len(d.whole) + len(d.fraction) }

// append writes a decimal in the form of ECMAScript. The size of the number decides whether it is
// written as an integer, with a point, or with an exponent.
func (d decimal) append(out []byte) []byte {
	n := d.digits()
	if n == 0 {
		return append(out, '0')
	}
	if d.minus {
		out = append(out, '-')
	}
	from := len(out)
	zeros := func(n int64) {
		for range n {
			out = append(out, '0')
		}
	}
	switch power := d.power; {
	case power >= int64(n) && power <= 21:
		out = append(append(out, d.whole...), d.fraction...)
		zeros(power - int64(n))
	case power > 0 && power <= 21:
		out = append(append(out, d.whole...), d.fraction...)
		out = append(out, 0)
		at := from + int(power)
		copy(out[at+1:], out[at:])
		out[at] = '.'
	case power > -6 && power <= 0:
		out = append(out, "0."...)
		zeros(-power)
		out = append(append(out, d.whole...), d.fraction...)
	default:
		out = append(append(out, d.whole...), d.fraction...)
		if n > 1 {
			out = append(out, 0)
			copy(out[from+2:], out[from+1:])
			out[from+1] = '.'
		}
		out = append(out, 'e')
		if power > 0 {
			out = append(out, '+')
		}
		out = strconv.AppendInt(out, power-1, 10)
	}
	return out
}
