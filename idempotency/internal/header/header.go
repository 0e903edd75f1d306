// Package header reads the idempotency key from the lines of a request's header, and checks the names
// of headers.
package header

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/dunglas/httpsfv"
)

var (
	// ErrMissing says that the request does not have the header.
	ErrMissing = errors.New("the request has no key")

	// ErrInvalid says that the key does not have the required form.
	ErrInvalid = errors.New("the key is not valid")
)

// IsToken reports whether s is a token of RFC 9110, as header names and methods are.
func IsToken(s string) bool {
	return s != "" && strings.Trim(s, "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
}

// IsOfMessage reports whether net/http itself sets a header, or leaves it out, so that no handler and
// no client can use it.
func IsOfMessage(name string) bool {
	switch http.CanonicalHeaderKey(name) {
	case "Host", "Content-Length", "Transfer-Encoding", "Trailer", "Connection", "Keep-Alive", "Proxy-Connection", "Te", "Upgrade":
		return true
	}
	return false
}

// Form says which keys are accepted.
type Form struct {
	MaxLen int                   // the longest accepted key, in bytes
	Strict bool                  // if true, only strings of RFC 9651 in quotes are accepted
	Match  func(key string) bool // if set, this function must accept the key too
}

// Parse returns the key in the lines. Its errors do not quote the key.
func Parse(lines []string, f Form) (string, error) {
	switch {
	case len(lines) == 0:
		return "", ErrMissing
	case len(lines) > 1:
		return "", fmt.Errorf("%w: it is sent %d times", ErrInvalid, len(lines))
	}
	line := strings.Trim(lines[0], " ")
	key := line
	if strings.HasPrefix(line, `"`) {
		item, err := httpsfv.UnmarshalItem([]string{line})
		value, ok := item.Value.(string)
		if err != nil || !ok {
			return "", fmt.Errorf("%w: it is not a string of RFC 9651, such as \"8e03978e\"", ErrInvalid)
		}
		key = value
	} else if f.Strict {
		return "", fmt.Errorf("%w: it must be in quotes", ErrInvalid)
	} else if strings.HasPrefix(line, "'") || strings.ContainsAny(line, `",`) {
		return "", fmt.Errorf("%w: without quotes around it, it must not contain a quote or a comma", ErrInvalid)
	}
	return key, f.check(key)
}

func (f Form) check(key string) error {
	lowest := byte(0x21)
	if f.Strict {
		lowest = 0x20
	}
	outside := func(r rune) bool { return r < rune(lowest) || r > 0x7e }
	switch {
	case strings.Trim(key, " ") == "":
		return fmt.Errorf("%w: it is blank", ErrInvalid)
	case len(key) > f.MaxLen:
		return fmt.Errorf("%w: it is longer than %d bytes", ErrInvalid, f.MaxLen)
	case strings.ContainsFunc(key, outside):
		return fmt.Errorf("%w: it contains a space, or a character that is not printable ASCII", ErrInvalid)
	case f.Match != nil && !f.Match(key):
		return fmt.Errorf("%w: it does not have the form that this operation requires", ErrInvalid)
	}
	return nil
}
