package jcs_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/postroom/postroom/internal/jcs"
)

func TestExactNumbers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, in, want string }{
		{"spellings of one thousand", "[1000,1000.0,1e3,1E+3,10.00e2,0.1e4,10000000e-4]", "[1000,1000,1000,1000,1000,1000,1000]"},
		{"zeros", "[0,-0,0.0,-0.000,0e5,-0E-7,0e99999999999999999999999]", "[0,0,0,0,0,0,0]"},
		{"negative ones", "[-1.50,-15e-1,-0.0015e3]", "[-1.5,-1.5,-1.5]"},
		{"a thousandth apart", "[9007199254740.993,9007199254740.992]", "[9007199254740.993,9007199254740.992]"},
		{"a cent apart", "[123456789012345.68,123456789012345.69]", "[123456789012345.68,123456789012345.69]"},
		{"integers beyond 2^53", "[9007199254740991,9007199254740992,9007199254740993,-9007199254740993]", "[9007199254740991,9007199254740992,9007199254740993,-9007199254740993]"},
		{"in other spellings", "[9007199254740993.0,9.007199254740993e15]", "[9007199254740993,9007199254740993]"},
		{"17 digits", "0.10000000000000001", "0.10000000000000001"},
		{"20 digits", "0.12345678901234567891", "0.12345678901234567891"},
		{"zeros at the end are no digits", "[1.00000000000000000000000,4.50,2e-3]", "[1,4.5,0.002]"},
		{"the largest without an exponent", "[100000000000000000000,999999999999999999999,1e21,1000000000000000000000]", "[100000000000000000000,999999999999999999999,1e+21,1e+21]"},
		{"with a point, however large", "123456789012345678901.5", "123456789012345678901.5"},
		{"more digits than fit without one", "[123456789012345678901234567890,1234567890123456789012.5]", "[1.2345678901234567890123456789e+29,1.2345678901234567890125e+21]"},
		{"the smallest without an exponent", "[0.000001,0.0000012,1e-7,0.00000012]", "[0.000001,0.0000012,1e-7,1.2e-7]"},
		{"beyond a double", "[1e400,1e-400,-25e-401]", "[1e+400,1e-400,-2.5e-400]"},
		{"far beyond", "[1e999999999,0.1e1000000000,1e-999999999999999999]", "[1e+999999999,1e+999999999,1e-999999999999999999]"},
		{"an exponent with zeros before it", "[1e0000000000000000000000000000000002,1e-00]", "[100,1]"},
	} {
		if got, err := exact([]byte(tt.in)); err != nil || string(got) != tt.want {
			t.Errorf("%s: %s = %s, %v, want %s", tt.name, tt.in, got, err, tt.want)
		}
	}
}

// Two numbers have the same form only if they are equal, however they are spelled. The test
// compares them with exact arithmetic.
func TestExactNumbersAreTheirValues(t *testing.T) {
	t.Parallel()
	numeral := rapid.Custom(func(t *rapid.T) string {
		digits := rapid.StringMatching(`(0|[1-9][0-9]{0,25})(\.[0-9]{1,25})?`).Draw(t, "digits")
		if rapid.Bool().Draw(t, "few digits") { // so that two numbers are often equal
			digits = rapid.StringMatching(`(0|10{0,3})(\.0{0,3}10{0,3})?`).Draw(t, "digits")
		}
		sign := rapid.SampledFrom([]string{"", "-"}).Draw(t, "sign")
		exponent := rapid.SampledFrom([]string{"", "e", "E+", "e-", "e-0"}).Draw(t, "exponent")
		if exponent != "" {
			exponent += fmt.Sprint(rapid.IntRange(0, 40).Draw(t, "power"))
		}
		return sign + digits + exponent
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := numeral.Draw(t, "a"), numeral.Draw(t, "b")
		x, _ := new(big.Rat).SetString(a)
		y, _ := new(big.Rat).SetString(b)
		one, err := exact([]byte(a))
		if err != nil {
			t.Fatal(a, err)
		}
		other, err := exact([]byte(b))
		if err != nil {
			t.Fatal(b, err)
		}
		if bytes.Equal(one, other) != (x.Cmp(y) == 0) {
			t.Fatalf("%s and %s have the forms %s and %s", a, b, one, other)
		}
		if z, ok := new(big.Rat).SetString(string(one)); !ok || z.Cmp(x) != 0 || !json.Valid(one) {
			t.Fatalf("%s became %s", a, one)
		}
	})
}

// The exact form of a double's shortest text is also the form that RFC 8785 requires.
func TestExactNumbersOfDoubles(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		f := rapid.Float64().Draw(t, "double")
		text, err := json.Marshal(f)
		if err != nil {
			t.Skip(err)
		}
		exact, err := exact(text)
		if err != nil || string(exact) != jcs.Number(f) {
			t.Fatalf("%s = %s, %v, want %s", text, exact, err, jcs.Number(f))
		}
		if rounded, err := doubles(text); err != nil || !bytes.Equal(rounded, exact) {
			t.Fatalf("%s = %s, %v, want %s", text, rounded, err, exact)
		}
	})
}

func TestFormOfDoubles(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`{"b":9007199254740993,"a":9007199254740992}`:                          `{"a":9007199254740992,"b":9007199254740992}`,
		"[123456789012345.68,123456789012345.69]":                              "[123456789012345.69,123456789012345.69]",
		"[333333333.33333329,1E30,4.50,2e-3,0.000000000000000000000000001,-0]": "[333333333.3333333,1e+30,4.5,0.002,1e-27,0]", // from the RFC
		"[0.10000000000000001,1e-400]":                                         "[0.1,0]",
	} {
		if got, err := doubles([]byte(in)); err != nil || string(got) != want {
			t.Errorf("%s = %s, %v, want %s", in, got, err, want)
		}
	}
	for _, in := range []string{"1e400", "-1e400", `{"a":1,"a":1}`, `"\ud83d"`} {
		if got, err := doubles([]byte(in)); err == nil {
			t.Errorf("%s = %s, want an error", in, got)
		}
	}
}

// The cost of a number depends on the length of its text, because an exponent is never expanded
// into digits.
func TestALargeExponentCostsNothing(t *testing.T) {
	short := []byte("[" + strings.Repeat("1.5e3,", 10_000) + "0]")
	large := []byte("[" + strings.Repeat("1.5e999999999,", 10_000) + "0]")
	if few, many := allocated(t, short), allocated(t, large); many > 5*few {
		t.Errorf("%d bytes for exponents of 999999999, %d without", many, few)
	}
}
