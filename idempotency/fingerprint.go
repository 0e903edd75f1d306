package idempotency

import (
	"crypto/sha256"
	"net/http"

	"github.com/postroom/postroom/idempotency/internal/fingerprint"
	"github.com/postroom/postroom/internal/jcs"
)

// Fingerprint tells one request from another: a byte that says how it was made, and a
// SHA-256.
type Fingerprint [1 + sha256.Size]byte

// Print says what of a request its fingerprint is made of. Rows keep which it was, and are
// compared by it: a change turns no honest retry into a refusal. (Not so for
// [Route.PrintHeaders], where headers are taken out again, and [Route.PrintFunc].)
type Print byte

// What fingerprints are made of.
const (
	// PrintRequest is method, path, query, media type, and the body: JSON in its canonical
	// form, with exact numbers, as [CanonicalJSON] has it; multipart by its parts; anything
	// else, and JSON that has no canonical form, as it is.
	PrintRequest = Print(fingerprint.Request)

	// PrintRaw is the same with the body as it is, whatever it is.
	PrintRaw = Print(fingerprint.Raw)

	// PrintBody is the body alone, in the form of PrintRequest.
	PrintBody = Print(fingerprint.Body)

	// PrintJCS is the same as PrintRequest, with JSON in the form of RFC 8785, as
	// [CanonicalJCS] has it, for clients that promise no more than that: its numbers are
	// doubles, so that two amounts beyond 2^53, or with more than 15 digits, may be the
	// same, and the second request has the answer of the first. Do not take it where
	// amounts are numbers.
	PrintJCS = Print(fingerprint.JCS)
)

// FingerprintRequest returns the fingerprint of a request with the given body, as
// [PrintRequest] says, for whoever wants to tell requests apart as a [Guard] does. A
// multipart body is compared by its parts.
func FingerprintRequest(r *http.Request, body []byte) (Fingerprint, error) {
	p := fingerprint.Printer{Request: r, Body: body, Parts: true}
	sum, err := p.Print(fingerprint.Request.Exactly())
	return Fingerprint(sum), err
}

// CanonicalJSON returns the one form that all spellings of a JSON text share: white
// space, the order of members, escapes and the spelling of numbers do not matter. It is
// the form of RFC 8785 with exact numbers: 1000, 1000.0 and 1e3 are one, and two numbers of
// different value stay two, however many digits tell them apart. It takes time and memory
// in proportion to the text.
//
// There is an error for what has no such form: what is not JSON or not UTF-8, an object
// with one name twice, half of a surrogate pair, an exponent of more than 18 digits,
// more than 512 levels, more than 256 MiB.
func CanonicalJSON(in []byte) ([]byte, error) { return jcs.Form(in, jcs.Exact) }

// CanonicalJCS returns the form of RFC 8785, the JSON Canonicalization Scheme: for those
// who must agree with others about it, as with a signature. Its numbers are doubles, so
// that two amounts which differ behind the 15th digit may have one form: 9007199254740993
// and 9007199254740992 do. There is an error if [CanonicalJSON] has one, and for a
// number beyond the range of a double.
func CanonicalJCS(in []byte) ([]byte, error) { return jcs.Form(in, jcs.Doubles) }
