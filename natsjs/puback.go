package natsjs

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/postroom/postroom/relay/broker"
)

// ack is an acknowledgement. The stream and the domain share the memory of the answer. An error names
// its stream, and no domain.
type ack struct {
	stream, domain []byte
	seq            uint64
	duplicate      bool
}

// parseAck parses the answer of a stream. The error is a [BrokerError], or [broker.ErrUnacknowledged] if
// the answer cannot be one of a stream.
func parseAck(data []byte) (ack, error) {
	// Fast path: most answers have only stream and sequence, and perhaps a domain.
	if rest, ok := bytes.CutPrefix(data, []byte(`{"stream":"`)); ok {
		name, rest, ok := bytes.Cut(rest, []byte(`"`))
		domain, ok1 := []byte(nil), true
		if named, has := bytes.CutPrefix(rest, []byte(`,"domain":"`)); has {
			domain, rest, ok1 = bytes.Cut(named, []byte(`"`))
		}
		digits, ok2 := bytes.CutPrefix(rest, []byte(`,"seq":`))
		digits, ok3 := bytes.CutSuffix(digits, []byte(`}`))
		//guard:a-stream-without-a-name-stored-nothing 5 true
		if seq, number := parseNumber(digits); ok && ok1 && ok2 && ok3 && isName(name) && isPlain(name) && isPlain(domain) && number {
			return ack{stream: name, domain: domain, seq: seq}, nil
		}
	}
	var answer struct {
		Stream    string `json:"stream"`
		Domain    string `json:"domain"`
		Sequence  uint64 `json:"seq"`
		Duplicate bool   `json:"duplicate"`
		Error     *struct {
			Code        int    `json:"err_code"`
			Status      int    `json:"code"`
			Description string `json:"description"`
		} `json:"error"`
	}
	err := json.Unmarshal(data, &answer)
	named := isName([]byte(answer.Stream))
	a := ack{stream: []byte(answer.Stream), domain: []byte(answer.Domain), seq: answer.Sequence, duplicate: answer.Duplicate}
	switch {
	case err == nil && answer.Error != nil && named: // the server names the stream in each error, and other programs answer with errors too
		return a, &BrokerError{Code: answer.Error.Code, Status: answer.Error.Status, Description: answer.Error.Description}
	case err == nil && answer.Error == nil && named && answer.Sequence > 0: // check both, because another program could answer on the subject
		return a, nil
	}
	return ack{}, fmt.Errorf("%w: the answer cannot be read", broker.ErrUnacknowledged)
}

// maxName is the length of the longest name of a stream.
const maxName = 255

// isName reports whether a stream can have the name, which becomes a part of a subject. The server
// closes the connection if a subject is longer than it allows.
func isName(name []byte) bool {
	//guard:a-name-that-is-too-long-breaks-no-connection 2 true
	return len(name) > 0 && len(name) <= maxName && !bytes.ContainsAny(name, " \t\r\n\f.*>/\\")
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
