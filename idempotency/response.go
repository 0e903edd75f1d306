package idempotency

import (
	"bytes"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// buffer is the ResponseWriter of a handler: nothing reaches the client before it is
// kept. It is no Hijacker and has no Unwrap: a way past it would be a way to answer what
// is rolled back afterwards.
type buffer struct {
	header http.Header
	sent   http.Header // as it was when the status was written
	status int
	body   bytes.Buffer
	most   int64
	drops  bool // what is larger is sent, and not kept
	large  bool
}

// Header returns the header, which counts until the status is written.
func (b *buffer) Header() http.Header { return b.header }

// WriteHeader sets the status. Informational ones are dropped, and the first other one
// counts.
func (b *buffer) WriteHeader(status int) {
	if status < 100 || status > 999 {
		panic("idempotency: invalid WriteHeader code " + strconv.Itoa(status))
	}
	if b.status != 0 || status < 200 && status != http.StatusSwitchingProtocols {
		return
	}
	b.status, b.sent = status, b.header.Clone()
}

// Write adds to the body. It fails once that is too large to be kept.
func (b *buffer) Write(p []byte) (int, error) {
	if b.status == 0 {
		b.WriteHeader(http.StatusOK)
	}
	if !hasBody(b.status) {
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
func (b *buffer) Flush() {}

func hasBody(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}

// response returns the whole answer, as it is sent.
func (b *buffer) response() Response {
	if b.status == 0 {
		b.WriteHeader(http.StatusOK)
	}
	h := b.sent
	for name := range h {
		if name == "Trailer" || strings.HasPrefix(name, http.TrailerPrefix) || neverSent(name) {
			delete(h, name)
		}
	}
	var body []byte
	if hasBody(b.status) {
		body = b.body.Bytes()
		if len(body) > 0 && h["Content-Type"] == nil && h.Get("Content-Encoding") == "" {
			h.Set("Content-Type", http.DetectContentType(body)) // so that a replay has the same
		}
	}
	return Response{Status: b.status, Header: h, Body: body}
}

// keptHeaders are kept, beside those that a route names.
var keptHeaders = []string{
	"Cache-Control", "Content-Disposition", "Content-Encoding", "Content-Language", "Content-Location", "Content-Type",
	"Etag", "Last-Modified", "Link", "Location", "Vary",
}

// neverSent reports whether a header belongs to the connection, or is made anew.
func neverSent(name string) bool {
	switch name {
	case "Connection", "Keep-Alive", "Proxy-Connection", "Te", "Transfer-Encoding", "Upgrade", "Content-Length":
		return true
	}
	return false
}

// neverKept reports whether a header belongs to one answer or one caller alone.
func neverKept(name string) bool {
	switch name {
	case "Set-Cookie", "Set-Cookie2", "Authorization", "Www-Authenticate", "Authentication-Info", "Date", "Retry-After", "Server-Timing",
		"Trailer", "Traceparent", "Tracestate", "X-Request-Id", "X-Correlation-Id", "X-Trace-Id", "Request-Id", "Age":
		return true
	}
	for _, prefix := range []string{"Proxy-", "Ratelimit", "X-Ratelimit-", "Access-Control-"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return neverSent(name)
}

// keepable returns the answer with the headers that are kept.
func (rt *route) keepable(resp Response) Response {
	kept := make(http.Header)
	for _, name := range slices.Concat(keptHeaders, rt.ReplayHeaders) {
		name = http.CanonicalHeaderKey(name)
		if values := resp.Header[name]; len(values) > 0 && !neverKept(name) {
			kept[name] = values
		}
	}
	resp.Header = kept
	return resp
}

// send answers with what was made or kept.
func send(w http.ResponseWriter, resp Response) {
	h := w.Header()
	maps.Copy(h, resp.Header)
	if hasBody(resp.Status) {
		h.Set("Content-Length", strconv.Itoa(len(resp.Body)))
	}
	w.WriteHeader(resp.Status)
	if hasBody(resp.Status) {
		_, _ = w.Write(resp.Body) // the client may be gone; its retry is answered
	}
}
