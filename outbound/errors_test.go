package outbound_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/outbound"
)

func TestErrorsNameTheirCause(t *testing.T) {
	tests := []struct {
		name   string
		next   http.RoundTripper
		cfg    outbound.Config
		method string
		want   string
	}{
		{"all attempts", always(503), outbound.Config{}, "GET", "outbound: GET api.vendor.example: 503 Service Unavailable; given up after 5 attempts"},
		{"the end", always(404), outbound.Config{}, "GET", "outbound: GET api.vendor.example: 404 Not Found"},
		{"no key", always(500), outbound.Config{}, "POST", "outbound: POST api.vendor.example: 500 Internal Server Error; not tried again, because the vendor may have acted and got no key to recognise a repetition"},
		{"a long wait", always(429, "Retry-After", "90"), outbound.Config{}, "GET", "outbound: GET api.vendor.example: 429 Too Many Requests; the vendor asks to wait 1m30s"},
		{"no time", always(503, "Retry-After", "9"), outbound.Config{Total: time.Second}, "GET", "outbound: GET api.vendor.example: 503 Service Unavailable; not tried again after 1 attempts, because no time is left"},
		{"a timeout", &vendor{answer: hangs}, outbound.Config{Attempts: 1}, "GET", "outbound: GET api.vendor.example: no answer within 5s; given up after 1 attempts"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, err := client(tt.next, tt.cfg).Do(request(t.Context(), t, tt.method, ""))
				if err == nil || err.Error() != tt.want {
					t.Errorf("%v\nwant %s", err, tt.want)
				}
			})
		})
	}
}

// No text of an error shows secrets of a URL or a header.
func TestErrorsShowNoSecrets(t *testing.T) {
	inner := &url.Error{Op: "Post", URL: "https://user:hush@login.example:8443/hush?client_secret=hush", Err: io.ErrUnexpectedEOF}
	nexts := map[string]http.RoundTripper{
		"a library's":  &vendor{answer: func(int, *http.Request) (*http.Response, error) { return nil, fmt.Errorf("fetch token: %w", inner) }},
		"a response's": always(500),
		"a redirect's": &vendor{answer: func(int, *http.Request) (*http.Response, error) {
			return status(302, "Location", "https://api.vendor.example/hush?secret=hush"), nil
		}},
		"a redirect that is none": &vendor{answer: func(int, *http.Request) (*http.Response, error) {
			return status(302, "Location", "https://%zz/hush?secret=hush"), nil
		}},
	}
	for name, next := range nexts {
		t.Run(name, func(t *testing.T) {
			req := requestTo(t.Context(), t, "GET", "https://user:hush@api.vendor.example/hush?secret=hush", "")
			req.Header.Set("Authorization", "Bearer hush")
			_, err := client(next, outbound.Config{Schedule: soon}).Do(req)
			var e *outbound.Error
			if !errors.As(err, &e) || strings.Contains(err.Error(), "hush") {
				t.Errorf("%v", err)
			}
			if name == "a library's" && (!errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(err.Error(), "login.example:8443")) {
				t.Errorf("%v has lost its cause", err)
			}
		})
	}
}

func TestCheckOfOtherResponses(t *testing.T) {
	ok := status(204)
	ok.Request = request(t.Context(), t, "GET", "")
	if err := outbound.CheckResponse(ok); err != nil {
		t.Errorf("CheckResponse of 204 = %v", err)
	}
	bare := status(503, "Retry-After", "7")
	err := outbound.CheckResponse(bare)
	var e *outbound.Error
	if !errors.As(err, &e) || e.Class != outbound.ClassUnavailable || string(e.Last.Body) != "answer" || errors.Is(err, postroom.ErrNotApplied) {
		t.Errorf("CheckResponse of a response made by hand = %v", err)
	}
	if d, ok := postroom.RetryDelay(outbound.ForHandler(err)); !ok || d != 7*time.Second {
		t.Errorf("asks to wait %s, want 7s", d)
	}
	if bad := status(400); !errors.Is(outbound.CheckResponse(bad), postroom.ErrNotApplied) {
		t.Error("the error of a 400 does not say that the vendor did nothing")
	}
}

// If a call was not sent, the event is snoozed. If it was sent, the event is not snoozed, whatever
// the reason why there was no further attempt.
func TestCallsThatWereNotSentForHandlers(t *testing.T) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	for name, tt := range map[string]struct {
		vendor  *vendor
		cfg     outbound.Config
		snoozed bool
	}{
		"no connection":          {&vendor{answer: fails(refused)}, outbound.Config{Attempts: 2, Schedule: soon}, true},
		"no address":             {&vendor{answer: fails(&net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "x", IsNotFound: true}})}, outbound.Config{Attempts: 1}, true},
		"a connection that ends": {&vendor{answer: fails(errReset)}, outbound.Config{Attempts: 1}, false},
		"an outage":              {always(503), outbound.Config{Attempts: 1}, false},
		"a refusal":              {always(400), outbound.Config{}, false},
	} {
		req := request(outbound.WithKey(t.Context(), "k"), t, "POST", "x")
		_, err := client(tt.vendor, tt.cfg).Do(req)
		tt.cfg.Next, tt.cfg.Logger = tt.vendor, quiet
		resp, wrapped := (&http.Client{Transport: outbound.NewTransport(tt.cfg)}).Do(req) // as in a vendor's own library
		if resp != nil {
			_ = resp.Body.Close()
		}
		for _, err := range []error{err, wrapped} {
			after, snoozed := postroom.SnoozeDelay(outbound.ForHandler(err))
			if want := tt.snoozed && err != nil; snoozed != want || snoozed && after != 15*time.Second || !errors.Is(outbound.ForHandler(err), err) {
				t.Errorf("%s: snoozed %t for %s: %v", name, snoozed, after, err)
			}
		}
		if tt.snoozed && wrapped == nil {
			t.Errorf("%s: the library got an answer", name)
		}
	}
}

// A host whose certificate is bad, or that speaks no TLS, gets nothing. Another attempt would end the
// same way, so the event is dead, and does not wait unseen.
func TestBadCertificatesForHandlers(t *testing.T) {
	cut, _ := serve(t, func(http.ResponseWriter, *http.Request) {})
	bad := httptest.NewUnstartedServer(http.NotFoundHandler())
	bad.Config.ErrorLog = nolog
	bad.StartTLS()
	t.Cleanup(bad.Close)
	for name, url := range map[string]string{
		"an unknown certificate": bad.URL,
		"no TLS there":           strings.Replace(cut.URL, "http:", "https:", 1),
	} {
		_, err := real(t, outbound.Config{}).Fetch(requestTo(outbound.WithKey(t.Context(), "k"), t, "POST", url, "x"))
		if told := outbound.ForHandler(err); !errors.Is(told, postroom.ErrPermanent) || !errors.Is(err, postroom.ErrNotApplied) {
			t.Errorf("%s: %v", name, told)
		}
	}
}

// A conflict is final, unless it may be about an earlier call with the same key.
func TestConflictsForHandlers(t *testing.T) {
	for key, permanent := range map[string]bool{"": true, "k": false} {
		_, err := client(always(409), outbound.Config{}).Do(request(outbound.WithKey(t.Context(), key), t, "POST", "x"))
		if got := errors.Is(outbound.ForHandler(err), postroom.ErrPermanent); got != permanent || errors.Is(err, postroom.ErrNotApplied) {
			t.Errorf("with key %q: permanent: %v, want %v; %v", key, got, permanent, err)
		}
	}
}

// The vendor's word counts more than the status. If the vendor says that another attempt may
// succeed, the error is not permanent for a handler. If it does not say so, or says to stop, the
// error is permanent.
func TestAnswersToTryAgainForHandlers(t *testing.T) {
	const transient, again = "transient-error", "Stripe-Should-Retry"
	decides := func(d outbound.Decision) func(*http.Response, error) outbound.Decision {
		return func(*http.Response, error) outbound.Decision { return d }
	}
	for name, tt := range map[string]struct {
		protocol  outbound.Protocol
		answer    *vendor
		decide    func(*http.Response, error) outbound.Decision
		key       string
		permanent bool
	}{
		"transient":                 {outbound.Adyen(), always(422, transient, "true"), nil, "k", false},
		"may be under way":          {outbound.Adyen(), always(422), nil, "k", false},
		"no key, so not under way":  {outbound.Adyen(), always(422), nil, "", true},
		"under way, but stop":       {outbound.Adyen(), always(422), decides(outbound.Stop), "k", true},
		"kept under the key":        {outbound.Adyen(), always(422, "Idempotent-Replayed", "true"), nil, "k", true},
		"not under way":             {outbound.Adyen(), always(400), nil, "k", true},
		"should be retried":         {outbound.Stripe(), always(400, again, "true"), nil, "k", false},
		"should be retried, no key": {outbound.Stripe(), always(400, again, "true"), nil, "", false},
		"should not be retried":     {outbound.Stripe(), always(400, again, "false"), nil, "k", true},
		"refused, to be retried":    {outbound.Protocol{}, always(403), decides(outbound.Retry), "k", false},
		"refused":                   {outbound.Protocol{}, always(403), nil, "k", true},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := outbound.Config{Protocol: tt.protocol, Attempts: 2, Decide: tt.decide, Schedule: outbound.Exponential{Base: 1, Cap: 1}}
			_, err := client(tt.answer, cfg).Do(request(outbound.WithKey(t.Context(), tt.key), t, "POST", "x"))
			if got := errors.Is(outbound.ForHandler(err), postroom.ErrPermanent); err == nil || got != tt.permanent {
				t.Errorf("permanent: %v, want %v: %v", got, tt.permanent, err)
			}
		})
	}
}

// source is the body of a request, and reads from another source that may fail.
type source struct{ err error }

func (s source) Read([]byte) (int, error) { return 0, s.err }
func (s source) Close() error             { return nil }

// If a body could not be read this time, the event is not given up for ever.
func TestBodiesForHandlers(t *testing.T) {
	for name, tt := range map[string]struct {
		err       error
		permanent bool
	}{
		"a time limit":            {fmt.Errorf("read object: %w", context.DeadlineExceeded), false},
		"a connection":            {fmt.Errorf("read object: %w", errReset), false},
		"a text that breaks off":  {io.ErrUnexpectedEOF, false},
		"a source that says no":   {errors.New("no such object"), true},
		"a body that is too long": {nil, true},
	} {
		req := request(outbound.WithKey(t.Context(), "k"), t, "POST", "x")
		if req.GetBody = nil; tt.err != nil {
			req.Body, req.ContentLength = source{tt.err}, -1
		} else {
			req.Body, req.ContentLength = io.NopCloser(strings.NewReader(strings.Repeat("x", 100))), -1
		}
		_, err := client(always(200), outbound.Config{MaxBody: 10}).Do(req)
		if got := errors.Is(outbound.ForHandler(err), postroom.ErrPermanent); err == nil || got != tt.permanent {
			t.Errorf("%s: permanent: %v, want %v; %v", name, got, tt.permanent, err)
		}
	}
}

// If a body cannot be read again, or broke off, it is not sent as if it were complete.
func TestBodiesThatAreNotWhole(t *testing.T) {
	refused := &vendor{answer: func(int, *http.Request) (*http.Response, error) { return nil, errRefused }}
	req := request(t.Context(), t, "POST", "x") // without a key it is not kept in memory
	req.GetBody = nil
	var e *outbound.Error
	if _, err := client(refused, outbound.Config{Schedule: soon}).Do(req); !errors.As(err, &e) || e.Reason != outbound.ReasonRequest || refused.count() != 1 {
		t.Errorf("%v after %d calls, want one", err, refused.count())
	}
	v := always(200)
	req = request(outbound.WithKey(t.Context(), "k"), t, "POST", "abc")
	req.GetBody, req.ContentLength = nil, 5
	if _, err := client(v, outbound.Config{}).Do(req); err == nil || v.count() != 0 {
		t.Errorf("%v after %d calls, want none", err, v.count())
	}
}

// The text of an error has no header of a response, even if net/http quotes it.
func TestErrorsQuoteNoHeader(t *testing.T) {
	for name, answer := range map[string]string{
		"a header without a colon":        "HTTP/1.1 200 OK\r\nset-cookie hush-7\r\n\r\n",
		"a location that is no address":   "HTTP/1.1 307 Temporary Redirect\r\nLocation: http://[hush-7\r\nContent-Length: 0\r\n\r\n",
		"another location":                "HTTP/1.1 307 Temporary Redirect\r\nLocation: http://a b/%zzhush-7 hush-7\r\nContent-Length: 0\r\n\r\n",
		"a length that is no number":      "HTTP/1.1 200 OK\r\nContent-Length: hush-7\r\n\r\n",
		"two lengths":                     "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: hush-7\r\n\r\n",
		"an encoding that does not exist": "HTTP/1.1 200 OK\r\nTransfer-Encoding: hush-7\r\n\r\n",
		"two encodings":                   "HTTP/1.1 200 OK\r\nTransfer-Encoding: hush-7\r\nTransfer-Encoding: hush-7\r\n\r\n",
		"a trailer that cannot be one":    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: Content-Length, hush-7\r\n\r\n0\r\n\r\n",
		"a status that is no number":      "HTTP/1.1 hush-7 OK\r\n\r\n",
		"a line that is no status":        "hush-7\r\n\r\n",
		"another version":                 "HTTP/hush-7 200 OK\r\n\r\n",
	} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 64<<10))
			_, _ = io.WriteString(conn, answer)
			_ = conn.Close()
		}()
		c := outbound.NewClient(outbound.Config{Attempts: 1, Logger: quiet, Next: &http.Transport{}})
		_, err = c.Fetch(requestTo(t.Context(), t, "POST", "http://"+listener.Addr().String(), "x"))
		_ = listener.Close()
		if err == nil || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: %v, want an error without the header", name, err)
		}
	}
}
