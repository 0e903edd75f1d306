// Package fingerprint computes digests to compare requests.
package fingerprint

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"slices"
	"strings"

	"github.com/postroom/postroom/internal/jcs"
)

// Sum is a fingerprint. Its first byte is its Kind. The other bytes are a SHA-256.
type Sum [1 + sha256.Size]byte

// Kind says which parts of a request its fingerprint covers. Rows of the table idempotency contain
// the numbers of the kinds, so these numbers must not change.
type Kind byte

// Kinds.
const (
	Request Kind = 1 // method, path, query, media type and body
	Raw     Kind = 2 // like Request, but any body except multipart is compared byte by byte
	Body    Kind = 3 // only the body
	JCS     Kind = 4 // like Request, with JSON in the form of RFC 8785

	Func    Kind = 0x3f // a user's function
	Input   Kind = 0x3e // the input of a call without HTTP
	Headers Kind = 0x40 // flag: the fingerprint covers headers too
)

// base returns the kind without the flag Headers.
func (k Kind) base() Kind { return k &^ Headers }

// numbers returns how fingerprints of this kind treat JSON numbers.
func (k Kind) numbers() jcs.Numbers {
	if k.base() == JCS {
		return jcs.Doubles
	}
	return jcs.Exact
}

// printSeal names the version of the format. The input of each hash begins with it.
const printSeal = "prfp1"

var (
	// ErrMultipart is returned for a multipart body if [Printer.Parts] is false.
	ErrMultipart = errors.New("the body is multipart, which clients write differently for each attempt")

	// ErrUnknown is returned for a kind that this code does not know, and for Func without
	// [Printer.Own].
	ErrUnknown = errors.New("the fingerprint is of a kind that this code does not know")
)

// Printer makes fingerprints of one request.
type Printer struct {
	Request *http.Request
	Body    []byte
	Headers []string // names of headers to compare too
	Parts   bool     // if true, multipart bodies are compared by their parts
	Own     func(r *http.Request, body []byte) []byte
}

// Print returns the fingerprint of the given kind.
func (p *Printer) Print(kind Kind) (Sum, error) {
	h := sha256.New()
	WriteField(h, printSeal)
	media := mediaType(p.Request)
	switch kind.base() {
	case Request, Raw, JCS:
		WriteField(h, p.Request.Method)
		WriteField(h, p.Request.URL.EscapedPath())
		WriteField(h, p.Request.URL.RawQuery)
		WriteField(h, media)
		body, err := p.canonical(media, kind)
		if err != nil {
			return Sum{}, err
		}
		WriteField(h, body)
	case Body:
		body, err := p.canonical(media, kind)
		if err != nil {
			return Sum{}, err
		}
		WriteField(h, body)
	case Func:
		if p.Own == nil {
			return Sum{}, ErrUnknown
		}
		WriteField(h, p.Own(p.Request, p.Body))
	default:
		return Sum{}, ErrUnknown
	}
	if kind&Headers != 0 {
		for _, name := range p.Headers {
			WriteField(h, strings.ToLower(name))
			//guard:the-host-is-compared false
			if strings.EqualFold(name, "Host") { // net/http removes it from the headers
				WriteField(h, p.Request.Host)
				continue
			}
			WriteField(h, strings.Join(p.Request.Header.Values(name), "\n"))
		}
	}
	return sealed(kind, h.Sum(nil)), nil
}

func sealed(kind Kind, sum []byte) (f Sum) {
	f[0] = byte(kind)
	copy(f[1:], sum)
	return f
}

// canonical returns the form in which the body is compared.
func (p *Printer) canonical(media string, kind Kind) ([]byte, error) {
	switch {
	case strings.HasPrefix(media, "multipart/"):
		if !p.Parts {
			return nil, ErrMultipart
		}
		if digest, err := partsOf(p.Request, p.Body); err == nil {
			return digest, nil
		}
		return p.Body, nil // the body is malformed, and the handler will report that
	case kind.base() == Raw:
		return p.Body, nil
	case media == "application/json" || strings.HasSuffix(media, "+json"):
		return canonicalOr(p.Body, kind), nil
	}
	return p.Body, nil
}

// canonicalOr returns the canonical form of a JSON text, or the text itself if it has no canonical
// form. A text without a canonical form never equals the canonical form of another text.
func canonicalOr(text []byte, kind Kind) []byte {
	//guard:letter-case-counts-in-a-fingerprint = jcs.Form(text, kind.numbers())
	body, err := jcs.Distinct(text, kind.numbers())
	if err != nil {
		return text
	}
	return body
}

// mediaType returns the type of the request's body, in lower case, without parameters.
func mediaType(r *http.Request) string {
	media, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	return strings.ToLower(strings.TrimSpace(media))
}

// partsOf returns the names, the type and a digest of each part of a multipart body. If a part has
// headers that say more than that, their digest follows the digest of the part.
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
		digest := h.Sum(nil)
		//guard:headers-of-parts-are-compared false
		if !isPlain(part) {
			digest = append(digest, digestOf(part.Header)...)
		}
		for _, s := range []string{part.FormName(), part.FileName(), part.Header.Get("Content-Type"), string(digest)} {
			WriteField(&out, s)
		}
	}
}

// isPlain reports whether the names and the type of a part say all that its headers say. That is so
// for the parts of usual forms.
func isPlain(part *multipart.Part) bool {
	for name, values := range part.Header {
		if len(values) > 1 || name != "Content-Type" && name != "Content-Disposition" {
			return false
		}
	}
	said := part.Header.Get("Content-Disposition")
	if said == "" {
		return true
	}
	kind, params, err := mime.ParseMediaType(said)
	if err != nil || kind != "form-data" || params["filename"] != part.FileName() {
		return false
	}
	for name := range params {
		if name != "name" && name != "filename" {
			return false
		}
	}
	return true
}

// digestOf returns a digest of all headers of a part.
func digestOf(headers textproto.MIMEHeader) []byte {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		WriteField(h, name)
		WriteField(h, strings.Join(headers[name], "\n"))
	}
	return h.Sum(nil)
}

// WriteField writes a field after its length, so that different sequences of fields never result in
// the same bytes.
func WriteField[T string | []byte](w io.Writer, field T) {
	var size [4]byte
	binary.BigEndian.PutUint32(size[:], uint32(len(field)))
	_, _ = w.Write(size[:]) // cannot fail, because w is a hash or a buffer
	_, _ = w.Write([]byte(field))
}

// OfInput returns the fingerprint of the JSON text of an operation's input.
func OfInput(text []byte, kind Kind) (Sum, error) {
	if kind.base() != Input || kind&Headers != 0 {
		return Sum{}, ErrUnknown
	}
	h := sha256.New()
	WriteField(h, printSeal)
	WriteField(h, canonicalOr(text, kind))
	return sealed(kind, h.Sum(nil)), nil
}
