// Package answer keeps a handler's answer back until it is committed. It separates the part of the
// answer that is kept from the part that belongs to one answer or one caller only.
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

// Buffer is the ResponseWriter of a handler. It sends nothing to the client before the answer is
// kept. Buffer is not a Hijacker and has no Unwrap, because a handler could otherwise send an
// answer that is rolled back later.
type Buffer struct {
	header http.Header
	sent   http.Header // the header when the status was written
	status int
	body   bytes.Buffer
	most   int64
	drops  bool // a too large answer is sent, and not kept
	large  bool
}

// NewBuffer returns a buffer with the header that outer code set. A body of more than most bytes is
// not kept. If drops is false, Write refuses such a body.
func NewBuffer(outside http.Header, most int64, drops bool) *Buffer {
	return &Buffer{header: outside.Clone(), most: most, drops: drops}
}

// Header returns the header. Changes count until the status is written.
func (b *Buffer) Header() http.Header { return b.header }

// WriteHeader sets the status. It ignores informational statuses, and the first other status
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

// Flush does nothing, because an answer is not sent before it is kept.
func (b *Buffer) Flush() {}

// HasBody reports whether an answer with a status has a body.
func HasBody(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}

// Large reports whether the body is too large to be kept.
func (b *Buffer) Large() bool { return b.large }

// Answer returns the complete answer in the form in which it is sent.
func (b *Buffer) Answer() (status int, header http.Header, body []byte) {
	if b.status == 0 {
		b.WriteHeader(http.StatusOK)
	}
	h := b.sent
	for name := range h {
		canonical := http.CanonicalHeaderKey(name) // a handler may have written into the map
		if canonical == "Trailer" || strings.HasPrefix(canonical, http.TrailerPrefix) || neverSent(canonical) {
			delete(h, name)
		}
	}
	if HasBody(b.status) {
		body = b.body.Bytes()
		if _, has := h["Content-Type"]; len(body) > 0 && !has && h.Get("Content-Encoding") == "" {
			h.Set("Content-Type", http.DetectContentType(body)) // so that a replay has the same type
		}
	}
	return b.status, h, body
}
