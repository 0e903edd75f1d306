package natsjs

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/postroom/postroom/broker"
)

// parseAck parses an acknowledgement. The returned name of the stream shares the memory of data.
func parseAck(data []byte) (stream []byte, seq uint64, duplicate bool, err error) {
	// Fast path: most answers have only stream and sequence.
	if rest, ok := bytes.CutPrefix(data, []byte(`{"stream":"`)); ok {
		name, rest, ok := bytes.Cut(rest, []byte(`"`))
		digits, ok2 := bytes.CutPrefix(rest, []byte(`,"seq":`))
		digits, ok3 := bytes.CutSuffix(digits, []byte(`}`))
		//guard:a-stream-without-a-name-stored-nothing 4 true
		if seq, number := parseNumber(digits); ok && ok2 && ok3 && len(name) > 0 && isPlain(name) && number {
			return name, seq, false, nil
		}
	}
	var answer struct {
		Stream    string `json:"stream"`
		Sequence  uint64 `json:"seq"`
		Duplicate bool   `json:"duplicate"`
		Error     *struct {
			Code        int    `json:"err_code"`
			Status      int    `json:"code"`
			Description string `json:"description"`
		} `json:"error"`
	}
	switch err := json.Unmarshal(data, &answer); {
	case err == nil && answer.Error != nil:
		return []byte(answer.Stream), 0, false, &BrokerError{Code: answer.Error.Code, Status: answer.Error.Status, Description: answer.Error.Description}
	case err == nil && answer.Stream != "" && answer.Sequence > 0: // check both, because another program could answer on the subject
		return []byte(answer.Stream), answer.Sequence, answer.Duplicate, nil
	}
	return nil, 0, false, fmt.Errorf("%w: the answer cannot be read", broker.ErrUnacknowledged)
}

// isPlain reports whether a name is printable ASCII without JSON escapes ('&' can be escaped too).
func isPlain(name []byte) bool {
	for _, c := range name {
		if c < ' ' || c > '~' || c == '\\' {
			return false
		}
	}
	return true
}

// parseNumber parses a number above zero with at most 18 digits.
func parseNumber(text []byte) (n uint64, ok bool) {
	if len(text) == 0 || len(text) > 18 || text[0] < '1' {
		return 0, false
	}
	for _, c := range text {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + uint64(c-'0')
	}
	return n, true
}
