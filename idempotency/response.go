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
		if _, has := h["Content-Type"]; len(body) > 0 && !has && h.Get("Content-Encoding") == "" {
			h.Set("Content-Type", http.DetectContentType(body)) // so that a replay has the same
		}
	}
	return Response{Status: b.status, Header: h, Body: body}
}

// describing are headers that belong to the body or to what was made. They are kept also
// where the handler left them as they were set outside.
var describing = []string{
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

// neverKept reports whether a header belongs to one answer or one caller alone. docs/idempotency.md
// has the same list, and OmitHeaders a route's own.
func neverKept(name string) bool {
	switch name {
	case "Set-Cookie", "Set-Cookie2", "Authorization", "Www-Authenticate", "Authentication-Info", "Date", "Retry-After", "Server-Timing",
		"Trailer", "Traceparent", "Tracestate", "X-Request-Id", "X-Correlation-Id", "X-Trace-Id", "Request-Id", "Age",
		"X-Csrf-Token", "X-Xsrf-Token", "X-Auth-Token":
		return true
	}
	for _, prefix := range []string{"Proxy-", "Ratelimit", "X-Ratelimit-", "Access-Control-"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return neverSent(name)
}

// keepable returns the answer with the headers that are kept: what the handler made of
// those that were set outside. Who sets headers outside of the guard does so for a repeated
// answer as well, and they may be others then; what the handler took away is kept as a
// header without values.
func (rt *route) keepable(resp Response, outside http.Header) Response {
	kept := make(http.Header)
	for name, values := range resp.Header {
		if was, ok := outside[name]; !ok || !slices.Equal(was, values) || slices.Contains(describing, name) {
			kept[name] = values
		}
	}
	for name := range outside {
		if _, ok := resp.Header[name]; !ok {
			kept[name] = nil
		}
	}
	maps.DeleteFunc(kept, func(name string, _ []string) bool { return neverKept(name) || rt.omits(name) })
	resp.Header = kept
	return resp
}

func (rt *route) omits(name string) bool {
	return slices.ContainsFunc(rt.OmitHeaders, func(omitted string) bool { return http.CanonicalHeaderKey(omitted) == name })
}

// send answers with the header and body that a handler made, or that were kept. w must
// have the header already.
func send(w http.ResponseWriter, resp Response) {
	if hasBody(resp.Status) {
		w.Header().Set("Content-Length", strconv.Itoa(len(resp.Body)))
	}
	w.WriteHeader(resp.Status)
	if hasBody(resp.Status) {
		_, _ = w.Write(resp.Body) // the client may be gone; its retry is answered
	}
}

// become has a header be another, also where a handler took away what was set outside.
func become(h, other http.Header) {
	clear(h)
	maps.Copy(h, other)
}
