package answer

import (
	"encoding/json"
	"net/http"

	"github.com/postroom/postroom/internal/text"
)

// rawValue is a header value that PostgreSQL cannot store as a JSON string: the value is not UTF-8,
// for instance Latin-1, or it contains NUL. So the value is stored in base64.
type rawValue struct {
	Bytes []byte `json:"bytes"`
}

// EncodeHeader returns headers as JSON.
func EncodeHeader(h http.Header) ([]byte, error) {
	out := make(map[string][]any, len(h))
	for name, values := range h {
		out[name] = []any{}
		for _, v := range values {
			if text.Valid(v) {
				out[name] = append(out[name], v)
			} else {
				out[name] = append(out[name], rawValue{[]byte(v)})
			}
		}
	}
	return json.Marshal(out)
}

// DecodeHeader decodes JSON that EncodeHeader made.
func DecodeHeader(text []byte) (http.Header, error) {
	h := make(http.Header)
	if json.Unmarshal(text, &h) == nil {
		return h, nil
	}
	var in map[string][]json.RawMessage
	if err := json.Unmarshal(text, &in); err != nil {
		return nil, err
	}
	for name, values := range in {
		h[name] = nil // removes values that the first Unmarshal stored before it failed
		for _, v := range values {
			var s string
			if err := json.Unmarshal(v, &s); err != nil {
				var raw rawValue
				if err := json.Unmarshal(v, &raw); err != nil {
					return nil, err
				}
				s = string(raw.Bytes)
			}
			h[name] = append(h[name], s)
		}
	}
	return h, nil
}
