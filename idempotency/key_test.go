package idempotency_test

import (
	"errors"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/postroom/postroom/idempotency"
)

func TestParseKey(t *testing.T) {
	t.Parallel()
	strict := idempotency.KeyFormat{Strict: true}
	any128 := strings.Repeat("k", 128)
	tests := []struct {
		name   string
		lines  []string
		format idempotency.KeyFormat
		want   string
		err    error
	}{
		{"the draft's example", []string{`"8e03978e-40d5-43e8-bc93-6894a57f9324"`}, strict, "8e03978e-40d5-43e8-bc93-6894a57f9324", nil},
		{"escapes, strict", []string{`"foo \"bar\" \\ baz"`}, strict, `foo "bar" \ baz`, nil},
		{"a space is refused otherwise", []string{`"foo \"bar\" \\ baz"`}, idempotency.KeyFormat{}, "", idempotency.ErrInvalidKey},
		{"blank", []string{`"   "`}, strict, "", idempotency.ErrInvalidKey},
		{"empty string", []string{`""`}, strict, "", idempotency.ErrInvalidKey},
		{"empty line", []string{""}, idempotency.KeyFormat{}, "", idempotency.ErrInvalidKey},
		{"the closing quote is escaped", []string{`"foo \"`}, idempotency.KeyFormat{}, "", idempotency.ErrInvalidKey},
		{"unclosed", []string{`"foo`}, idempotency.KeyFormat{}, "", idempotency.ErrInvalidKey},
		{"cut off after a backslash", []string{`"foo \`}, idempotency.KeyFormat{}, "", idempotency.ErrInvalidKey},
		{"bad escape", []string{`"foo \,"`}, strict, "", idempotency.ErrInvalidKey},
		{"beyond ASCII", []string{`"füü"`}, strict, "", idempotency.ErrInvalidKey},
		{"control", []string{"\"a\x1fb\""}, strict, "", idempotency.ErrInvalidKey},
		{"DEL", []string{"\"a\x7fb\""}, strict, "", idempotency.ErrInvalidKey},
		{"tab before", []string{"\t\"a\""}, strict, "", idempotency.ErrInvalidKey},
		{"spaces around", []string{`  "a"  `}, strict, "a", nil},
		{"parameters are ignored", []string{`"a";v=1`}, idempotency.KeyFormat{}, "a", nil},
		{"text behind it", []string{`"a" x`}, idempotency.KeyFormat{}, "", idempotency.ErrInvalidKey},
		{"two lines that would be one string", []string{`"foo`, `bar"`}, idempotency.KeyFormat{}, "", idempotency.ErrInvalidKey},
		{"two lines that are the same", []string{"a", "a"}, idempotency.KeyFormat{}, "", idempotency.ErrInvalidKey},
		{"bare", []string{"refund:ch_9ab:1000:6f6c"}, idempotency.KeyFormat{}, "refund:ch_9ab:1000:6f6c", nil},
		{"bare, strict", []string{"refund:ch_9ab"}, strict, "", idempotency.ErrInvalidKey},
		{"two merged by a proxy", []string{"a, b"}, idempotency.KeyFormat{}, "", idempotency.ErrInvalidKey},
		{"two strings merged by a proxy", []string{`"a", "b"`}, idempotency.KeyFormat{}, "", idempotency.ErrInvalidKey},
		{"single quotes", []string{"'a'"}, idempotency.KeyFormat{}, "", idempotency.ErrInvalidKey},
		{"bare with a quote in it", []string{`a"b`}, idempotency.KeyFormat{}, "", idempotency.ErrInvalidKey},
		{"bare with a space in it", []string{"a b"}, idempotency.KeyFormat{}, "", idempotency.ErrInvalidKey},
		{"quoted and bare are the same: quoted", []string{`"k1"`}, idempotency.KeyFormat{}, "k1", nil},
		{"quoted and bare are the same: bare", []string{"k1"}, idempotency.KeyFormat{}, "k1", nil},
		{"the longest", []string{any128}, idempotency.KeyFormat{}, any128, nil},
		{"longer", []string{any128 + "k"}, idempotency.KeyFormat{}, "", idempotency.ErrInvalidKey},
		{"longer, quoted: the decoded length counts", []string{`"` + any128 + `"`}, idempotency.KeyFormat{}, any128, nil},
		{"longer is allowed", []string{any128 + any128[1:]}, idempotency.KeyFormat{MaxLen: 255}, any128 + any128[1:], nil},
		{"UUID", []string{"8E03978E-40d5-13e8-bc93-6894a57f9324"}, idempotency.KeyFormat{Match: idempotency.UUID}, "8E03978E-40d5-13e8-bc93-6894a57f9324", nil},
		{"no UUID", []string{"8e03978e40d543e8bc936894a57f9324"}, idempotency.KeyFormat{Match: idempotency.UUID}, "", idempotency.ErrInvalidKey},
		{"random UUID", []string{"8e03978e-40d5-43e8-bc93-6894a57f9324"}, idempotency.KeyFormat{Match: idempotency.UUIDv4}, "8e03978e-40d5-43e8-bc93-6894a57f9324", nil},
		{"UUID of another version", []string{"8e03978e-40d5-13e8-bc93-6894a57f9324"}, idempotency.KeyFormat{Match: idempotency.UUIDv4}, "", idempotency.ErrInvalidKey},
		{"UUID of another variant", []string{"8e03978e-40d5-43e8-cc93-6894a57f9324"}, idempotency.KeyFormat{Match: idempotency.UUIDv4}, "", idempotency.ErrInvalidKey},
		{"by a regular expression", []string{"ord-7"}, idempotency.KeyFormat{Match: regexp.MustCompile(`^ord-\d+$`).MatchString}, "ord-7", nil},
		{"none", nil, idempotency.KeyFormat{}, "", idempotency.ErrMissingKey},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := idempotency.ParseKey(tt.lines, tt.format)
			if !errors.Is(err, tt.err) || err == nil && got != tt.want {
				t.Errorf("ParseKey(%q) = %q, %v, want %q, %v", tt.lines, got, err, tt.want, tt.err)
			}
		})
	}
	for b := range 256 {
		ok := b >= 0x20 && b <= 0x7e && b != '"' && b != '\\'
		if _, err := idempotency.ParseKey([]string{`"a` + string([]byte{byte(b)}) + `b"`}, strict); (err == nil) != ok {
			t.Errorf("byte %#x in a string: %v", b, err)
		}
		ok = ok && b != ' ' && b != ',' || b == '\\'
		if _, err := idempotency.ParseKey([]string{"a" + string([]byte{byte(b)}) + "b"}, idempotency.KeyFormat{}); (err == nil) != ok {
			t.Errorf("byte %#x in a bare key: %v", b, err)
		}
	}
}

func TestDeriveKey(t *testing.T) {
	t.Parallel()
	key := idempotency.DeriveKey("order-7", "charge")
	if key != idempotency.DeriveKey("order-7", "charge") {
		t.Error("two keys of one step differ")
	}
	if !regexp.MustCompile(`^[0-9a-f]{32}$`).MatchString(key) {
		t.Errorf("%q is not 32 lower-case hexadecimal digits", key)
	}
	for _, other := range [][2]string{{"order-7", "refund"}, {"order-8", "charge"}, {"order-7c", "harge"}, {"", "order-7charge"}} {
		if idempotency.DeriveKey(other[0], other[1]) == key {
			t.Errorf("%q has the same key", other)
		}
	}
}

// The pattern of a request comes from a ServeMux. The test fails if net/http no longer sets it.
func TestPatternIsSet(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	var pattern string
	mux.HandleFunc("POST /orders/{id}/pay", func(_ http.ResponseWriter, r *http.Request) { pattern = r.Pattern })
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "/orders/1/pay", nil)
	mux.ServeHTTP(nil, r)
	if pattern != "POST /orders/{id}/pay" {
		t.Errorf("pattern %q", pattern)
	}
}
