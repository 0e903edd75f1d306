// Package answer is what a handler answers: kept back until it is committed, and parted into
// what is kept of it and what belongs to one answer or one caller alone.
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

// Buffer is the ResponseWriter of a handler: nothing reaches the client before it is
// kept. It is no Hijacker and has no Unwrap: a way past it would be a way to answer what
// is rolled back afterwards.
type Buffer struct {
	header http.Header
	sent   http.Header // as it was when the status was written
	status int
	body   bytes.Buffer
	most   int64
	drops  bool // what is larger is sent, and not kept
	large  bool
}

// NewBuffer returns a buffer with the header that was set outside. What is larger than most
// bytes is not kept, and not even taken unless it drops.
func NewBuffer(outside http.Header, most int64, drops bool) *Buffer {
	return &Buffer{header: outside.Clone(), most: most, drops: drops}
}

// Header returns the header, which counts until the status is written.
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

// Write adds to the body. It fails once that is too large to be kept.
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

// Large reports whether the body is larger than what is kept.
func (b *Buffer) Large() bool { return b.large }

// Answer returns the whole answer, as it is sent.
func (b *Buffer) Answer() (status int, header http.Header, body []byte) {
	if b.status == 0 {
		b.WriteHeader(http.StatusOK)
	}
	h := b.sent
	for name := range h {
		if name == "Trailer" || strings.HasPrefix(name, http.TrailerPrefix) || neverSent(name) {
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
