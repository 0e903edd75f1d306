package natsjs

import (
	"encoding/json"
	"testing"
)

// FuzzParseAck checks that the fast path reads the same from an acknowledgement as a JSON
// parser, and accepts nothing else as one.
func FuzzParseAck(f *testing.F) {
	for _, seed := range []string{
		`{"stream":"SHOP","seq":7}`, `{"stream":"SHOP","domain":"hub","seq":7}`, `{"stream":"SHOP","domain":"h\u0075b","seq":7}`, `{"stream":"SHOP", "seq":7}`, `{"stream":"SHOP","seq":7,"duplicate":true}`, `{"stream":"SHOP","seq":0}`,
		`{"stream":"","seq":7}`, `{"stream":"SHOP","seq":-7}`, `{"stream":"SHOP","seq":07}`, `{"stream":"SHOP","seq":18446744073709551615}`,
		`{"error":{"code":503,"err_code":10076,"description":"away"},"stream":"SHOP","seq":0}`, `{"stream":"A\u0026B","seq":7}`, `{}`, `null`, ``,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := parseAck(data)
		stream, domain, seq, duplicate := string(a.stream), string(a.domain), a.seq, a.duplicate
		var answer struct {
			Stream    string
			Domain    string
			Seq       uint64
			Duplicate bool
			Error     *struct{}
		}
		parsed := json.Unmarshal(data, &answer)
		if err == nil {
			switch {
			case len(stream) == 0 || seq == 0:
				t.Errorf("parseAck(%q) = %q, %d: no place in a stream", data, stream, seq)
			case parsed != nil:
				t.Errorf("parseAck(%q) = %q, %d, and it is no JSON: %v", data, stream, seq, parsed)
			case stream != answer.Stream || domain != answer.Domain || seq != answer.Seq || duplicate != answer.Duplicate:
				t.Errorf("parseAck(%q) = %q, %d, %t, want %+v", data, stream, seq, duplicate, answer)
			}
		}
		if err == nil && parsed == nil && answer.Error != nil {
			t.Errorf("parseAck(%q) = %q, %d: it is an error", data, stream, seq)
		}
	})
}
