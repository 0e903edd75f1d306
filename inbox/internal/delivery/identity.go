package delivery

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/guard"
)

// Identify derives the dedupe key and the digest; the key with a user's function, unless
// that is nil, which has so much time.
func (d *Delivery) Identify(by func(postroom.Event) string, within time.Duration) {
	d.Key, d.Digest = dedupeKey(d.Event), digest(d.Event)
	if by != nil && d.Fault == nil {
		key, err := derive(by, within, d.Event)
		if err != nil {
			f := FailureOf(err)
			f.Class, f.Permanent = classDedupeKey, true
			d.Fault = &f
		} else {
			d.Key, d.Digest = Bounded(key), nil // one effect for each key, whatever the event says
		}
	}
	d.Flight = d.Key
}

// derive calls the subscription's function, which may be wrong: it panics, ends the
// goroutine, or does not return.
func derive(by func(postroom.Event) string, within time.Duration, ev postroom.Event) (string, error) {
	key, err := guard.Apart(within, func() (string, error) { return by(ev), nil })
	switch {
	case err != nil:
		return "", fmt.Errorf("DedupeKey: %w", err)
	case key == "" || guard.Clean(key, len(key)) != key:
		return "", errNoKey
	}
	return key, nil
}

var errNoKey = errors.New("DedupeKey returned an empty text, or one that is not UTF-8")

// dedupeKey is source and id. A source of ours has no white space in it; one
// that has must not be taken for another that ends earlier.
func dedupeKey(ev postroom.Event) string {
	return Bounded(strings.ReplaceAll(ev.Source, " ", "%20") + " " + ev.ID)
}

// MaxKey is the longest key that is kept as it is: the column takes 1,024 bytes,
// and a conflict adds its digest.
const MaxKey = 960

// Bounded shortens a key that the ledger does not take. Two that differ still do.
func Bounded(key string) string {
	if len(key) <= MaxKey {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return strings.ToValidUTF8(key[:512], "") + "… sha256:" + hex.EncodeToString(sum[:])
}

// digest is the first 16 bytes of SHA-256 over type and data.
func digest(ev postroom.Event) []byte {
	h := sha256.New()
	h.Write([]byte(ev.Type))
	h.Write([]byte{0}) // no type has it in it
	h.Write(ev.Data)
	return h.Sum(nil)[:16]
}
