package outbound_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/outbound"
)

// endless is an error that contains itself, at length.
type endless struct{}

func (e endless) Error() string {
	return strings.Repeat("https://user:hush@api.vendor.example/ ", 100_000)
}
func (e endless) Unwrap() []error { return []error{io.ErrUnexpectedEOF, e, e} }

// If methods of Next's error panic, the error still gets its class, and a caller can unwrap it.
func TestErrorsWhoseMethodsFailAreClassified(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &vendor{answer: func(int, *http.Request) (*http.Response, error) { return nil, endless{} }}
		_, err := client(v, outbound.Config{Schedule: soon}).Do(request(t.Context(), t, "GET", ""))
		var e *outbound.Error
		var inner endless
		if !errors.As(err, &e) || e.Class != outbound.ClassConnection || e.Attempts != 5 {
			t.Fatalf("%+v, want five attempts of class connection", e)
		}
		if !errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.ErrNoProgress) || !errors.As(err, &inner) || len(err.Error()) > 1000 || strings.Contains(err.Error(), "hush") {
			t.Errorf("an error of %d bytes, want no more than its content", len(err.Error()))
		}
	})
}

// If Next returns both a response and an error, or neither, the attempt has failed.
func TestANextThatBreaksItsContract(t *testing.T) {
	both := &vendor{answer: func(int, *http.Request) (*http.Response, error) { return status(200), errReset }}
	_, err := client(both, outbound.Config{Attempts: 1}).Do(request(t.Context(), t, "GET", ""))
	if !errors.Is(err, errReset) || both.open.Load() != 0 {
		t.Errorf("both: %v, and %d bodies are open", err, both.open.Load())
	}
	neither := roundTripper(func(*http.Request) (*http.Response, error) { return nil, nil }) //nolint:nilnil // this is what it is about
	_, err = client(neither, outbound.Config{Attempts: 1}).Do(request(t.Context(), t, "GET", ""))
	var e *outbound.Error
	if !errors.As(err, &e) || e.Class != outbound.ClassConnection || errors.Is(err, postroom.ErrNotApplied) {
		t.Errorf("neither: %v, want a failure with an unknown outcome", err)
	}
}

// once is a body that counts how often it is closed.
type once struct {
	io.Reader
	closed atomic.Int64
}

func (o *once) Close() error { o.closed.Add(1); return nil }

// The caller's body is closed only once, because a second Close is not defined.
func TestABodyIsClosedOnce(t *testing.T) {
	twice := roundTripper(func(req *http.Request) (*http.Response, error) {
		_, _ = io.Copy(io.Discard, req.Body)
		_, _ = req.Body.Close(), req.Body.Close() // as http.Transport may
		return status(200), nil
	})
	sent := &once{Reader: strings.NewReader("x")}
	req, err := http.NewRequestWithContext(t.Context(), "POST", "https://api.vendor.example/", sent)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client(twice, outbound.Config{}).Fetch(req); err != nil || sent.closed.Load() != 1 {
		t.Errorf("%v, closed %d times", err, sent.closed.Load())
	}
}

// odd is an error whose methods panic.
type odd struct{}

func (odd) Error() string   { panic("Error") }
func (odd) Is(error) bool   { panic("Is") }
func (odd) As(any) bool     { panic("As") }
func (odd) Unwrap() error   { panic("Unwrap") }
func (odd) Timeout() bool   { panic("Timeout") }
func (odd) Temporary() bool { panic("Temporary") }

// oddReader fails with an odd error.
type oddReader struct{ err error }

func (r oddReader) Read([]byte) (int, error) { return 0, r.err }

// The cause of a context, and the errors of a caller's functions and bodies, may be of any type. If
// their methods panic or do not return, the operation ends with an error.
func TestOddCausesAndErrorsEndNothing(t *testing.T) {
	for _, strange := range []error{odd{}, endless{}} { // the second ends the process, and not only the test
		if t.Failed() {
			return
		}
		cancel := func(ctx context.Context, cancel context.CancelCauseFunc) context.Context {
			cancel(strange)
			return ctx
		}
		for what, call := range map[string]func() error{
			"a context that has ended": func() error {
				_, err := client(always(200), outbound.Config{}).Fetch(request(cancel(context.WithCancelCause(t.Context())), t, "GET", ""))
				return err
			},
			"a context that ends during an attempt": func() error {
				ctx, cancel := context.WithCancelCause(t.Context())
				v := &vendor{answer: func(n int, req *http.Request) (*http.Response, error) { cancel(strange); return hangs(n, req) }}
				_, err := client(v, outbound.Config{}).Fetch(request(ctx, t, "GET", ""))
				return err
			},
			"a context that ends during a wait": func() error {
				ctx, cancel := context.WithCancelCause(t.Context())
				v := &vendor{answer: func(int, *http.Request) (*http.Response, error) { cancel(strange); return status(503), nil }}
				_, err := client(v, outbound.Config{Schedule: soon}).Fetch(request(ctx, t, "GET", ""))
				return err
			},
			"a context that ends while the response is read": func() error {
				ctx, cancel := context.WithCancelCause(t.Context())
				v := &vendor{answer: func(int, *http.Request) (*http.Response, error) {
					cancel(strange)
					resp := status(200)
					resp.Body = io.NopCloser(oddReader{strange})
					return resp, nil
				}}
				_, err := client(v, outbound.Config{}).Fetch(request(ctx, t, "GET", ""))
				return err
			},
			"the body of a response": func() error {
				v := &vendor{answer: func(int, *http.Request) (*http.Response, error) {
					resp := status(200)
					resp.Body = io.NopCloser(oddReader{strange})
					return resp, nil
				}}
				_, err := client(v, outbound.Config{}).Fetch(request(t.Context(), t, "GET", ""))
				return err
			},
			"the body of a failure": func() error {
				v := &vendor{answer: func(int, *http.Request) (*http.Response, error) {
					resp := status(409, "Content-Type", "application/json")
					resp.Body = io.NopCloser(oddReader{strange})
					return resp, nil
				}}
				_, err := client(v, outbound.Config{}).Fetch(request(t.Context(), t, "POST", "x"))
				return err
			},
			"a body that is kept": func() error {
				req := request(outbound.WithKey(t.Context(), "k"), t, "POST", "x")
				req.Body, req.GetBody = io.NopCloser(oddReader{strange}), nil
				_, err := outbound.NewTransport(outbound.Config{Next: always(200), Logger: quiet}).RoundTrip(req)
				return err
			},
			"a body that is sent": func() error {
				req := request(t.Context(), t, "POST", "x")
				req.Body, req.GetBody = io.NopCloser(oddReader{strange}), nil
				next := roundTripper(func(req *http.Request) (*http.Response, error) {
					_, err := req.Body.Read(make([]byte, 1))
					return nil, err
				})
				_, err := client(next, outbound.Config{}).Fetch(req)
				return err
			},
			"GetBody": func() error {
				req := request(outbound.WithKey(t.Context(), "k"), t, "POST", "x")
				req.GetBody = func() (io.ReadCloser, error) { return nil, strange }
				_, err := outbound.NewTransport(outbound.Config{Next: always(503), Logger: quiet, Schedule: soon}).RoundTrip(req)
				return err
			},
			"GetBody behind a redirect": func() error {
				calls := 0
				req := request(outbound.WithKey(t.Context(), "k"), t, "POST", "x")
				req.GetBody = func() (io.ReadCloser, error) {
					if calls++; calls > 1 {
						return nil, strange
					}
					return io.NopCloser(strings.NewReader("x")), nil
				}
				_, err := client(always(307, "Location", "/there"), outbound.Config{}).Fetch(req)
				return err
			},
			"Refresh": func() error {
				refresh := func(*http.Request) (string, error) { return "", strange }
				_, err := client(always(401), outbound.Config{Refresh: refresh}).Fetch(request(t.Context(), t, "GET", ""))
				return err
			},
		} {
			t.Run(fmt.Sprintf("%s %T", what, strange), func(t *testing.T) {
				var told error
				err := orPanic(func() error {
					err := call()
					told = outbound.ForHandler(err)
					_, _, _ = errors.Is(err, postroom.ErrNotApplied), errors.Is(err, io.ErrNoProgress), err.Error()
					return err
				})
				var e *outbound.Error
				if !errors.As(err, &e) || told == nil || strings.Contains(err.Error(), "it panicked") {
					t.Errorf("%v, want an *Error", err)
				}
			})
		}
	}
}
