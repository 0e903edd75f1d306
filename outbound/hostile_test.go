package outbound_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
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

// An error of the next RoundTripper's is classified whatever its methods do, and a caller
// finds in it what is there.
func TestErrorsOfNextThatFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &vendor{answer: func(int, *http.Request) (*http.Response, error) { return nil, endless{} }}
		_, err := client(v, outbound.Config{Schedule: soon}).Do(request(t.Context(), t, "GET", ""))
		var e *outbound.Error
		var inner endless
		if !errors.As(err, &e) || e.Class != outbound.ClassConnection || e.Attempts != 5 {
			t.Fatalf("%+v, want five attempts of class connection", e)
		}
		if !errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.ErrNoProgress) || !errors.As(err, &inner) || len(err.Error()) > 1000 || strings.Contains(err.Error(), "hush") {
			t.Errorf("an error of %d bytes, want what is in it, and no more", len(err.Error()))
		}
	})
}
