package webhook

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/postroom/postroom"
)

// Tolerance is how far the time of a request may be in the past or in the future, inclusive.
const Tolerance = 5 * time.Minute

// Scheme verifies the requests of a provider.
//
// If a scheme has a method SchemeName() string that returns the Message.Scheme of its messages,
// [Receiver.Check] can find types that none of its events has. All schemes of this package have it.
//
// It is an interface so that you can add a scheme without a change of this package.
type Scheme interface {
	// Verify verifies a request by its headers and the bytes of its body. The parameter now is the
	// time at which the request arrived. Verify does no I/O, does not keep or change its arguments,
	// and may be called concurrently.
	//
	// Verify returns a [*VerifyError] for a request that it refuses. If the scheme is not set up
	// correctly, Verify returns for each request an error that matches postroom.ErrUnrecoverable,
	// for instance [ErrNoSecret].
	Verify(h http.Header, body []byte, now time.Time) (Message, error)
}

// Message has the data that a scheme read from a verified request.
type Message struct {
	// Scheme is the scheme's name, such as "stripe". The types of the events begin with this name.
	Scheme string

	// ID is the provider's id. If the provider sends the request again, the id is the same. ID is
	// empty if the request has no id.
	ID string

	// Type is the provider's type, such as "charge.succeeded". It may be empty.
	Type string

	// Time is when the request was signed. It is zero if the scheme does not sign a time.
	Time time.Time

	// UnsignedType says that the signature does not cover Type, or not all of it, so an attacker who
	// captured a request can send it with another type. The receiver then compares only the bodies of
	// two requests with the same id.
	UnsignedType bool

	// Varies says that the provider may send the same event again with other content.
	Varies bool

	// Form says that the body is a form, although the provider's events are JSON. The cause is a
	// wrong setting at the provider, or a request that is not about an event.
	Form bool

	// Reply is the answer to a handshake: a request that is not about an event, for instance a test
	// of the endpoint. The receiver does not store handshakes. Reply is nil for any other request.
	Reply *Reply
}

// Reply is the body of the answer to a handshake.
type Reply struct {
	ContentType string
	Body        []byte
}

// Reason says why a request is refused. It appears in the log and in metrics. The sender never gets
// the reason.
type Reason string

// Reasons to refuse a request.
const (
	NoSignature    Reason = "no_signature"
	WrongSignature Reason = "wrong_signature"
	MalformedTime  Reason = "malformed_time"
	Stale          Reason = "stale"  // the request's time is more than [Tolerance] ago
	Future         Reason = "future" // the request's time is more than [Tolerance] in the future
	MalformedID    Reason = "malformed_id"
	RepeatedHeader Reason = "repeated_header" // the request repeats a header that it may have only once
	UnknownTenant  Reason = "unknown_tenant"
	OtherReason    Reason = "other" // a scheme returned an error that is not a [*VerifyError]
)

// VerifyError says why a scheme refuses a request.
type VerifyError struct {
	Reason Reason
}

// Error returns a text with the reason. The text contains no part of the request.
func (e *VerifyError) Error() string { return "webhook: request refused: " + string(e.Reason) }

// ErrNoSecret says that a scheme has no secret, or an empty secret. The error matches
// postroom.ErrUnrecoverable.
var ErrNoSecret = postroom.Unrecoverable(errors.New("webhook: the scheme has no secret, or an empty secret"))

func refused(why Reason) error { return &VerifyError{Reason: why} }

// fault returns the error of a scheme that is not set up correctly.
func fault(format string, args ...any) error {
	return postroom.Unrecoverable(fmt.Errorf("webhook: "+format, args...))
}

// IDFromBody returns a scheme that verifies as s does, and uses a digest of the body as the id.
// GitHub and Shopify do not sign the id of a delivery: an attacker who captured a request can send
// it again with a new id, and it takes effect again. With IDFromBody the second request is a
// duplicate, even if it has another type, which these two providers do not sign either. But two events with equal bodies are then one event. So use IDFromBody only if each
// body is unique, for instance because it has an id and a time.
func IDFromBody(s Scheme) Scheme { return bodyID{s} }

type bodyID struct{ Scheme }

func (b bodyID) Verify(h http.Header, body []byte, now time.Time) (Message, error) {
	m, err := b.Scheme.Verify(h, body, now)
	if err != nil {
		return Message{}, err
	}
	sum := sha256.Sum256(body)
	m.ID = "sha256-" + hex.EncodeToString(sum[:])
	return m, nil
}

// SchemeName returns the name of the wrapped scheme, or "" if that scheme does not tell it.
func (b bodyID) SchemeName() string { return schemeName(b.Scheme) }

func (b bodyID) sign(h http.Header, m Message, body []byte) error { return Sign(b.Scheme, h, m, body) }

// signer is a scheme that can also sign.
type signer interface {
	sign(h http.Header, m Message, body []byte) error
}

// Sign sets the headers with which the provider of a scheme would send m and body, for tests of an
// endpoint. [Standard] and [Stripe] sign with all secrets. The other schemes sign with the first
// secret. If the scheme has headers for ID, Type or Time, Sign takes their values from m. Sign
// fails for a scheme of another package, and for a scheme that has only a public key.
func Sign(s Scheme, h http.Header, m Message, body []byte) error {
	if s, ok := s.(signer); ok {
		return s.sign(h, m, body)
	}
	return fault("cannot sign for a scheme of type %T", s)
}

// header returns the value of a header that a request must not repeat. The value is empty if the
// request does not have the header, or if name is the path of a member of the body.
func header(h http.Header, name string) (string, error) {
	switch values := h.Values(name); len(values) {
	case 0:
		return "", nil
	case 1:
		return values[0], nil
	}
	return "", refused(RepeatedHeader)
}

// headers returns the values of headers that a request must not repeat.
func headers(h http.Header, names ...string) ([]string, error) {
	values := make([]string, len(names))
	for i, name := range names {
		var err error
		if values[i], err = header(h, name); err != nil {
			return nil, err
		}
	}
	return values, nil
}

// seconds parses a Unix time, which consists only of digits. Each time has one form, without zeros in
// front: otherwise a zero at the end of a body could move to the time behind the body.
func seconds(s string) (int64, error) {
	//guard:webhook-time-has-one-form 3 false
	if s == "" || len(s) > 11 || s[0] == '0' && len(s) > 1 {
		return 0, refused(MalformedTime)
	}
	var n int64
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return 0, refused(MalformedTime)
		}
		n = n*10 + int64(c-'0')
	}
	return n, nil
}

// fresh refuses a time too far from now. It compares both times in whole seconds.
func fresh(at int64, now time.Time) error {
	switch away := now.Unix() - at; {
	case away > int64(Tolerance/time.Second):
		return refused(Stale)
	//guard:webhook-time-is-checked-both-ways false
	case -away > int64(Tolerance/time.Second):
		return refused(Future)
	}
	return nil
}

// checkID refuses an id that an event cannot have. It accepts an empty id. In place of what is not UTF-8 in a
// body, an id has a RuneError, so that two ids could become one.
func checkID(id string) error {
	//guard:a-webhooks-id-is-not-that-of-another 2 = !utf8.ValidString(id)
	if len(id) > postroom.MaxID || strings.ContainsRune(id, utf8.RuneError) || strings.Contains(id, "#") ||
		strings.ContainsFunc(id, func(r rune) bool { return unicode.IsControl(r) || unicode.IsSpace(r) }) {
		return refused(MalformedID)
	}
	return nil
}

// members has the members of a JSON object. In names, case makes a difference.
type members map[string]json.RawMessage

// object returns the members of a body, or none if the body is not a JSON object.
func object(body []byte) members {
	var m members
	if json.Unmarshal(body, &m) != nil {
		return nil
	}
	return m
}

// text returns the text of a member that is a string or a number, and otherwise "".
func (m members) text(name string) string {
	raw := m[name]
	if len(raw) == 0 || raw[0] != '"' {
		if len(raw) > 0 && (raw[0] == '-' || raw[0] >= '0' && raw[0] <= '9') {
			return string(raw)
		}
		return ""
	}
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

// at returns the member at the end of a path: names with dots between them.
func (m members) at(path string) string {
	for {
		name, rest, more := strings.Cut(path, ".")
		if !more {
			return m.text(name)
		}
		m, path = object(m[name]), rest
	}
}

// isForm reports whether a request declares that its body is a form. Programs such as curl declare
// this for any body, so a body that is a JSON object does not count as a form.
func isForm(h http.Header, o members) bool {
	media, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	return strings.EqualFold(strings.TrimSpace(media), "application/x-www-form-urlencoded") && o == nil
}
