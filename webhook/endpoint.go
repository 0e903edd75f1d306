package webhook

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/text"
)

// Endpoint describes a URL to which a [Sender] sends webhooks. It does not contain the secrets.
type Endpoint struct {
	ID        string    `json:"id"`
	Account   string    `json:"account,omitempty"`
	URL       string    `json:"url"`
	Types     []string  `json:"types,omitempty"` // types of the events to send; none means all types
	CreatedAt time.Time `json:"created_at"`
	RotatedAt time.Time `json:"rotated_at,omitzero"` // when the secret of the endpoint last changed

	// DisabledAt is zero if the endpoint is enabled.
	DisabledAt     time.Time `json:"disabled_at,omitzero"`
	DisabledReason string    `json:"disabled_reason,omitempty"`

	// FailingSince is the time of the first failed attempt since the last success, or since the
	// last call of Enable. It is zero if no attempt has failed since then.
	FailingSince time.Time `json:"failing_since,omitzero"`

	// PausedUntil is when the endpoint's pause ends. An endpoint is paused if it fails, or if it
	// asked for a pause.
	PausedUntil time.Time `json:"paused_until,omitzero"`

	// LastStatus and LastAt are the HTTP status and the time of the last recorded attempt. The
	// sender records each failure of the endpoint. It records a success only if no attempt was
	// recorded yet, or if the last recorded attempt failed. LastStatus is 0 if there was no answer.
	// LastAt is zero before the first attempt.
	LastStatus int       `json:"last_status,omitempty"`
	LastAt     time.Time `json:"last_at,omitzero"`
}

// EndpointSpec is the argument of [Endpoints.Add]. Only URL is required.
type EndpointSpec struct {
	// ID identifies the endpoint for ever: up to 128 letters, digits, '.', '_', '-' and ':'.
	//
	// Defaults to a random id.
	ID string

	// Account is the account that owns the endpoint, up to 255 bytes: a value that the header of an
	// event can have, so it has no control character, and no white space at its ends. The sender
	// sends an event to the endpoints of the event's account: see SenderConfig.AccountHeader.
	//
	// Defaults to the empty account.
	Account string

	// URL is where requests go: https, without a user or a fragment, at most 2,048 bytes. The
	// sender checks the port and the address when it connects.
	URL string

	// Types are the types of events to send to the endpoint.
	//
	// Defaults to all types.
	Types []string

	// Secret is the key that signs: whsec_, and then 16 to 64 bytes in base64.
	//
	// Defaults to 32 random bytes.
	Secret Secret
}

// Secret is a key that signs webhooks, in the form that its receiver gets: whsec_ and base64. If
// you format or log a Secret s, you get REDACTED; string(s) is the secret.
type Secret string

// String returns REDACTED.
func (Secret) String() string { return "REDACTED" }

// GoString returns REDACTED.
func (Secret) GoString() string { return "REDACTED" }

// LogValue returns REDACTED.
func (Secret) LogValue() slog.Value { return slog.StringValue("REDACTED") }

const (
	secretPrefix = "whsec_"
	leastSecret  = 16 // in bytes
	mostSecret   = 64
	newSecret    = 32
)

// makeSecret returns a random secret.
func makeSecret() Secret {
	key := make([]byte, newSecret)
	_, _ = rand.Read(key) // this never fails
	return Secret(secretPrefix + base64.StdEncoding.EncodeToString(key))
}

// key returns the bytes of a secret. Its error contains no part of the secret.
func (s Secret) key() ([]byte, error) {
	encoded, ok := strings.CutPrefix(string(s), secretPrefix)
	key, err := base64.StdEncoding.DecodeString(encoded)
	switch {
	case !ok || err != nil:
		return nil, errors.New("the secret is not whsec_ followed by base64")
	case len(key) < leastSecret || len(key) > mostSecret:
		return nil, fmt.Errorf("the secret has %d bytes, want %d to %d", len(key), leastSecret, mostSecret)
	}
	return key, nil
}

// checkURL parses an endpoint's URL. Its error contains no part of the URL.
func checkURL(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	switch {
	case err != nil || len(address) > 2048 || !text.Valid(address):
		return nil, errors.New("the URL is not valid, or has more than 2048 bytes")
	case u.Scheme != "https":
		return nil, errors.New("the URL does not begin with https://")
	case u.User != nil:
		return nil, errors.New("the URL contains a user")
	case u.Hostname() == "" || u.Fragment != "" || u.Opaque != "":
		return nil, errors.New("the URL has no host, or has a fragment")
	}
	return u, nil
}

func (e EndpointSpec) validate() error {
	var faults []error
	if !isEndpointID(e.ID) {
		faults = append(faults, errors.New("field ID must be 1 to 128 letters, digits, '.', '_', '-' and ':'"))
	}
	if len(e.Account) > 255 {
		faults = append(faults, errors.New("field Account must be at most 255 bytes long"))
	}
	//guard:webhook-an-account-is-a-header-that-an-event-can-have false
	if fault, ok := errors.AsType[*postroom.FieldError](postroom.Event{Type: "a", Headers: map[string]string{"a": e.Account}}.Validate()); ok {
		faults = append(faults, fmt.Errorf("field Account %s: no event can have this header", fault.Problem))
	}
	if _, err := checkURL(e.URL); err != nil {
		faults = append(faults, fmt.Errorf("field URL: %w", err))
	}
	for _, t := range e.Types {
		if !isEventType(t) {
			faults = append(faults, fmt.Errorf("field Types: %.100q is not a valid event type", t))
		}
	}
	if _, err := e.Secret.key(); err != nil {
		faults = append(faults, err)
	}
	return errors.Join(faults...)
}

func isEventType(t string) bool {
	return t != "" && (postroom.Event{Type: t}).Validate() == nil
}

func isEndpointID(id string) bool {
	return id != "" && len(id) <= 128 && !strings.ContainsFunc(id, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && !strings.ContainsRune("._-:", r)
	})
}
