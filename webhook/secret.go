package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"slices"
)

// mostSignatures is how many signatures a request may have. A provider sends one signature for each
// of its secrets.
const mostSignatures = 16

// keys has the decoded secrets of a scheme, or the fault of these secrets.
type keys struct {
	all   [][]byte
	fault error
}

// textKeys returns the keys of secrets that are not encoded.
func textKeys(secrets []string) keys {
	k := keys{}
	for _, s := range secrets {
		k.all = append(k.all, []byte(s))
	}
	return k.checked()
}

func (k keys) checked() keys {
	//guard:webhook-empty-secret 2 false
	if k.fault == nil && (len(k.all) == 0 || slices.ContainsFunc(k.all, func(key []byte) bool { return len(key) == 0 })) {
		k.fault = ErrNoSecret
	}
	return k
}

// sum returns the HMAC-SHA256 of a text with one key. The text is in parts.
func sum(key []byte, parts ...[]byte) []byte {
	mac := hmac.New(sha256.New, key)
	for _, p := range parts {
		_, _ = mac.Write(p) // a hash never fails
	}
	return mac.Sum(nil)
}

// matches reports whether one of the signatures is that of a text with one of the keys. It compares
// all signatures in constant time, so that an attacker learns nothing from the time.
func (k keys) matches(signatures [][]byte, parts ...[]byte) bool {
	found := 0
	for _, key := range k.all {
		want := sum(key, parts...)
		for _, got := range signatures {
			if hmac.Equal(want, got) {
				found++
			}
		}
	}
	return found > 0
}

// verify returns an error if no signature fits the text. A signature that could not be decoded is
// nil in the slice signatures.
func (k keys) verify(signatures [][]byte, parts ...[]byte) error {
	if len(signatures) == 0 {
		return refused(NoSignature)
	}
	//guard:webhook-signature-is-compared 2 false
	if len(signatures) > mostSignatures || !k.matches(signatures, parts...) {
		return refused(WrongSignature)
	}
	return nil
}
