package idempotency_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/postroom/postroom/idempotency"
)

func TestCanonicalJSON(t *testing.T) {
	t.Parallel()
	structures := `{"1": {"f": {"f": "hi","F": 5} ,"\n": 56.0}, "10": { }, "": "empty", "a": { }, "111": [ {"e": "yes","E": "no" } ], "A": { }}`
	weird := "{\n \"\\u20ac\": \"Euro Sign\",\n \"\\r\": \"Carriage Return\",\n \"\\u000a\": \"Newline\",\n \"1\": \"One\",\n \"\\u0080\": \"Control\\u007f\"," +
		"\n \"\\ud83d\\ude02\": \"Smiley\",\n \"\\u00f6\": \"Latin Small Letter O With Diaeresis\",\n \"\\ufb33\": \"Hebrew Letter Dalet With Dagesh\",\n \"</script>\": \"Browser Challenge\"\n}"
	tests := []struct{ name, in, want, sum string }{
		{"arrays", `[56,{"d":true,"10":null,"1":[]}]`, `[56,{"1":[],"10":null,"d":true}]`, "099601b171cafed97c333f8878d68e7f8c8f795412adb34b2fdcf0e7c7beac42"},
		{"structures", structures, `{"":"empty","1":{"\n":56,"f":{"F":5,"f":"hi"}},"10":{},"111":[{"E":"no","e":"yes"}],"A":{},"a":{}}`, "605f65004ec2db7692522a0852c22f1c989e036d547e88963d1a3143cf3195d5"},
		{"weird", weird, "", "6af595a9aa80110b964b4de3f82a05fa6ae7423005019bacfa2620dddc4e94d1"},
		{"first spelling", `{ "charge_id": "ch_9ab", "amount": 1000.0 }`, `{"amount":1000,"charge_id":"ch_9ab"}`, "fb268af67b6980f307f6051f588654cd88b569e821c930866e10d128af2b7d60"},
		{"second spelling", `{"amount":1e3,"charge_id":"ch_9\u0061b"}`, `{"amount":1000,"charge_id":"ch_9ab"}`, "fb268af67b6980f307f6051f588654cd88b569e821c930866e10d128af2b7d60"},
		{"escapes", `"\u0000\b\t\n\f\r\u001f\"\\\/\u007f\u20ac"`, "\"\\u0000\\b\\t\\n\\f\\r\\u001f\\\"\\\\/\x7f€\"", ""},
		{"no normalisation", `"\u0041\u030a"`, "\"A\u030a\"", ""},
		{"words", ` [ true , false , null ] `, `[true,false,null]`, ""},
		{"negative zero", `[-0, -0.0, -0e5]`, `[0,0,0]`, ""},
		{"scalars", ` 1 `, `1`, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := idempotency.CanonicalJSON([]byte(tt.in))
			if err != nil {
				t.Fatal(err)
			}
			if tt.want != "" && string(got) != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
			if sum := sha256.Sum256(got); tt.sum != "" && hex.EncodeToString(sum[:]) != tt.sum {
				t.Errorf("sha256 of %s is %x, want %s", got, sum, tt.sum)
			}
		})
	}
}

func TestCanonicalNumbers(t *testing.T) {
	t.Parallel()
	bits := map[uint64]string{
		0x0000000000000000: "0", 0x0000000000000001: "5e-324", 0x4340000000000000: "9007199254740992",
		0x44b52d02c7e14af5: "9.999999999999997e+22", 0x444b1ae4d6e2ef4f: "999999999999999900000", 0x3eb0c6f7a0b5ed8c: "9.999999999999997e-7",
		0x41b3de4355555555: "333333333.3333333", 0x43143ff3c1cb0959: "1424953923781206.2",
		0x8000000000000000: "0", 0x7fefffffffffffff: "1.7976931348623157e+308", 0x3eb0c6f7a0b5ed8d: "0.000001", 0x444b1ae4d6e2ef50: "1e+21",
	}
	for b, want := range bits {
		if got := idempotency.Number(math.Float64frombits(b)); got != want {
			t.Errorf("%016x = %s, want %s", b, got, want)
		}
	}
	texts := []struct{ name, in, want string }{
		{"an integer below the bound", "9007199254740991", "9007199254740991"},
		{"integers beyond stay as written", "[9007199254740992,9007199254740993,-9007199254740993]", "[9007199254740992,9007199254740993,-9007199254740993]"},
		{"and large ones", "123456789012345678901234567890", "123456789012345678901234567890"},
		{"an exponent that is exact", "1E30", "1e+30"},
		{"an integer in another spelling stays exact", "[9007199254740993.0,9.007199254740993e15]", "[9007199254740993.0,9.007199254740993e15]"},
		{"its neighbour is rounded to nothing else", "9007199254740992.0", "9007199254740992"},
		{"trailing zeros", "[4.50,2e-3,0.000000000000000000000000001]", "[4.5,0.002,1e-27]"},
		{"17 digits of a double", "0.10000000000000001", "0.1"},
		{"more digits than a double has", "0.12345678901234567891", "0.12345678901234567891"},
		{"zeros are no digits", "1.00000000000000000000000", "1"},
		{"too small for a double", "1e-400", "0"},
	}
	for _, tt := range texts {
		if got, err := idempotency.CanonicalJSON([]byte(tt.in)); err != nil || string(got) != tt.want {
			t.Errorf("%s: %s = %s, %v, want %s", tt.name, tt.in, got, err, tt.want)
		}
	}
}

func TestNoCanonicalForm(t *testing.T) {
	t.Parallel()
	for name, in := range map[string]string{
		"nothing": "", "blank": " ", "one name twice": `{"a":1,"\u0061":2}`, "lone high surrogate": `"\ud83d"`, "lone low surrogate": `"\ude02"`,
		"two high surrogates": `"\ud83d\ud83d"`, "beyond a double": "1e400", "NaN": "NaN", "Infinity": "-Infinity", "leading zero": "01", "leading plus": "+1",
		"no digit": "-", "dot without digits": "1.", "exponent without digits": "1e", "trailing comma": "[1,]", "trailing comma in an object": `{"a":1,}`,
		"invalid UTF-8": "\"\xc0\xa0\"", "two values": "1 2", "unclosed array": "[1", "unclosed object": `{"a":1`, "unclosed string": `"a`,
		"a bare name": "{a:1}", "a control in a string": "\"\n\"", "an unknown escape": `"\x"`, "short escape": `"\u12"`, "a word cut short": "tru",
		"a comment": "/**/1", "escape at the end": `"\`, "too deep": strings.Repeat("[", 600) + strings.Repeat("]", 600), "no-break space": "\u00a01",
	} {
		if got, err := idempotency.CanonicalJSON([]byte(in)); err == nil {
			t.Errorf("%s: %s = %s, want an error", name, in, got)
		}
	}
	if _, err := idempotency.CanonicalJSON([]byte(strings.Repeat("[", 512) + strings.Repeat("]", 512))); err != nil {
		t.Errorf("512 levels: %v", err)
	}
}

// Spelling does not matter: what another encoder makes of a text, with its members in
// another order, has the same canonical form, and that form is its own.
func TestCanonicalFormIsOne(t *testing.T) {
	t.Parallel()
	var value func(depth int) *rapid.Generator[any]
	value = func(depth int) *rapid.Generator[any] {
		scalar := []*rapid.Generator[any]{
			rapid.String().AsAny(), rapid.Bool().AsAny(), rapid.Int64().AsAny(),
			rapid.Float64Range(-1e300, 1e300).AsAny(), rapid.Just[any](nil),
		}
		if depth == 0 {
			return rapid.OneOf(scalar...)
		}
		return rapid.OneOf(append(scalar,
			rapid.SliceOfN(value(depth-1), 0, 4).AsAny(),
			rapid.MapOfN(rapid.String(), value(depth-1), 0, 4).AsAny())...)
	}
	rapid.Check(t, func(t *rapid.T) {
		v := value(3).Draw(t, "value")
		plain, err := json.Marshal(v)
		if err != nil {
			t.Skip(err)
		}
		indented, _ := json.MarshalIndent(v, " ", "\t")
		one, err := idempotency.CanonicalJSON(plain)
		if err != nil {
			t.Fatalf("%s: %v", plain, err)
		}
		other, err := idempotency.CanonicalJSON(indented)
		if err != nil || !bytes.Equal(one, other) {
			t.Fatalf("%s and %s of one value: %v", one, other, err)
		}
		if again, err := idempotency.CanonicalJSON(one); err != nil || !bytes.Equal(one, again) {
			t.Fatalf("%s is not its own form: %s, %v", one, again, err)
		}
	})
}

// FuzzCanonicalJSON holds that whatever has a canonical form is JSON, and that the form
// says the same.
func FuzzCanonicalJSON(f *testing.F) {
	for _, seed := range []string{`{"a":[1,2.5e3,"x\u00e9"],"b":null}`, `"\ud83d\ude02"`, `9007199254740993.0`, `[[[[]]]]`, `{"":{"":""}}`, "1e-7", `-0`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		out, err := idempotency.CanonicalJSON(in)
		if err != nil {
			return
		}
		if !json.Valid(in) || !json.Valid(out) {
			t.Fatalf("%q became %q", in, out)
		}
		again, err := idempotency.CanonicalJSON(out)
		if err != nil || !bytes.Equal(out, again) {
			t.Fatalf("%q became %q, and that %q (%v)", in, out, again, err)
		}
	})
}
