package delivery

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// RawHeaders returns headers as lines of name and value.
func RawHeaders(header map[string][]string) []byte {
	var b bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(header)) {
		for _, value := range header[name] {
			b.WriteString(name + ": " + value + "\r\n")
		}
	}
	return b.Bytes()
}

// ParseHeaders returns the headers that RawHeaders wrote.
func ParseHeaders(raw []byte) map[string][]string {
	header := make(map[string][]string)
	for line := range strings.SplitSeq(string(raw), "\r\n") {
		if name, value, ok := strings.Cut(line, ": "); ok {
			header[name] = append(header[name], value)
		}
	}
	return header
}

// EncodeHeaders returns headers as an object of texts, or nil if there are none.
func EncodeHeaders(headers map[string]string) (*string, error) {
	if len(headers) == 0 {
		return nil, nil //nolint:nilnil // the column is NULL
	}
	object, err := json.Marshal(headers)
	if err != nil {
		return nil, fmt.Errorf("encode headers: %w", err)
	}
	text := string(object)
	return &text, nil
}
