package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Headers of Standard Webhooks 1.0.0.
const (
	headerID        = "Webhook-Id"
	headerTimestamp = "Webhook-Timestamp"
	headerSignature = "Webhook-Signature"
)

const (
	// tolerance is how far a webhook's time may be from ours, in both directions.
	// It bounds for how long a webhook that somebody recorded can be sent again.
	tolerance = 5 * time.Minute

	secretPrefix = "whsec_"
	maxWebhookID = 255
)

// errUnverified matches every reason to refuse a webhook. The sender is told no
// more than that: which part was wrong is for the log.
var errUnverified = errors.New("webhook is not verified")

// verifier checks signatures: HMAC-SHA256 over id, time and body.
type verifier struct {
	keys [][]byte
	now  func() time.Time
}

// newVerifier returns a verifier that takes each of the secrets, as the provider
// shows them (whsec_…). While a secret is exchanged there are two.
func newVerifier(secrets ...string) (*verifier, error) {
	v := &verifier{now: time.Now}
	for _, secret := range secrets {
		key, err := decodeSecret(secret)
		if err != nil {
			return nil, err
		}
		v.keys = append(v.keys, key)
	}
	if len(v.keys) == 0 {
		return nil, errors.New("no webhook secret is given")
	}
	return v, nil
}

func decodeSecret(secret string) ([]byte, error) {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, secretPrefix))
	if err != nil || len(key) == 0 { // with an empty one everybody could sign
		return nil, errors.New("webhook secret is not whsec_ and base64")
	}
	return key, nil
}

// verify returns the id of a webhook whose signature and time are right. The body
// is the bytes as they came: parsed and written anew they would be others.
func (v *verifier) verify(h http.Header, body []byte) (string, error) {
	id, stamp := h.Get(headerID), h.Get(headerTimestamp)
	// The dot parts what is signed: with one in the id, two webhooks could share
	// a signature.
	if id == "" || len(id) > maxWebhookID || strings.Contains(id, ".") {
		return "", fmt.Errorf("%w: its id is missing or not one", errUnverified)
	}
	seconds, err := strconv.ParseUint(stamp, 10, 40)
	if err != nil {
		return "", fmt.Errorf("%w: its timestamp is missing or not one", errUnverified)
	}
	if !v.isSigned(h.Values(headerSignature), id, stamp, body) {
		return "", fmt.Errorf("%w: no signature matches", errUnverified)
	}
	age := v.now().Sub(time.Unix(int64(seconds), 0)) //nolint:gosec // 40 bits
	if age.Abs() > tolerance {
		return "", fmt.Errorf("%w: its timestamp is %s away", errUnverified, age.Round(time.Second))
	}
	return id, nil
}

// isSigned reports whether one of the signatures is by one of the keys. It tries
// all, and compares each in constant time: how long it takes tells nothing.
func (v *verifier) isSigned(headers []string, id, stamp string, body []byte) bool {
	match := false
	for _, key := range v.keys {
		want := mac(key, id, stamp, body)
		for _, entry := range strings.Fields(strings.Join(headers, " ")) {
			version, text, _ := strings.Cut(entry, ",")
			got, err := base64.StdEncoding.DecodeString(text)
			if version == "v1" && err == nil && hmac.Equal(got, want) { // other versions are for others
				match = true
			}
		}
	}
	return match
}

// sign returns the entry of the signature header for one secret. It is the
// provider's part, and that of tests.
func sign(key []byte, id, stamp string, body []byte) string {
	return "v1," + base64.StdEncoding.EncodeToString(mac(key, id, stamp, body))
}

func mac(key []byte, id, stamp string, body []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(id + "." + stamp + "."))
	h.Write(body)
	return h.Sum(nil)
}
