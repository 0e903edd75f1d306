// Package answer holds a handler's answer back until it is committed. It separates the
// part that is kept from the part that belongs to one answer or one caller only.
package answer

import (
	"bytes"
	"errors"
	"net/http"
	"strconv"
	"strings"
)

// ErrTooLarge says that an answer is too large to be kept. It was rolled back.
var ErrTooLarge = errors.New("the answer is too large to be kept")

// Buffer is the ResponseWriter of a handler. Nothing reaches the client before the answer
// is kept. Buffer is not a Hijacker and has no Unwrap, because a handler could otherwise
// send an answer that is then rolled back.
type Buffer struct {
	header http.Header
	sent   http.Header // as it was when the status was written
	status int
	body   bytes.Buffer
	most   int64
	drops  bool // an answer that is too large is sent, and not kept
	large  bool
}

// NewBuffer returns a buffer with the header that was set outside. A body larger than
// most bytes is not kept. If drops is false, Write even refuses it.
func NewBuffer(outside http.Header, most int64, drops bool) *Buffer {
	return &Buffer{header: outside.Clone(), most: most, drops: drops}
}

// Header returns the header. Changes count until the status is written.
func (b *Buffer) Header() http.Header { return b.header }

// WriteHeader sets the status. Informational ones are dropped, and the first other one
// counts.
func (b *Buffer) WriteHeader(status int) {
	if status < 100 || status > 999 {
		panic("idempotency: invalid WriteHeader code " + strconv.Itoa(status))
	}
	if b.status != 0 || status < 200 && status != http.StatusSwitchingProtocols {
		return
	}
	b.status, b.sent = status, b.header.Clone()
}

// Write adds to the body. It fails if the body becomes too large to be kept.
func (b *Buffer) Write(p []byte) (int, error) {
	if b.status == 0 {
		b.WriteHeader(http.StatusOK)
	}
	if !HasBody(b.status) {
		return 0, http.ErrBodyNotAllowed
	}
	if int64(b.body.Len())+int64(len(p)) > b.most {
		b.large = true
		if !b.drops {
			return 0, ErrTooLarge
		}
	}
	return b.body.Write(p)
}

// Flush does nothing: what is not kept yet is not sent.
func (b *Buffer) Flush() {}

// HasBody reports whether an answer of a status has a body.
func HasBody(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}

// Large reports whether the body is too large to be kept.
func (b *Buffer) Large() bool { return b.large }

// Answer returns the whole answer, as it is sent.
func (b *Buffer) Answer() (status int, header http.Header, body []byte) {
	if b.status == 0 {
		b.WriteHeader(http.StatusOK)
	}
	h := b.sent
	for name := range h {
		canonical := http.CanonicalHeaderKey(name) // a handler may write into the map
		if canonical == "Trailer" || strings.HasPrefix(canonical, http.TrailerPrefix) || neverSent(canonical) {
			delete(h, name)
		}
	}
	if HasBody(b.status) {
		body = b.body.Bytes()
		if _, has := h["Content-Type"]; len(body) > 0 && !has && h.Get("Content-Encoding") == "" {
			h.Set("Content-Type", http.DetectContentType(body)) // so that a replay has the same
		}
	}
	return b.status, h, body
}
