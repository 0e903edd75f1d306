package outbound_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/outbound"
)

// fails answers each attempt with an error.
func fails(err error) func(int, *http.Request) (*http.Response, error) {
	return func(int, *http.Request) (*http.Response, error) { return nil, err }
}

// A request that was made by hand may have no map of headers.
func TestARequestWithoutHeaders(t *testing.T) {
	for _, key := range []string{"k", ""} { // a key is sent in a header, too
		v := always(200)
		req := &http.Request{Method: "POST", URL: &url.URL{Scheme: "https", Host: "api.vendor.example"}, Body: io.NopCloser(strings.NewReader("x"))}
		if key != "" {
			req = req.WithContext(outbound.WithKey(t.Context(), key))
		}
		err := orPanic(func() error { // without a Client, because http.Client adds a map
			resp, err := outbound.NewTransport(outbound.Config{Next: v, Logger: quiet, TimeoutHeader: "X-Timeout"}).RoundTrip(req)
			if err == nil {
				err = resp.Body.Close()
			}
			return err
		})
		if err != nil || v.keys[0] != key {
			t.Errorf("%v, sent with the keys %q", err, v.keys)
		}
	}
}

// orPanic returns the error of f, or the value with which it panicked as an error.
func orPanic(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("it panicked: %v", v)
		}
	}()
	return f()
}

// A response that was made by hand may have no body.
func TestAResponseWithoutABody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for code, want := range map[int]outbound.Class{200: "", 503: outbound.ClassUnavailable} {
			bare := roundTripper(func(req *http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: code, Header: http.Header{}, Request: req}, nil
			})
			err := orPanic(func() error {
				_, err := client(bare, outbound.Config{}).Fetch(request(t.Context(), t, "GET", ""))
				return err
			})
			var e *outbound.Error
			if errors.As(err, &e); (want == "") != (err == nil) || e != nil && e.Class != want {
				t.Errorf("%d: %v, want class %q", code, err, want)
			}
		}
	})
}

// A request with http.NoBody keeps it: an empty body of another kind would be sent in chunks.
func TestRequestWithoutABodyStaysWithoutOne(t *testing.T) {
	v := roundTripper(func(req *http.Request) (*http.Response, error) {
		if req.Body != http.NoBody {
			t.Errorf("sent with a body of type %T", req.Body)
		}
		return status(200), nil
	})
	req := request(outbound.WithKey(t.Context(), "k"), t, "POST", "")
	req.Body, req.GetBody = http.NoBody, nil
	resp, err := client(v, outbound.Config{}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
}

// A header with the length is corrected, because the key changes the length of the body.
func TestLengthIsThatOfTheSentBody(t *testing.T) {
	v := &vendor{answer: func(_ int, req *http.Request) (*http.Response, error) {
		if got := req.Header.Get("Content-Length"); got != "" {
			t.Errorf("sent with the header Content-Length: %s", got)
		}
		return status(200), nil
	}}
	req := request(outbound.WithKey(t.Context(), "k"), t, "POST", `{"n":1}`)
	req.Header.Set("Content-Length", "7")
	_, err := client(v, outbound.Config{Protocol: outbound.Protocol{Field: "request_id"}}).Fetch(req)
	if err != nil || v.bodies[0] != `{"request_id":"k","n":1}` {
		t.Errorf("%v, sent %q", err, v.bodies)
	}
}

// fragileBody fails after it was closed, as files do.
type fragileBody struct {
	io.Reader
	closed bool
}

var errClosed = errors.New("file already closed")

func (f *fragileBody) Close() error { f.closed = true; return nil }
func (f *fragileBody) Read(p []byte) (int, error) {
	if f.closed {
		return 0, errClosed
	}
	return f.Reader.Read(p)
}

// Next may close a body and read on, as http.Transport may do when a connection breaks. That is not
// a fault of the caller's body.
func TestAReadBehindTheEndIsNoFaultOfTheBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		v := roundTripper(func(req *http.Request) (*http.Response, error) {
			n++
			_ = req.Body.Close()
			_, _ = req.Body.Read(make([]byte, 1))
			return nil, errReset
		})
		req := request(outbound.WithKey(t.Context(), "k"), t, "POST", "x")
		req.GetBody = func() (io.ReadCloser, error) { return &fragileBody{Reader: strings.NewReader("x")}, nil }
		req.Body, _ = req.GetBody()
		_, err := client(v, outbound.Config{}).Fetch(req)
		var e *outbound.Error
		if !errors.As(err, &e) || e.Class != outbound.ClassConnection || n != 5 {
			t.Errorf("%v after %d attempts, want five of class connection", err, n)
		}
	})
}

// Config.Decide is asked before the protocol. After a decision, nothing else is asked.
func TestTheOrderOfDeciding(t *testing.T) {
	says := func(d outbound.Decision) func(*http.Response, error) outbound.Decision {
		return func(*http.Response, error) outbound.Decision { return d }
	}
	protocol := outbound.Protocol{Header: "Idempotency-Key", Decide: func(resp *http.Response) outbound.Decision {
		if resp == nil {
			t.Error("the protocol is asked about no response")
		}
		return outbound.Retry
	}}
	kept := []string{"Idempotent-Replayed", "true"}
	tests := []struct {
		name   string
		cfg    outbound.Config
		answer func(int, *http.Request) (*http.Response, error)
		want   int
	}{
		{"the config stops what the protocol repeats", outbound.Config{Decide: says(outbound.Stop), Protocol: protocol}, always(404).answer, 1},
		{"the config leaves it to the protocol", outbound.Config{Decide: says(outbound.Undecided), Protocol: protocol}, always(404).answer, 5},
		{"the config repeats what is kept", outbound.Config{Decide: says(outbound.Retry)}, always(503, kept...).answer, 5},
		{"a stored answer is not repeated", outbound.Config{}, always(503, kept...).answer, 1},
		{"the protocol is not asked about an error", outbound.Config{Protocol: protocol}, fails(errReset), 5},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := &vendor{answer: tt.answer}
				_, err := client(v, tt.cfg).Fetch(request(outbound.WithKey(t.Context(), "k"), t, "POST", "x"))
				if err == nil || v.count() != tt.want {
					t.Errorf("%d attempts, %v; want %d", v.count(), err, tt.want)
				}
			})
		})
	}
}

// If the caller ended an attempt, Decide is not called.
func TestDecideIsNotCalledIfTheCallerEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		asked := 0
		cfg := outbound.Config{Decide: func(*http.Response, error) outbound.Decision { asked++; return outbound.Undecided }}
		_, err := client(&vendor{answer: hangs}, cfg).Fetch(request(ctx, t, "GET", ""))
		if !errors.Is(err, context.DeadlineExceeded) || asked != 0 {
			t.Errorf("%v, and Decide was asked %d times", err, asked)
		}
	})
}

// If Decide calls a response a failure, it is one, even if its status is a success.
func TestASuccessThatIsRefusedIsAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, code := range []int{200, 409} {
			cfg := outbound.Config{Decide: func(*http.Response, error) outbound.Decision { return outbound.Retry }}
			_, err := client(always(code), cfg).Fetch(request(t.Context(), t, "GET", ""))
			var e *outbound.Error
			if !errors.As(err, &e) || e.Class != outbound.ClassBusy || e.Attempts != 5 {
				t.Errorf("%d: %v, want a failure of class busy after five attempts", code, err)
			}
		}
	})
}

// If Next does not report its connections, some of its errors still show that nothing was sent.
func TestSomeErrorsSayThatNothingWasSent(t *testing.T) {
	for name, err := range map[string]error{
		"no such host":    &net.OpError{Op: "lookup", Err: &net.DNSError{Err: "no such host", Name: "api.vendor.example", IsNotFound: true}},
		"no proxy":        &net.OpError{Op: "proxyconnect", Err: errors.New("refused")},
		"no server":       errRefused,
		"Next says so":    fmt.Errorf("limiter: %w", outbound.ErrNotSent),
		"a broken answer": errReset,
	} {
		v := &vendor{answer: fails(err)}
		_, got := client(v, outbound.Config{Attempts: 1}).Fetch(request(t.Context(), t, "POST", "x"))
		if want := name != "a broken answer"; errors.Is(got, postroom.ErrNotApplied) != want {
			t.Errorf("%s: %v, reports that the vendor did nothing: %t, want %t", name, got, !want, want)
		}
		if _, snoozed := postroom.SnoozeDelay(outbound.ForHandler(got)); snoozed != (name != "a broken answer") {
			t.Errorf("%s: a handler returns %v", name, outbound.ForHandler(got))
		}
	}
}

// Settings that make no sense are refused.
func TestSettingsOfLimits(t *testing.T) {
	probes := math.MaxInt32
	probes++
	for _, tt := range []struct {
		cfg  outbound.Config
		want string
	}{
		{outbound.Config{Breaker: outbound.Breaker{Ratio: -1}}, "Breaker: Ratio is -1"},
		{outbound.Config{Breaker: outbound.Breaker{Ratio: 1.5}}, "Breaker: Ratio is 1.5"},
		{outbound.Config{Breaker: outbound.Breaker{Ratio: math.NaN()}}, "Breaker: Ratio is NaN"},
		{outbound.Config{Breaker: outbound.Breaker{Probes: probes}}, "Breaker: Probes is "},
		{outbound.Config{Budget: outbound.Budget{Ratio: -1}}, "Budget: Ratio is -1"},
		{outbound.Config{Budget: outbound.Budget{Ratio: math.NaN()}}, "Budget: Ratio is NaN"},
	} {
		if err := outbound.NewTransport(tt.cfg).Check(t.Context()); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("Check = %v, want %q", err, tt.want)
		}
	}
}
