package idempotency

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strings"

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
	PrintRequest Print = 1

	// PrintRaw is the same with the body as it is, whatever it is.
	PrintRaw Print = 2

	// PrintBody is the body alone, in the form of PrintRequest.
	PrintBody Print = 3

	// PrintJCS is the same as PrintRequest, with JSON in the form of RFC 8785, as
	// [CanonicalJCS] has it, for clients that promise no more than that: its numbers are
	// doubles, so that two amounts beyond 2^53, or with more than 15 digits, may be the
	// same, and the second request has the answer of the first. Do not take it where
	// amounts are numbers.
	PrintJCS Print = 4

	printFunc    Print = 0x3f // Route.PrintFunc
	printInput   Print = 0x3e // of Do
	printHeaders Print = 0x40 // and headers beside it
	printExact   Print = 0x80 // numbers of JSON are exact; rows of an earlier version do not have it
)

// base returns what is compared, without how.
func (p Print) base() Print { return p &^ (printHeaders | printExact) }

// exactly returns the kind as it is made today.
func (p Print) exactly() Print {
	switch p.base() {
	case PrintRequest, PrintBody, printInput:
		return p | printExact
	}
	return p
}

// numbers says what the numbers of JSON are in fingerprints of the kind.
func (p Print) numbers() jcs.Numbers {
	switch {
	case p.base() == PrintJCS:
		return jcs.Doubles
	case p&printExact == 0:
		return jcs.RoundedBefore
	}
	return jcs.Exact
}

// printSeal begins what is hashed: the version of the form.
const printSeal = "prfp1"

var (
	errMultipart = errors.New("the body is multipart, which is written anew with each attempt")
	errPrint     = errors.New("the fingerprint is of a kind that this code does not know")
)

// printer makes fingerprints of one request.
type printer struct {
	r       *http.Request
	body    []byte
	headers []string
	parts   bool // multipart is compared by its parts
	own     func(r *http.Request, body []byte) []byte
}

// print returns the fingerprint of the given kind.
func (p *printer) print(kind Print) (Fingerprint, error) {
	h := sha256.New()
	writeField(h, printSeal)
	media := mediaType(p.r)
	switch kind.base() {
	case PrintRequest, PrintRaw, PrintJCS:
		writeField(h, p.r.Method)
		writeField(h, p.r.URL.EscapedPath())
		writeField(h, p.r.URL.RawQuery)
		writeField(h, media)
		body, err := p.canonical(media, kind)
		if err != nil {
			return Fingerprint{}, err
		}
		writeField(h, body)
	case PrintBody:
		body, err := p.canonical(media, kind)
		if err != nil {
			return Fingerprint{}, err
		}
		writeField(h, body)
	case printFunc:
		if p.own == nil {
			return Fingerprint{}, errPrint
		}
		writeField(h, p.own(p.r, p.body))
	default:
		return Fingerprint{}, errPrint
	}
	if kind&printHeaders != 0 {
		for _, name := range p.headers {
			writeField(h, strings.ToLower(name))
			writeField(h, strings.Join(p.r.Header.Values(name), "\n"))
		}
	}
	return sealed(kind, h.Sum(nil)), nil
}

func sealed(kind Print, sum []byte) (f Fingerprint) {
	f[0] = byte(kind)
	copy(f[1:], sum)
	return f
}

// canonical returns the body as it is compared.
func (p *printer) canonical(media string, kind Print) ([]byte, error) {
	switch {
	case strings.HasPrefix(media, "multipart/"):
		if !p.parts {
			return nil, errMultipart
		}
		if digest, err := partsOf(p.r, p.body); err == nil {
			return digest, nil
		}
		return p.body, nil // the handler will say what is wrong with it
	case kind.base() == PrintRaw:
		return p.body, nil
	case media == "application/json" || strings.HasSuffix(media, "+json"):
		return canonicalOr(p.body, kind)
	}
	return p.body, nil
}

// canonicalOr returns the canonical form of a JSON text, or the text where it has none. No
// text without one is the canonical form of another.
func canonicalOr(text []byte, kind Print) ([]byte, error) {
	body, err := jcs.Form(text, kind.numbers())
	switch {
	case errors.Is(err, jcs.ErrRounded):
		return nil, err
	case err != nil:
		return text, nil
	}
	return body, nil
}

// mediaType returns the type of the request's body, in lower case, without parameters.
func mediaType(r *http.Request) string {
	media, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	return strings.ToLower(strings.TrimSpace(media))
}

// partsOf returns a digest of each part of a multipart body, with its names and type.
func partsOf(r *http.Request, body []byte) ([]byte, error) {
	_, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return nil, fmt.Errorf("read the content type: %w", err)
	}
	parts := multipart.NewReader(bytes.NewReader(body), params["boundary"])
	var out bytes.Buffer
	for {
		part, err := parts.NextRawPart()
		if errors.Is(err, io.EOF) {
			return out.Bytes(), nil
		}
		if err != nil {
			return nil, fmt.Errorf("read a part: %w", err)
		}
		h := sha256.New()
		if _, err := io.Copy(h, part); err != nil {
			return nil, fmt.Errorf("read a part: %w", err)
		}
		for _, s := range []string{part.FormName(), part.FileName(), part.Header.Get("Content-Type"), string(h.Sum(nil))} {
			writeField(&out, s)
		}
	}
}

// FingerprintRequest returns the fingerprint of a request with the given body, as
// [PrintRequest] says, for whoever wants to tell requests apart as a [Guard] does. A
// multipart body is compared by its parts.
func FingerprintRequest(r *http.Request, body []byte) (Fingerprint, error) {
	p := printer{r: r, body: body, parts: true}
	return p.print(PrintRequest.exactly())
}

// writeField writes a field with its length before it, so that no two sequences of
// fields are one text.
func writeField[T string | []byte](w io.Writer, field T) {
	var size [4]byte
	binary.BigEndian.PutUint32(size[:], uint32(len(field)))
	_, _ = w.Write(size[:])       // a hash or a buffer
	_, _ = w.Write([]byte(field)) // takes everything
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
// and 9007199254740992 do. There is an error where [CanonicalJSON] has one, and for a
// number beyond the range of a double.
func CanonicalJCS(in []byte) ([]byte, error) { return jcs.Form(in, jcs.Doubles) }
