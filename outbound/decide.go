package outbound

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/postroom/postroom"
)

// Class says how an attempt ended.
type Class string

// The classes. An error that fits no other class has ClassConnection.
const (
	ClassConnection  Class = "connection"   // there was no connection, or it broke
	ClassTimeout     Class = "timeout"      // no answer in time, or 408
	ClassUnavailable Class = "unavailable"  // 5xx, or 1xx that is no answer: it is not known whether the vendor acted
	ClassRateLimited Class = "rate_limited" // 429
	ClassBusy        Class = "busy"         // 425, or 409 or 202 because a call with the key is running
	ClassConflict    Class = "conflict"     // any other 409
	ClassAuth        Class = "auth"         // 401, 403, 407
	ClassRedirect    Class = "redirect"     // 3xx that was not followed: the URL or the host is set up wrongly
	ClassInvalid     Class = "invalid"      // any other 4xx, and requests that cannot be sent
	ClassCanceled    Class = "canceled"     // the caller's context ended
	ClassBreaker     Class = "breaker"      // not tried, because the breaker was open
)

// classOf returns the class of a response, and whether another attempt may end differently. The
// class is "" if the response is not a failure.
func classOf(method string, resp *http.Response, told keyState) (Class, bool) {
	switch status := resp.StatusCode; {
	//guard:in-progress-is-no-success false
	case status == http.StatusAccepted && told == keyBusy:
		return ClassBusy, true
	case status == http.StatusNotModified && isSafe(method), status >= 200 && status < 300:
		return "", false
	//guard:an-upgrade-is-a-success false
	case status == http.StatusSwitchingProtocols && resp.Request != nil && resp.Request.Header.Get("Upgrade") != "":
		return "", false
	//guard:what-is-no-answer-is-no-success false
	case status < 200:
		return ClassUnavailable, false // for instance, an upgrade that was not asked for
	case status < 400:
		return ClassRedirect, false
	case status == http.StatusRequestTimeout:
		return ClassTimeout, true
	case status == http.StatusTooEarly:
		return ClassBusy, true
	case status == http.StatusTooManyRequests:
		return ClassRateLimited, true
	case status == http.StatusConflict:
		if told == keyBusy || resp.Header.Get("Retry-After") != "" {
			return ClassBusy, true
		}
		return ClassConflict, false
	case status == http.StatusUnauthorized, status == http.StatusForbidden, status == http.StatusProxyAuthRequired:
		return ClassAuth, false
	case status < 500:
		return ClassInvalid, false
	default:
		return ClassUnavailable, isOutage(status)
	}
}

// keyState says what a response's body says about the key of the request.
type keyState int

const (
	keyUntold keyState = iota
	keyBusy            // a call with the key is running
	keyUsed            // an earlier call had the key, and may have been carried out
	keyUnread          // the body may say one of these, but could not be read whole
)

// Ends of the codes with which services describe the state of a key, in lower case and with
// underscores. A guard of package idempotency has its own code at the end of the problem's type,
// even if Config.Codes replaces the code.
var (
	busyCodes = []string{
		"idempotency_in_progress",
		"idempotency_key_in_use",       // Stripe
		"previous_request_in_progress", // PayPal
	}
	usedCodes = []string{
		"idempotency_key_payload_mismatch", "replay_refused", "idempotency_response_unavailable",
		"idempotency_error",                 // Stripe
		"paypal_request_id_previously_used", // PayPal
		"idempotency_key_reused",            // Square
		"duplicateidempotencykey",           // Amazon Pay
	}
)

// readAtMost is how many bytes toldOf reads of a response's body.
const readAtMost = 16 << 10

// toldOf reads the start of a response's body, if a service may describe the state of a key there.
// A problem document with 202 is no result, so it counts as keyBusy, even with another code.
func toldOf(resp *http.Response) keyState {
	switch resp.StatusCode {
	case http.StatusAccepted, http.StatusBadRequest, http.StatusForbidden, http.StatusConflict, http.StatusUnprocessableEntity:
	default:
		return keyUntold
	}
	// Package mime refuses a type whose parameters are malformed. They do not matter here.
	media, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	media = strings.ToLower(strings.TrimSpace(media))
	if resp.Body == nil || media != "application/json" && !strings.HasSuffix(media, "+json") {
		return keyUntold
	}
	//guard:a-problem-is-read-in-part 1 = @1
	start, err := io.ReadAll(io.LimitReader(resp.Body, readAtMost))
	//guard:what-broke-off-is-not-whole 1.1.2 = io.LimitReader(@, 0)
	resp.Body = &prefixBody{Reader: io.MultiReader(bytes.NewReader(start), broken{err}, resp.Body), Closer: resp.Body}
	switch codes := codesIn(start); {
	//guard:a-problem-is-no-result false
	case resp.StatusCode == http.StatusAccepted && media == "application/problem+json":
		return keyBusy
	//guard:a-conflict-is-no-call-under-way true
	case endsWithAny(codes, busyCodes):
		return keyBusy
	//guard:a-used-key-is-no-rejection false
	case endsWithAny(codes, usedCodes):
		return keyUsed
	//guard:what-was-not-read-is-no-rejection false
	case codes == nil && (err != nil || len(start) == readAtMost || isEncoded(resp)):
		return keyUnread
	}
	return keyUntold
}

// isEncoded reports whether a response's body is compressed. That is so if the caller asked for it:
// http.Transport expands a body only if nothing but itself asked for the compression.
func isEncoded(resp *http.Response) bool {
	encoding := resp.Header.Get("Content-Encoding")
	return encoding != "" && !strings.EqualFold(encoding, "identity")
}

// codesIn returns the codes in a JSON text, at the places where services put them. It returns no
// codes if the text is not complete.
func codesIn(text []byte) []string {
	type coded struct{ Type, Code, Issue string }
	var answer struct {
		coded

		ReasonCode string
		Error      coded
		Details    []coded
		Errors     []coded
	}
	//guard:a-byte-order-mark-hides-no-code remove
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	var other *json.UnmarshalTypeError // a member has another type than here, which json has left out
	if err := json.Unmarshal(text, &answer); err != nil && !errors.As(err, &other) {
		return nil
	}
	codes := []string{answer.ReasonCode}
	for _, c := range slices.Concat([]coded{answer.coded, answer.Error}, answer.Details, answer.Errors) {
		codes = append(codes, c.Type, c.Code, c.Issue)
	}
	return codes
}

// spelling turns the spelling of a code into the one of the lists above.
var spelling = strings.NewReplacer(".", "_", "-", "_")

func endsWithAny(codes, ends []string) bool {
	return slices.ContainsFunc(codes, func(code string) bool {
		//guard:a-code-may-have-hyphens = strings.ReplaceAll(strings.ToLower(code), ".", "_")
		code = spelling.Replace(strings.ToLower(code))
		return slices.ContainsFunc(ends, func(end string) bool { return strings.HasSuffix(code, end) })
	})
}

// prefixBody is a body whose first part was already read.
type prefixBody struct {
	io.Reader
	io.Closer
}

// broken is a reader that returns an error, or io.EOF if the error is nil.
type broken struct{ err error }

func (b broken) Read([]byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	return 0, io.EOF
}

// rejected reports whether a response proves that the vendor did nothing.
func (p Protocol) rejected(resp *http.Response, told keyState) bool {
	if told != keyUntold {
		return false
	}
	switch status := resp.StatusCode; status {
	case http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return true
	//guard:a-rejection-is-proved 2 remove
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusLocked:
		return false
	default:
		//guard:a-busy-vendor-may-be-at-it 3.1.1 = @[:0]
		return status >= 400 && status < 500 && !slices.Contains(p.Busy, status)
	}
}

// isOutage reports whether a status shows that the host does not work.
func isOutage(status int) bool {
	return status >= 500 && status != http.StatusNotImplemented && status != http.StatusHTTPVersionNotSupported
}

// classOfError returns the class of an attempt's error, and whether another attempt may end
// differently. The parameter native says that Next is an http.Transport, and asked says that the
// attempt asked for a connection.
func classOfError(err error, native, asked bool) (Class, bool) {
	var (
		verification *tls.CertificateVerificationError
		authority    x509.UnknownAuthorityError
		hostname     x509.HostnameError
		certificate  x509.CertificateInvalidError
		record       tls.RecordHeaderError
		network      net.Error
		inner        *Error
	)
	switch {
	case errors.Is(err, postroom.ErrPermanent):
		return ClassInvalid, false // Next refused the request, which is not a fault of the host
	case errors.As(err, &inner):
		return inner.Class, inner.Class == ClassConnection || inner.Class == ClassTimeout
	case errors.As(err, &verification), errors.As(err, &authority), errors.As(err, &hostname),
		errors.As(err, &certificate), errors.As(err, &record):
		return ClassConnection, false
	case errors.Is(err, http.ErrUseLastResponse), errors.Is(err, http.ErrNotSupported), errors.Is(err, http.ErrSchemeMismatch):
		return ClassInvalid, false
	case errors.As(err, &network) && network.Timeout():
		return ClassTimeout, true
	case native && !asked && !errors.As(err, &network):
		return ClassInvalid, false // http.Transport refused the request before it asked for a connection
	}
	return ClassConnection, true
}
