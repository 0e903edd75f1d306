package outbound_test

import (
	"errors"
	"net/http"
	"testing"

	"github.com/postroom/postroom/outbound"
)

// The vendor acts on a POST and sends the caller on to what came of it. Whatever becomes
// of that, it is not said that nothing was done.
func TestARedirectAfterTheDeed(t *testing.T) {
	answer := func(code int, headers ...string) func() (*http.Response, error) {
		return func() (*http.Response, error) { return status(code, headers...), nil }
	}
	for name, then := range map[string]struct {
		to   string
		next func() (*http.Response, error)
	}{
		"no connection":        {"/charges/1", func() (*http.Response, error) { return nil, errRefused }},
		"not there yet":        {"/charges/1", answer(404)},
		"round and round":      {"/charges/1", answer(303, "Location", "/charges/1")},
		"on to a third":        {"/charges/1", answer(302, "Location", "ftp://api.vendor.example/")},
		"to no address":        {"http://[::1", nil},
		"to another protocol":  {"ftp://api.vendor.example/", nil},
		"to another host":      {"https://other.example/", answer(404)},
		"with a key all along": {"/charges/1", answer(404)},
	} {
		t.Run(name, func(t *testing.T) {
			v := &vendor{answer: func(n int, _ *http.Request) (*http.Response, error) {
				if n == 1 {
					return status(303, "Location", then.to), nil
				}
				return then.next()
			}}
			ctx, cfg := t.Context(), outbound.Config{Attempts: 1}
			if name == "with a key all along" {
				ctx = outbound.WithKey(ctx, "k")
			}
			_, err := client(v, cfg).Do(request(ctx, t, "POST", "x"))
			if err == nil || outbound.NotDone(err) || errors.Is(err, outbound.ErrRejected) || errors.Is(err, outbound.ErrNotSent) {
				t.Errorf("%v: says that the vendor did nothing", err)
			}
		})
	}
	// What was only sent on was not done, and reading does nothing.
	for method, code := range map[string]int{"POST": 307, "GET": 302} {
		v := &vendor{answer: func(n int, _ *http.Request) (*http.Response, error) {
			if n == 1 {
				return status(code, "Location", "/next"), nil
			}
			return status(404), nil
		}}
		_, err := client(v, outbound.Config{Attempts: 1}).Do(request(outbound.WithKey(t.Context(), "k"), t, method, "x"))
		if !outbound.NotDone(err) {
			t.Errorf("%s, %d: %v", method, code, err)
		}
	}
}
