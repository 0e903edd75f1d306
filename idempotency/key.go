package idempotency

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/postroom/postroom/idempotency/internal/fingerprint"
	"github.com/postroom/postroom/internal/text"
)

// Key names one logical operation. Its three parts together are what is unique: a value
// means nothing to another caller, or at another operation.
type Key struct {
	// Scope is the operation: method and route, or the name of a job.
	Scope string

	// Principal is the caller.
	Principal string

	// Value is what the caller chose.
	Value string
}

const (
	defaultKeyLen = 128
	maxKeyLen     = 255
	maxPartLen    = 255 // of scope and principal
)

// check returns what is wrong with a key that did not come over HTTP.
func (k Key) check() error {
	var faults []error
	for _, part := range []struct{ name, value string }{{"Scope", k.Scope}, {"Principal", k.Principal}, {"Value", k.Value}} {
		switch {
		case part.value == "":
			faults = append(faults, fmt.Errorf("key: %s is empty", part.name))
		case len(part.value) > maxPartLen || !text.Valid(part.value):
			faults = append(faults, fmt.Errorf("key: %s is longer than %d bytes, or no text", part.name, maxPartLen))
		}
	}
	return errors.Join(faults...)
}

// stored returns a key as the database has it: a principal that is a secret, is long or is
// no text is a digest there; and so is one that looks like a digest, which would else be
// the same as the principal that it is the digest of. hash has all of them be digests.
func (k Key) stored(hash bool) Key {
	if hash || len(k.Principal) > maxPartLen || !text.Valid(k.Principal) || isDigest(k.Principal) {
		sum := sha256.Sum256([]byte(k.Principal))
		k.Principal = hex.EncodeToString(sum[:])
	}
	return k
}

// isDigest reports whether s could be the digest of a principal.
func isDigest(s string) bool {
	return len(s) == 2*sha256.Size && strings.Trim(s, "0123456789abcdef") == ""
}

// lock is the number under which transactions keep each other from running the same
// operation. Two operations that share one would now and then be told that they run
// already, and no more.
func (k Key) lock(schemaName string) int64 {
	h := sha256.New()
	for _, part := range [...]string{"postroom.idempotency", schemaName, k.Scope, k.Principal, k.Value} {
		fingerprint.WriteField(h, part)
	}
	var sum [sha256.Size]byte
	return int64(binary.BigEndian.Uint64(h.Sum(sum[:0])))
}

// DeriveKey returns a key for a step of the operation with the given key: the same for
// the same two, and another for any other. It is 32 lower-case hexadecimal digits, which
// every vendor takes.
func DeriveKey(parent, step string) string {
	h := sha256.New()
	fingerprint.WriteField(h, parent)
	fingerprint.WriteField(h, step)
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// RunID returns the key of a scheduled job's run. It is made of the time at which the run
// was due, not of the one at which it began, so that every attempt at it has the same.
func RunID(job string, scheduled time.Time) string {
	return job + "@" + scheduled.UTC().Format(time.RFC3339Nano)
}

var (
	// ErrMissingKey says that a request has no key.
	ErrMissingKey = errors.New("the request has no key")

	// ErrInvalidKey says that a request's key is not of the form that is asked for.
	ErrInvalidKey = errors.New("the key is not valid")
)

// KeyFormat says which keys are taken. The zero value takes what clients commonly send.
type KeyFormat struct {
	// MaxLen is the most bytes of a key, 255 at the most.
	//
	// Defaults to 128.
	MaxLen int

	// Strict takes only what the IETF draft allows, a string in quotes as of RFC 9651;
	// it may hold spaces then. Otherwise a key without quotes is taken as well, and is
	// the same key.
	Strict bool

	// Match, if it is set, has the last word: [UUID], [UUIDv4], or the MatchString
	// of a regular expression.
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

// ParseKey returns the key that the lines of a header hold. Errors match
// [ErrMissingKey], if there is none, or [ErrInvalidKey]; they do not quote it.
func ParseKey(lines []string, f KeyFormat) (string, error) {
	switch {
	case len(lines) == 0:
		return "", ErrMissingKey
	case len(lines) > 1:
		return "", fmt.Errorf("%w: it is sent %d times", ErrInvalidKey, len(lines))
	}
	line := strings.Trim(lines[0], " ")
	key := line
	if strings.HasPrefix(line, `"`) {
		item, err := httpsfv.UnmarshalItem([]string{line})
		value, ok := item.Value.(string)
		if err != nil || !ok {
			return "", fmt.Errorf("%w: it is no string of RFC 9651, such as \"8e03978e\"", ErrInvalidKey)
		}
		key = value
	} else if f.Strict {
		return "", fmt.Errorf("%w: it has to stand in quotes", ErrInvalidKey)
	} else if strings.HasPrefix(line, "'") || strings.ContainsAny(line, `",`) {
		return "", fmt.Errorf("%w: without quotes it must not hold any, or a comma", ErrInvalidKey)
	}
	return key, f.check(key)
}

func (f KeyFormat) check(key string) error {
	most := f.MaxLen
	if most == 0 {
		most = defaultKeyLen
	}
	lowest := byte(0x21)
	if f.Strict {
		lowest = 0x20
	}
	outside := func(r rune) bool { return r < rune(lowest) || r > 0x7e }
	switch {
	case strings.Trim(key, " ") == "":
		return fmt.Errorf("%w: it is blank", ErrInvalidKey)
	case len(key) > most:
		return fmt.Errorf("%w: it is longer than %d bytes", ErrInvalidKey, most)
	case strings.ContainsFunc(key, outside):
		return fmt.Errorf("%w: it holds a space, or what is not printable ASCII", ErrInvalidKey)
	case f.Match != nil && !f.Match(key):
		return fmt.Errorf("%w: it is not of the form that this operation asks for", ErrInvalidKey)
	}
	return nil
}
