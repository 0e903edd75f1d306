package delivery

import (
	"bytes"
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
