package outbound

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// Protocol says how a vendor gets the key of an operation, and what its answers mean. The zero
// value sends the key unchanged in an Idempotency-Key header. If this package has no function for a
// vendor, start from the zero value or from [BodyField].
type Protocol struct {
	// Header carries the key.
	//
	// Defaults to Idempotency-Key if Field is empty.
	Header string

	// Field is the member of the request's JSON object that carries the key. The Transport reads
	// the body into memory, up to Config.MaxBody, and adds the member. The rest of the body stays
	// the same, byte for byte.
	Field string

	// Keyless says that the vendor accepts no key. The Transport sends no key, even if the
	// operation has a key. It repeats a request that is not idempotent only if nothing was sent.
	Keyless bool

	// Format converts a key into the form that the vendor gets. It must always return the same
	// result for the same key. If Format is nil, the vendor gets the key unchanged.
	Format func(key string) string

	// MaxLen is how many bytes a key may have. The Transport checks the result of Format.
	//
	// Defaults to 255.
	MaxLen int

	// Busy lists statuses that may mean that a call with this key is running. Such a status does
	// not prove that the vendor did nothing. The same is true for 409, which need not be in Busy.
	// If a key was sent, ForHandler makes an error with a status in Busy permanent only if the
	// decision is Stop, and never makes an error with 409 permanent.
	Busy []int

	// Decide says whether to try again after a response, if Config.Decide is nil or returned
	// Undecided. Decide must not read the body. If neither function decides, the status decides.
	Decide func(resp *http.Response) Decision
}

// Decision says whether to try again after an attempt.
type Decision int

// The decisions. Retry alone does not lead to another attempt: an attempt, time and budget must be
// left, and it must be safe to repeat the call.
const (
	Undecided Decision = iota // no decision: Config.Decide leaves it to Protocol.Decide, and Protocol.Decide to the status
	Retry                     // another attempt may end differently
	Stop                      // another attempt would end the same way
)

// Stripe is the protocol of Stripe: keys of up to 255 characters, and a header that
// says whether to retry.
func Stripe() Protocol {
	return Protocol{Decide: func(resp *http.Response) Decision {
		switch resp.Header.Get("Stripe-Should-Retry") {
		case "true":
			return Retry
		case "false":
			return Stop
		}
		return Undecided
	}}
}

// Adyen is the protocol of Adyen: keys of up to 64 characters, and a header that says that a
// failure is transient. Adyen does not store such a failure under the key.
func Adyen() Protocol {
	return Protocol{MaxLen: 64, Busy: []int{http.StatusUnprocessableEntity}, Decide: func(resp *http.Response) Decision {
		if resp.Header.Get("transient-error") == "true" {
			return Retry
		}
		if resp.StatusCode == http.StatusConflict {
			return Stop
		}
		return Undecided
	}}
}

// PayPal is the protocol of PayPal: the key goes into PayPal-Request-Id.
func PayPal() Protocol { return Protocol{Header: "PayPal-Request-Id", MaxLen: 108} }

// AmazonPay is the protocol of Amazon Pay, whose keys have up to 32 characters.
func AmazonPay() Protocol { return Protocol{Header: "x-amz-pay-idempotency-key", MaxLen: 32} }

// Square is the protocol of Square: the key is a member of the body and has up to 45 characters.
func Square() Protocol { return Protocol{Field: "idempotency_key", MaxLen: 45} }

// Draft is the protocol of the IETF draft: the Idempotency-Key header has the key in quotes.
func Draft() Protocol {
	return Protocol{Format: func(key string) string {
		return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
	}}
}

// BodyField is the protocol of a vendor that expects the key as a member of the JSON object in the
// request's body.
func BodyField(name string) Protocol { return Protocol{Field: name} }

// MessageID is the protocol of a mail service that recognises a message by its id. The
// header has the form <key@domain>.
func MessageID(header, domain string) Protocol {
	return Protocol{Header: header, Format: func(key string) string { return "<" + key + "@" + domain + ">" }}
}

// NoKeys is the protocol of a vendor that accepts no keys. Make calls that are not idempotent in a
// step with receipts: inbox.Step or idempotency.Call. Give the step a Lookup if
// the vendor can be asked.
func NoKeys() Protocol { return Protocol{Keyless: true} }

// header returns the header that carries the key, or "".
func (p Protocol) header() string {
	switch {
	case p.Keyless || p.Field != "":
		return ""
	case p.Header == "":
		return "Idempotency-Key"
	}
	return p.Header
}

// format returns the key in the form that is sent.
func (p Protocol) format(key string) (string, error) {
	if p.Format != nil {
		key = p.Format(key)
	}
	limit := p.MaxLen
	if limit == 0 {
		limit = 255
	}
	//guard:a-format-leaves-a-key 1 false
	if key == "" || len(key) > limit {
		return "", fmt.Errorf("the key has %d bytes in the form that is sent, but the vendor accepts 1 to %d", len(key), limit)
	}
	for _, c := range []byte(key) {
		//guard:a-key-is-printable false
		if c <= ' ' || c > '~' {
			return "", errors.New("the key has white space, control characters, or characters that are not ASCII")
		}
	}
	return key, nil
}

func (p Protocol) validate() error {
	var faults []error
	if p.Header != "" && !isToken(p.Header) {
		faults = append(faults, fmt.Errorf("config: Protocol: Header %.40q is not a header name", p.Header))
	}
	if isOfMessage(p.Header) {
		faults = append(faults, fmt.Errorf("config: Protocol: Header %q cannot carry a key", p.Header))
	}
	if p.Header != "" && p.Field != "" {
		faults = append(faults, errors.New("config: Protocol: Header and Field are both set, want only one of them"))
	}
	if p.Keyless && (p.Header != "" || p.Field != "") {
		faults = append(faults, errors.New("config: Protocol: Keyless is set together with Header or Field"))
	}
	if p.MaxLen < 0 {
		faults = append(faults, fmt.Errorf("config: Protocol: MaxLen is %d, want more than 0", p.MaxLen))
	}
	return errors.Join(faults...)
}

// isToken reports whether s can be the name of a header.
func isToken(s string) bool {
	for _, c := range []byte(s) {
		alnum := c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
		if !alnum && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return s != ""
}

// isOfMessage reports whether net/http itself sets a header, or leaves it out, so that a request of
// a caller cannot have it.
func isOfMessage(name string) bool {
	switch http.CanonicalHeaderKey(name) {
	case "Host", "Content-Length", "Transfer-Encoding", "Trailer", "Connection", "Keep-Alive", "Proxy-Connection", "Te", "Upgrade":
		return true
	}
	return false
}

// digestOf returns a digest of a key, for logs that must not show the key.
func digestOf(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:4])
}
