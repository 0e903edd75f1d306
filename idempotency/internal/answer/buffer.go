// Package answer holds a handler's answer back until the guard has stored it. It chooses which
// headers the guard keeps, and leaves out headers that are only for one answer or one caller.
package answer

import (
	"bytes"
	"errors"
	"net/http"
	"strconv"
	"strings"
)

// ErrTooLarge says that an answer is too large to be kept. The attempt was rolled back.
var ErrTooLarge = errors.New("the answer is too large to be kept")

// Buffer is the ResponseWriter of a handler. It sends nothing to the client. Buffer is not a
// Hijacker and has no Unwrap, because a handler could otherwise send an answer before the guard has
// stored it.
type Buffer struct {
	header http.Header
	sent   http.Header // the header when the status was written
	status int
	body   bytes.Buffer
	most   int64
	drops  bool // an answer that is too large is sent and not kept
	large  bool
}

// NewBuffer returns a buffer. Its header begins as a copy of the header that the middleware around
// the guard has set. The parameter most is the size of the largest body that is kept, in bytes. If
// the parameter drops is false, Write refuses a larger body.
func NewBuffer(outside http.Header, most int64, drops bool) *Buffer {
	return &Buffer{header: outside.Clone(), most: most, drops: drops}
}

// Header returns the header. Changes after WriteHeader have no effect.
func (b *Buffer) Header() http.Header { return b.header }

// WriteHeader sets the status. It ignores informational statuses except 101. Of the other statuses,
// only the first has an effect.
func (b *Buffer) WriteHeader(status int) {
	if status < 100 || status > 999 {
		panic("idempotency: invalid WriteHeader code " + strconv.Itoa(status))
	}
	if b.status != 0 || status < 200 && status != http.StatusSwitchingProtocols {
		return
	}
	b.status, b.sent = status, b.header.Clone()
}

// Write appends p to the body. If b.drops is false, Write fails when the body becomes too large to
// keep.
func (b *Buffer) Write(p []byte) (int, error) {
	if b.status == 0 {
		b.WriteHeader(http.StatusOK)
	}
	if !HasBody(b.status) {
		return 0, http.ErrBodyNotAllowed
	}
	//guard:an-answer-too-large-is-not-kept false
	if int64(b.body.Len())+int64(len(p)) > b.most {
		b.large = true
		if !b.drops {
			return 0, ErrTooLarge
		}
	}
	return b.body.Write(p)
}

// Flush does nothing, because the guard sends an answer only after it has stored the answer.
func (b *Buffer) Flush() {}

// HasBody reports whether an answer with the given status may have a body.
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
		canonical := http.CanonicalHeaderKey(name) // a handler may have put another spelling into the map
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
