package idempotency

import (
	"crypto/sha256"
	"net/http"

	"github.com/postroom/postroom/idempotency/internal/fingerprint"
	"github.com/postroom/postroom/internal/jcs"
)

// Fingerprint distinguishes requests. It is a byte that says how it was made, and a SHA-256.
type Fingerprint [1 + sha256.Size]byte

// Print says which parts of a request its fingerprint covers. Each row stores its own Print, and
// the guard compares a retry with that. So you can change Print and the guard still recognises
// retries of earlier requests. It does not if you remove headers from [Route.PrintHeaders], or
// change [Route.PrintFunc].
type Print byte

// What fingerprints cover.
const (
	// PrintRequest covers method, path, query, media type and body. JSON is compared in the
	// canonical form of [CanonicalJSON], with exact numbers, and multipart by its parts. Any other
	// body, and JSON without a canonical form, is compared byte by byte.
	PrintRequest = Print(fingerprint.Request)

	// PrintRaw covers the same parts, but compares every body byte by byte.
	PrintRaw = Print(fingerprint.Raw)

	// PrintBody covers only the body, in the form of PrintRequest.
	PrintBody = Print(fingerprint.Body)

	// PrintJCS is like PrintRequest, but with JSON in the form of RFC 8785 ([CanonicalJCS]), for
	// clients that promise only that form. Its numbers are doubles, so two amounts beyond 2^53, or
	// with more than 15 digits, may count as equal. Then the second request gets the answer of the
	// first. Do not use it if amounts are numbers.
	PrintJCS = Print(fingerprint.JCS)
)

// FingerprintRequest returns the fingerprint of a request with the given body, as [PrintRequest]
// describes it. Use it to compare requests as a [Guard] does. A multipart body is compared by its
// parts.
func FingerprintRequest(r *http.Request, body []byte) (Fingerprint, error) {
	p := fingerprint.Printer{Request: r, Body: body, Parts: true}
	sum, err := p.Print(fingerprint.Request.Exactly())
	return Fingerprint(sum), err
}

// CanonicalJSON returns the canonical form of a JSON text. White space, the order of
// members, escapes and the spelling of numbers do not matter. It is the form of RFC 8785,
// but with exact numbers: 1000, 1000.0 and 1e3 are equal, and two numbers of different
// value always differ. It takes time and memory in proportion to the text.
//
// It returns an error if the text has no such form: if it is not JSON or not UTF-8, has an object
// with the same name twice, half of a surrogate pair, an exponent of more than 18 digits, more than
// 512 levels, or more than 256 MiB.
func CanonicalJSON(in []byte) ([]byte, error) { return jcs.Form(in, jcs.Exact) }

// CanonicalJCS returns the form of RFC 8785, the JSON Canonicalization Scheme. Use it if another
// program must compute the same form, for instance for a signature. Its numbers are doubles, so two
// amounts that differ after the 15th digit may have the same form, such as 9007199254740993 and
// 9007199254740992. It returns an error if CanonicalJSON does, or if a number is outside the range
// of a double.
func CanonicalJCS(in []byte) ([]byte, error) { return jcs.Form(in, jcs.Doubles) }
