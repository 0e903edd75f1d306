package outbound_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

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
	if !errors.As(err, &e) || e.Class != outbound.ClassConnection || outbound.NotApplied(err) {
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
