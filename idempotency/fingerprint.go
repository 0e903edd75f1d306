package idempotency

import (
	"crypto/sha256"

	"github.com/postroom/postroom/idempotency/internal/fingerprint"
	"github.com/postroom/postroom/internal/jcs"
)

// Fingerprint distinguishes requests. Its first byte says how it was made. The rest is a SHA-256.
type Fingerprint [1 + sha256.Size]byte

// Print says which parts of a request its fingerprint covers. Each row stores the Print of its
// fingerprint, and the guard uses that Print to compare a retry. So if you change Print, the guard
// still recognises retries of earlier requests. It does not recognise them if you change
// [Route.PrintFunc], or a [Route.PrintHeaders] that was not empty.
type Print byte

// The values of Print.
const (
	// PrintRequest covers method, path, query, media type and body. JSON is compared in the
	// canonical form of [CanonicalJSON], with exact numbers. Multipart is compared by its parts.
	// Any other body, and JSON without a canonical form, is compared byte by byte.
	PrintRequest = Print(fingerprint.Request)

	// PrintRaw covers the same things as PrintRequest. Multipart is compared by its parts, and any
	// other body byte by byte.
	PrintRaw = Print(fingerprint.Raw)

	// PrintBody covers only the body, which it compares as PrintRequest does.
	PrintBody = Print(fingerprint.Body)

	// PrintJCS is like PrintRequest, but compares JSON in the form of RFC 8785 ([CanonicalJCS]). It
	// is for clients whose retries are equal only in that form. Its numbers are doubles, so two
	// amounts beyond 2^53, or with more than 15 digits, may count as equal. Then the second request
	// gets the answer of the first. Do not use PrintJCS if amounts are numbers.
	PrintJCS = Print(fingerprint.JCS)
)

// CanonicalJSON returns the canonical form of a JSON text. White space, the order of members,
// escapes and the spelling of numbers do not matter. The form is that of RFC 8785, but with exact
// numbers: 1000, 1000.0 and 1e3 have the same form, and numbers with different values have
// different forms. CanonicalJSON takes time and memory in proportion to the text.
//
// It returns an error if the text is not JSON or not UTF-8, or has more than 512 levels or 256 MiB.
// It also returns an error if an object has the same name twice, a string has half of a surrogate
// pair, or an exponent has more than 18 digits.
func CanonicalJSON(in []byte) ([]byte, error) { return jcs.Form(in, jcs.Exact) }

// CanonicalJCS returns the form of RFC 8785, the JSON Canonicalization Scheme. Use it if another
// program must compute the same form, for instance for a signature. Its numbers are doubles. A
// number that is too small for a double becomes 0. Two amounts that differ after the 15th digit may
// have the same form, such as 9007199254740993 and 9007199254740992. It returns an error if a
// number is too large for a double. It does not limit the digits of an exponent. Otherwise it
// refuses the same texts as CanonicalJSON.
func CanonicalJCS(in []byte) ([]byte, error) { return jcs.Form(in, jcs.Doubles) }
