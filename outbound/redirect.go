package outbound

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// maxRedirects is how many redirects an operation follows, even if CheckRedirect of the
// http.Client allows more.
const maxRedirects = 10

// follow finds out whether http.Client made the request to follow a redirect, and which operation
// was redirected. From that operation, follow takes the deadline, the count of attempts, and the
// doubt whether the vendor acted. It also records whether a redirect led to another host.
//
// The rules for redirects are enforced here and not in CheckRedirect, because each http.Client of a
// Transport may have its own CheckRedirect.
func (op *operation) follow() {
	for r := op.req.Response; r != nil && r.Request != nil; r = r.Request.Response {
		if op.earlier == nil {
			op.earlier, _ = r.Request.Context().Value(resultOf{}).(*operation)
		}
		if r.Request.URL != nil && op.req.URL != nil && !sameOrigin(r.Request.URL, op.req.URL) {
			op.foreign = true
		}
	}
	if e := op.earlier; e != nil {
		//guard:a-redirect-shares-the-time remove
		op.deadline = e.deadline
		acted := e.mayHaveActed()
		//guard:a-doubt-outlives-a-redirect remove
		op.delivered, op.unsure = acted, acted
		// The redirected request is still the same attempt.
		op.attempts = max(e.attempts-1, 0)
		//guard:a-redirect-is-one-attempt remove
		op.attemptsLeft = min(op.attemptsLeft, e.attemptsLeft+1)
	}
}

// mayHaveActed reports whether the vendor may have acted on the operation, or on an operation that
// redirected to it.
func (op *operation) mayHaveActed() bool { return op.unsure && !isSafe(op.req.Method) }

// strayed checks the redirects that led to a request. If the request must not follow one of them,
// it returns the response with that redirect, and an error. Otherwise it returns nil.
//
// A request with effects follows 307 and 308 within its host, because these keep method and body.
// After any other redirect http.Client sends a GET, and the answer to that GET says nothing about
// the original request. The body of a GET may be a secret between the caller and the first host, so
// it is not sent on to another host.
func strayed(req *http.Request) (*http.Response, error) {
	hops := 0
	for next := req; next.Response != nil; next = next.Response.Request {
		r := next.Response
		hops++
		switch {
		case r.Request == nil || r.Request.URL == nil || next.URL == nil:
			//guard:an-orphaned-redirect-is-refused do return nil, errors.Join()
			return r, errors.New("redirected by a response that does not name its request: the RoundTripper around this Transport must set Response.Request")
		//guard:redirects-are-bounded false
		case hops > maxRedirects:
			return req.Response, fmt.Errorf("redirected more than %d times", maxRedirects)
		//guard:no-body-abroad false
		case isSafe(r.Request.Method) && isSafe(next.Method) && hasBody(next) && !sameOrigin(r.Request.URL, next.URL):
			return r, fmt.Errorf("redirected to %s: the body of a %s is not sent on to another host; correct the request's URL", hostOf(next.URL), orGet(r.Request.Method))
		case isSafe(r.Request.Method):
		//guard:a-post-follows-only-307-and-308 false
		case r.StatusCode != http.StatusTemporaryRedirect && r.StatusCode != http.StatusPermanentRedirect:
			return r, fmt.Errorf("redirected to %s by %d, which a %s does not follow: only 307 and 308 keep method and body; correct the request's URL",
				hostOf(next.URL), r.StatusCode, r.Request.Method)
		//guard:a-post-stays-on-its-host false
		case !sameOrigin(r.Request.URL, next.URL):
			return r, fmt.Errorf("redirected to %s: a %s is not sent on to another host; correct the request's URL", hostOf(next.URL), r.Request.Method)
		//guard:a-redirect-keeps-the-method false
		case next.Method != r.Request.Method:
			return r, fmt.Errorf("redirected by %d, and sent on as %s instead of %s", r.StatusCode, orGet(next.Method), r.Request.Method)
		}
	}
	return nil, nil
}

func hasBody(req *http.Request) bool { return req.Body != nil && req.Body != http.NoBody }

// refuse ends an operation that must not follow the redirect in resp.
func (op *operation) refuse(resp *http.Response, err error) *Error {
	//guard:a-refused-body-is-closed remove
	op.body.close()
	op.class, op.reason = ClassRedirect, ReasonFinal
	e := op.failure(err, &Response{Status: resp.StatusCode, Header: resp.Header, Truncated: true}, nil)
	e.sent, e.unsure = true, op.unsure || op.earlier == nil && !Protocol{}.rejected(resp, keyUntold)
	if from := resp.Request; from != nil && from.URL != nil {
		e.Method, e.Host = orGet(from.Method), hostOf(from.URL)
	}
	if op.earlier != nil {
		e.Attempts = max(op.attempts, op.earlier.attempts)
	}
	if last, ok := op.req.Context().Value(lastOf{}).(**operation); ok {
		*last = op
	}
	return e
}

// astray returns an error if Next itself followed redirects that the Transport would not follow.
// Then the answer does not count, and astray closes the response.
func (op *operation) astray(resp *http.Response) error {
	//guard:an-answer-of-no-request 1 false
	if resp.Request == nil || isSafe(op.req.Method) {
		return nil
	}
	_, err := strayed(resp.Request)
	//guard:another-method-is-no-answer false
	if m := resp.Request.Method; err == nil && m != "" && m != op.req.Method {
		err = fmt.Errorf("it was sent as %s", m)
	}
	if err == nil {
		return nil
	}
	_ = resp.Body.Close()
	return fmt.Errorf("config: Next follows redirects itself, which it must not: %w", err)
}

// The list abroad has the headers that a request to another host keeps. Any other header may be a
// secret between the caller and the first host, or quote a URL with a secret (Referer).
//
//guard:another-host-gets-no-referer 13 = "Referer", @
var abroad = []string{
	"Accept", "Accept-Charset", "Accept-Encoding", "Accept-Language", "Cache-Control", "If-Match", "If-Modified-Since", "If-None-Match",
	"If-Range", "If-Unmodified-Since", "Pragma", "Range", "User-Agent",
}

// goAbroad removes possible secrets from a request that is sent to another host.
func goAbroad(h http.Header) {
	for name := range h {
		if !slices.ContainsFunc(abroad, func(known string) bool { return strings.EqualFold(known, name) }) {
			delete(h, name)
		}
	}
}

func orGet(method string) string {
	if method == "" {
		return http.MethodGet
	}
	return method
}
