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
	lastOf     struct{} // a **operation: the last operation of a call that follows redirects
)

// WithKey returns a context whose operation has the given key. This key replaces a key in the
// request, because client libraries of vendors set a key there that is lost if the process
// restarts. Use a key for one operation only. The Transport sends the key with all methods except
// GET, HEAD, OPTIONS and TRACE.
func WithKey(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, keyOf{}, key)
}

// NewKey returns a new random key of 32 hexadecimal digits. Make a key for each operation. Store it
// if the operation must survive a restart of the process.
func NewKey() string {
	var b [16]byte
	rand.Read(b[:]) // Read never fails
	return hex.EncodeToString(b[:])
}

// Repeatable returns a context for requests that are safe to repeat, with any method: for instance
// a search by POST. The Transport may send these requests again.
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

// chooseKey chooses the key of an operation before its first attempt. If it returns an
// error, it also returns the key that could not be sent.
func (c *Config) chooseKey(req *http.Request, b *body, from origin) (keys, error) {
	p := c.Protocol
	//guard:no-key-abroad-no-repetition 3 false
	if p.Keyless || isSafe(req.Method) || from.foreign {
		return keys{}, nil // setHeaders removes the caller's key, unless a safe method calls the first host
	}
	if from.earlier != nil && from.earlier.sent != "" {
		//guard:a-redirect-keeps-the-key do sent, err := p.format(from.earlier.key); return keys{from.earlier.key, sent}, err
		return from.earlier.keys, nil // the key is unchanged, because the caller may have formatted the key
	}
	given, _ := req.Context().Value(keyOf{}).(string)
	lines := linesOf(req.Header, p.header())
	switch {
	case given != "":
	case len(lines) > 0:
		sent := lines[0]
		//guard:one-key-and-no-other 2 false
		//guard:no-empty-key 1 false
		if sent == "" || len(lines) > 1 {
			return keys{sent, sent}, errors.New("the request's header with the key is empty, or the request has it twice")
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

// shown returns the form of the key for logs and spans.
func (k keys) shown(redacted bool) string {
	if k.key != "" && redacted {
		return digestOf(k.key)
	}
	return k.key
}
