package idempotency

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/postroom/postroom/idempotency/internal/fingerprint"
	"github.com/postroom/postroom/idempotency/internal/header"
	"github.com/postroom/postroom/internal/text"
)

// Key identifies one operation. All three parts count: the same value from another caller, or in
// another scope, is another key.
type Key struct {
	// Scope is the name of the operation: method and route, or the name of a job. The wildcards of a
	// route have no names: POST /orders/{}/pay.
	Scope string

	// Principal is the caller. In a Key that this package returns, it may be a digest of the caller's
	// name. [Guard.Get] and [Guard.Delete] accept such a Key, but not a copy of its text.
	Principal string

	// Value is the key that the caller chose.
	Value string

	digested bool // Principal is a digest
}

const (
	defaultKeyLen = 128
	maxKeyLen     = 255
	maxPartLen    = 255 // the limit in bytes of each part of a Key
)

// check returns the faults of a key.
func (k Key) check() error {
	var faults []error
	for _, part := range []struct{ name, value string }{{"Scope", k.Scope}, {"Principal", k.Principal}, {"Value", k.Value}} {
		switch {
		case part.value == "":
			faults = append(faults, fmt.Errorf("key: %s is empty", part.name))
		case len(part.value) > maxPartLen || !text.Valid(part.value):
			faults = append(faults, fmt.Errorf("key: %s is longer than %d bytes, or not valid text", part.name, maxPartLen))
		}
	}
	return errors.Join(faults...)
}

// stored returns a key in its stored form. The stored principal is a digest if the principal is
// long, is not valid text or looks like a digest, or if the parameter hash is set. A principal that
// looks like a digest could otherwise equal the digest of another principal.
//
// The result other is the principal in the form that it would have with the opposite of hash. It
// equals the stored one if there is only one form. Rows that were stored before the setting changed
// have this form.
func (k Key) stored(hash bool) (_ Key, other string) {
	name, digest := k.Principal, k.digest()
	if k.digested || len(name) > maxPartLen || !text.Valid(name) || isDigest(name) {
		k.Principal, k.digested = digest, true
		return k, digest
	}
	if hash {
		k.Principal, k.digested = digest, true
		return k, name
	}
	return k, digest
}

// digest returns the digest of the principal.
func (k Key) digest() string {
	if k.digested {
		return k.Principal
	}
	sum := sha256.Sum256([]byte(k.Principal))
	return hex.EncodeToString(sum[:])
}

// isDigest reports whether s could be the digest of a principal.
func isDigest(s string) bool {
	return len(s) == 2*sha256.Size && strings.Trim(s, "0123456789abcdef") == ""
}

// lock returns the number of the advisory lock that keeps two transactions from running the same
// operation. Two operations can have the same number by chance. Then the guard may sometimes answer
// that a request is in progress although that is not so. Nothing worse happens. The number does not
// depend on HashPrincipal, so that processes with different settings exclude each other.
func (k Key) lock(schemaName string) int64 {
	h := sha256.New()
	//guard:processes-with-two-settings-exclude-each-other 4 = k.Principal
	for _, part := range [...]string{"postroom.idempotency", schemaName, k.Scope, k.digest(), k.Value} {
		fingerprint.WriteField(h, part)
	}
	var sum [sha256.Size]byte
	return int64(binary.BigEndian.Uint64(h.Sum(sum[:0])))
}

// DeriveKey returns a key for a step of the operation whose key is parent. The same parent and step
// always result in the same key. Another parent or step results in another key. The key has 32
// lower-case hexadecimal digits, which every vendor accepts.
func DeriveKey(parent, step string) string {
	h := sha256.New()
	fingerprint.WriteField(h, parent)
	fingerprint.WriteField(h, step)
	return hex.EncodeToString(h.Sum(nil)[:16])
}

var (
	// ErrMissingKey says that a request has no key.
	ErrMissingKey = header.ErrMissing

	// ErrInvalidKey says that a request's key does not have the required form.
	ErrInvalidKey = header.ErrInvalid
)

// KeyFormat says which keys a guard accepts. The zero value accepts what clients commonly send.
type KeyFormat struct {
	// MaxLen is the longest accepted key in bytes. It may be at most 255.
	//
	// Defaults to 128.
	MaxLen int

	// Strict accepts only the form that the IETF draft allows: a quoted string of RFC 9651, which
	// may contain spaces. Without Strict, a key without quotes is accepted too, and is the same key
	// as with quotes.
	Strict bool

	// Match, if set, must accept the key too: [UUID], [UUIDv4], or the MatchString of a regexp.
	Match func(key string) bool
}

var uuidForm = regexp.MustCompile(`^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-([0-9a-fA-F])[0-9a-fA-F]{3}-([0-9a-fA-F])[0-9a-fA-F]{3}-[0-9a-fA-F]{12}$`)

// UUID reports whether a key is a UUID in its usual form.
func UUID(key string) bool { return uuidForm.MatchString(key) }

// UUIDv4 reports whether a key is a random UUID.
func UUIDv4(key string) bool {
	parts := uuidForm.FindStringSubmatch(key)
	return parts != nil && parts[1] == "4" && strings.Contains("89abAB", parts[2])
}

// parse returns the key in the lines of a header. Its errors match [ErrMissingKey] if there are no
// lines, and [ErrInvalidKey] otherwise. They do not quote the key.
func (f KeyFormat) parse(lines []string) (string, error) {
	return header.Parse(lines, header.Form{MaxLen: cmp.Or(f.MaxLen, defaultKeyLen), Strict: f.Strict, Match: f.Match})
}
