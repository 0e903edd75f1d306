package outbound

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"net/http"
)

type (
	keyOf      struct{}
	repeatable struct{}
	attemptOf  struct{}
	resultOf   struct{}
	lastOf     struct{} // a **operation: the last of a call that follows redirects
)

// WithKey gives the operations that are called with the returned context a key, in
// place of any other that their requests have: clients of vendors put one of their own
// there, which does not outlive the process. One key names one operation: do not
// call two with it. It is sent with all methods but GET, HEAD, OPTIONS and TRACE.
func WithKey(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, keyOf{}, key)
}

// NewKey returns a new key: 32 hexadecimal digits, by chance. Make it once for an
// operation, and keep it if the operation has to outlive the process.
func NewKey() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// Repeatable says that requests with the returned context may be sent again whatever
// their method, such as a search by POST.
func Repeatable(ctx context.Context) context.Context {
	return context.WithValue(ctx, repeatable{}, true)
}

func isSafe(method string) bool {
	switch method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}

func isIdempotent(method string) bool {
	return isSafe(method) || method == http.MethodPut || method == http.MethodDelete
}

// chooseKey settles on the key of an operation, before its first attempt. The names that it
// returns beside an error are those of what could not be sent.
func (c *Config) chooseKey(req *http.Request, b *body, from origin) (keys, error) {
	p := c.Protocol
	if p.Keyless || isSafe(req.Method) || from.foreign {
		return keys{}, nil // a header that the caller set stays where it is not foreign
	}
	given, _ := req.Context().Value(keyOf{}).(string)
	switch {
	case given != "":
	case from.earlier != nil && from.earlier.key != "":
		given = from.earlier.key
	case p.header() != "" && len(req.Header.Values(p.header())) > 0:
		sent := req.Header.Get(p.header())
		if sent == "" || len(req.Header.Values(p.header())) > 1 {
			return keys{sent, sent}, errors.New("the request's header with the key is empty or is there twice")
		}
		return keys{sent, sent}, nil
	case p.Field != "":
		if given = b.member(p.Field); given != "" {
			return keys{given, given}, nil
		}
	}
	if given == "" && c.GenerateKeys && !isIdempotent(req.Method) {
		given = NewKey()
	}
	if given == "" {
		return keys{}, nil
	}
	sent, err := p.format(given)
	return keys{given, sent}, err
}

// shown is the key as logs and spans have it.
func (k keys) shown(redacted bool) string {
	if k.key != "" && redacted {
		return digestOf(k.key)
	}
	return k.key
}
