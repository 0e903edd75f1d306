package answer

import (
	"maps"
	"net/http"
	"slices"
	"strings"
)

// The list describing has headers that describe the body or the created resource. The guard keeps
// these even if outer code set them and the handler did not change them.
var describing = []string{
	"Cache-Control", "Content-Disposition", "Content-Encoding", "Content-Language", "Content-Location", "Content-Type",
	"Etag", "Last-Modified", "Link", "Location", "Vary",
}

// neverSent reports whether a header is about the connection, or is one that net/http makes for
// each answer.
func neverSent(name string) bool {
	switch name {
	case "Connection", "Keep-Alive", "Proxy-Connection", "Te", "Transfer-Encoding", "Upgrade", "Content-Length":
		return true
	}
	return false
}

// neverKept reports whether a header is only for one answer or one caller.
// docs/reference/idempotency.md has the same list. A route can omit more headers with OmitHeaders.
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

// Keepable returns the headers of an answer that the guard keeps: headers that the handler set or
// changed, and headers that describe the body. Other headers that outer code set are not kept,
// because outer code sets them again for a repeated answer, perhaps with other values. A header
// that the handler removed is kept without values. Keepable drops the headers in the list omitted,
// and those for which neverKept is true. A handler may put a name into the map in any spelling, so
// Keepable compares canonical names.
func Keepable(header, outside http.Header, omitted []string) http.Header {
	kept := make(http.Header)
	for name, values := range header {
		if was, ok := outside[name]; !ok || !slices.Equal(was, values) || slices.Contains(describing, http.CanonicalHeaderKey(name)) {
			kept[name] = values
		}
	}
	for name := range outside {
		if _, ok := header[name]; !ok {
			//guard:a-replay-takes-the-same-headers-away remove
			kept[name] = nil
		}
	}
	maps.DeleteFunc(kept, func(name string, _ []string) bool {
		//guard:a-header-that-is-not-kept-in-any-letter-case remove
		name = http.CanonicalHeaderKey(name)
		//guard:no-cookies-in-a-replay 1 false
		return neverKept(name) || contains(omitted, name)
	})
	return kept
}

func contains(names []string, canonical string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return http.CanonicalHeaderKey(name) == canonical })
}
