package outbound

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/postroom/postroom/internal/guard"
)

// Client calls a vendor. It is safe for concurrent use.
type Client struct {
	transport *Transport
	http      *http.Client
}

// NewClient returns a client. It does no I/O and cannot fail: [Client.Check] and every
// call return faults of the Config.
func NewClient(cfg Config) *Client {
	t := NewTransport(cfg)
	// The transport enforces its rules for redirects for every client. So CheckRedirect refuses no
	// redirect. If it did, http.Client would return an error of its own and not an [Error].
	follow := func(*http.Request, []*http.Request) error { return nil }
	return &Client{transport: t, http: &http.Client{Transport: t, CheckRedirect: follow}}
}

// Check is [Transport.Check].
func (c *Client) Check(ctx context.Context) error { return c.transport.Check(ctx) }

// HTTP returns an http.Client for a library of the vendor. This http.Client returns responses with
// any status, because such a library needs them.
func (c *Client) HTTP() *http.Client { return c.http }

// Do carries out one operation. It returns a response if the status is 2xx, or 304 for GET and
// HEAD, unless Decide returned Retry for the response, or the response is a 202 that says that a
// call with the key is running. Otherwise Do returns an [Error]. The caller must close the
// response's body.
//
// GET and HEAD follow up to ten redirects. If a redirect leads to another host, or from TLS to
// plain HTTP, Do then keeps only headers that describe the wanted answer or the client. It no
// longer sends the idempotency key, cookies, the Authorization header or any other header that may
// be a secret. POST, PUT, PATCH and DELETE follow 307 and 308 within their host, with the same key.
// Any other redirect is an error that matches [ErrRedirect], and Do does not follow it.
func (c *Client) Do(req *http.Request) (*http.Response, error) {
	last := new(*operation)
	resp, err := c.http.Do(req.WithContext(context.WithValue(req.Context(), lastOf{}, last)))
	if err != nil {
		return nil, unwrap(req, *last, err)
	}
	if err := CheckResponse(resp); err != nil {
		return nil, err
	}
	return resp, nil
}

// Fetch calls Do and reads the response's body. A body of more than 10 MiB is an error.
func (c *Client) Fetch(req *http.Request) ([]byte, error) {
	resp, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	const most = 10 << 20
	//guard:what-fetch-reads-is-bounded 1 = @1
	body, err := io.ReadAll(io.LimitReader(resp.Body, most+1))
	//guard:a-response-to-fetch-has-a-limit false
	if err == nil && len(body) > most {
		err = fmt.Errorf("the response has more than %d bytes", most)
	}
	if err != nil {
		return nil, brokeOff(resp, err)
	}
	return body, nil
}

// brokeOff returns the error of a response whose body could not be read: the vendor acted, but its
// answer is not known.
func brokeOff(resp *http.Response, err error) error {
	ctx := resp.Request.Context()
	class := ClassConnection
	//guard:an-error-of-a-response-ends-nothing = @1
	err = guard.Seal(err)
	var slow interface{ Timeout() bool }
	switch {
	case ctx.Err() != nil:
		class, err = ClassCanceled, contextError(ctx)
	case errors.As(err, &slow) && slow.Timeout():
		class = ClassTimeout
	}
	e := &Error{
		Method: resp.Request.Method, Host: hostOf(resp.Request.URL), Attempts: 1, Class: class, Reason: ReasonFinal,
		Last: &Response{Status: resp.StatusCode, Header: resp.Header, Truncated: true},
		Err:  fmt.Errorf("read the response: %w", err), sent: true, unsure: true,
	}
	if op, ok := ctx.Value(resultOf{}).(*operation); ok {
		e.Attempts = op.attempts
	}
	return e
}

// unwrap removes the url.Error that http.Client puts around an error, because a url.Error shows the
// whole URL. The parameter last is the last operation that the Transport carried out, or nil. If
// http.Client cannot follow the redirect in the last response, its error is not an [Error], and
// unwrap makes one.
func unwrap(req *http.Request, last *operation, err error) error {
	//guard:an-error-of-a-redirect-ends-nothing = @1
	err = guard.Seal(err) // GetBody may have made it
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	var shown *url.Error
	if errors.As(err, &shown) {
		err = guard.Seal(shown.Err)
	}
	e = &Error{Method: req.Method, Host: "?", Class: ClassInvalid, Reason: ReasonRequest, Err: err}
	if req.URL != nil {
		e.Host = hostOf(req.URL)
	}
	if last != nil {
		e.Attempts = last.attempts
		e.sent, e.unsure = last.mayHaveActed(), last.mayHaveActed()
		if last.class == ClassRedirect { // the redirect had a Location that is not an address
			e.Class, e.Reason, e.sent = ClassRedirect, ReasonFinal, true
		}
	}
	return e
}
