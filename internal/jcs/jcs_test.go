package jcs_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/postroom/postroom/internal/jcs"
)

func exact(in []byte) ([]byte, error)   { return jcs.Form(in, jcs.Exact) }
func doubles(in []byte) ([]byte, error) { return jcs.Form(in, jcs.Doubles) }

func TestExactForm(t *testing.T) {
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
			got, err := exact([]byte(tt.in))
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

func TestDoublesAsECMAScriptWritesThem(t *testing.T) {
	t.Parallel()
	bits := map[uint64]string{
		0x0000000000000000: "0", 0x0000000000000001: "5e-324", 0x4340000000000000: "9007199254740992",
		0x44b52d02c7e14af5: "9.999999999999997e+22", 0x444b1ae4d6e2ef4f: "999999999999999900000", 0x3eb0c6f7a0b5ed8c: "9.999999999999997e-7",
		0x41b3de4355555555: "333333333.3333333", 0x43143ff3c1cb0959: "1424953923781206.2",
		0x8000000000000000: "0", 0x7fefffffffffffff: "1.7976931348623157e+308", 0x3eb0c6f7a0b5ed8d: "0.000001", 0x444b1ae4d6e2ef50: "1e+21",
	}
	for b, want := range bits {
		if got := jcs.Number(math.Float64frombits(b)); got != want {
			t.Errorf("%016x = %s, want %s", b, got, want)
		}
	}
}

func TestNoCanonicalForm(t *testing.T) {
	t.Parallel()
	for name, in := range map[string]string{
		"nothing": "", "blank": " ", "one name twice": `{"a":1,"\u0061":2}`, "lone high surrogate": `"\ud83d"`, "lone low surrogate": `"\ude02"`,
		"two high surrogates": `"\ud83d\ud83d"`, "an exponent without end": "1e1000000000000000000", "NaN": "NaN", "Infinity": "-Infinity", "leading zero": "01", "leading plus": "+1",
		"no digit": "-", "dot without digits": "1.", "exponent without digits": "1e", "trailing comma": "[1,]", "trailing comma in an object": `{"a":1,}`,
		"invalid UTF-8": "\"\xc0\xa0\"", "two values": "1 2", "unclosed array": "[1", "unclosed object": `{"a":1`, "unclosed string": `"a`,
		"a bare name": "{a:1}", "a control in a string": "\"\n\"", "an unknown escape": `"\x"`, "short escape": `"\u12"`, "a word cut short": "tru",
		"a comment": "/**/1", "escape at the end": `"\`, "too deep": strings.Repeat("[", 513) + strings.Repeat("]", 513), "no-break space": "\u00a01",
	} {
		if got, err := exact([]byte(in)); err == nil {
			t.Errorf("%s: %s = %s, want an error", name, in, got)
		}
	}
	if _, err := exact([]byte(strings.Repeat("[", 512) + strings.Repeat("]", 512))); err != nil {
		t.Errorf("512 levels: %v", err)
	}
}

// The canonical form does not depend on spelling: the output of another encoder, with members in
// another order, has the same form. The canonical form of a canonical form is the same text.
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
		one, err := exact(plain)
		if err != nil {
			t.Fatalf("%s: %v", plain, err)
		}
		other, err := exact(indented)
		if err != nil || !bytes.Equal(one, other) {
			t.Fatalf("%s and %s of one value: %v", one, other, err)
		}
		if again, err := exact(one); err != nil || !bytes.Equal(one, again) {
			t.Fatalf("%s is not its own form: %s, %v", one, again, err)
		}
	})
}

// The order of members does not matter on any level.
func TestTheOrderOfMembersDoesNotMatter(t *testing.T) {
	t.Parallel()
	names := rapid.SampledFrom([]string{"", "a", "b", `\u0041`, "B", "ö", `\ud83d\ude02`, `\ufb33`, `\"`, "10", "9"})
	var write func(t *rapid.T, depth int, one, other *strings.Builder)
	write = func(t *rapid.T, depth int, one, other *strings.Builder) {
		kind := rapid.IntRange(0, 3).Draw(t, "kind")
		if depth == 0 || kind == 0 {
			scalar := rapid.SampledFrom([]string{"1", "1.0", `"\n"`, "null", "[]", "{}"}).Draw(t, "scalar")
			one.WriteString(scalar)
			other.WriteString(scalar)
			return
		}
		keys := rapid.SliceOfNDistinct(names, 0, 5, rapid.ID[string]).Draw(t, "names")
		members := make(map[string]string)
		for i, key := range keys {
			if kind == 1 {
				key = fmt.Sprint(i)
			}
			var x, y strings.Builder
			write(t, depth-1, &x, &y)
			keys[i], members["1"+key], members["2"+key] = key, x.String(), y.String()
		}
		list := func(to *strings.Builder, which string, keys []string) {
			to.WriteString(map[bool]string{true: "[", false: "{"}[kind == 1])
			for i, key := range keys {
				if i > 0 {
					to.WriteString(",")
				}
				if kind != 1 {
					to.WriteString(`"` + key + `":`)
				}
				to.WriteString(members[which+key])
			}
			to.WriteString(map[bool]string{true: "]", false: "}"}[kind == 1])
		}
		list(one, "1", keys)
		if kind != 1 {
			keys = rapid.Permutation(keys).Draw(t, "order")
		}
		list(other, "2", keys)
	}
	rapid.Check(t, func(t *rapid.T) {
		var one, other strings.Builder
		write(t, 5, &one, &other)
		x, err := exact([]byte(one.String()))
		if err != nil {
			t.Fatal(one.String(), err)
		}
		y, err := exact([]byte(other.String()))
		if err != nil || !bytes.Equal(x, y) {
			t.Fatalf("%s and %s\nbecame %s and %s, %v", one.String(), other.String(), x, y, err)
		}
		var before, after any
		if json.Unmarshal([]byte(one.String()), &before) != nil || json.Unmarshal(x, &after) != nil || !reflect.DeepEqual(before, after) {
			t.Fatalf("%s became %s", one.String(), x)
		}
	})
}

// allocated returns how many bytes are allocated to make the canonical form of a text. The test
// must not run in parallel with others.
func allocated(t *testing.T, text []byte) uint64 {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := exact(text); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// nested returns a text of about the given size with objects that are nested depth levels deep. On
// each level the members are not sorted, and the next level is between them.
func nested(size, depth int) []byte {
	var b strings.Builder
	b.WriteString("[")
	for b.Len() < size {
		if b.Len() > 1 {
			b.WriteString(",")
		}
		for i := range depth {
			fmt.Fprintf(&b, `{"z":%d,"m":`, i)
		}
		b.WriteString("0" + strings.Repeat(`,"a":"\u0041"}`, depth))
	}
	b.WriteString("]")
	return []byte(b.String())
}

// Nesting needs no more memory: a nested value is not copied once for each level around it.
func TestDepthCostsNothing(t *testing.T) {
	const size = 1 << 20
	flat, deep := nested(size, 1), nested(size, 500)
	few, many := allocated(t, flat), allocated(t, deep)
	if many > 2*few || many > 24*size {
		t.Errorf("%d bytes for 500 levels, %d for one, of a text of %d", many, few, size)
	}
	// The worst case is a chain of nested objects with a long text in the innermost one, because
	// the text may be moved for each level.
	chain := strings.Repeat(`{"b":`, 510) + `"` + strings.Repeat("x", size) + `"` + strings.Repeat(`,"a":0}`, 510)
	if got := allocated(t, []byte(chain)); got > 4*size {
		t.Errorf("%d bytes for a chain of 510 objects around a text of %d", got, size)
	}
}

func BenchmarkForm(b *testing.B) {
	const size = 1 << 20
	for _, depth := range []int{1, 10, 100, 510} {
		text := nested(size, depth)
		b.Run(fmt.Sprintf("depth %d", depth), func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := exact(text); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// FuzzForm checks that each text that has a canonical form is JSON, and that the form has the same
// values.
func FuzzForm(f *testing.F) {
	for _, seed := range []string{`{"a":[1,2.5e3,"x\u00e9"],"b":null}`, `"\ud83d\ude02"`, `9007199254740993.0`, `[[[[]]]]`, `{"":{"":""}}`, "1e-7", `-0`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		out, err := exact(in)
		if err != nil {
			return
		}
		if !json.Valid(in) || !json.Valid(out) {
			t.Fatalf("%q became %q", in, out)
		}
		again, err := exact(out)
		if err != nil || !bytes.Equal(out, again) {
			t.Fatalf("%q became %q, and that %q (%v)", in, out, again, err)
		}
	})
}
