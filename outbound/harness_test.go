package outbound_test

import (
	"context"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/postroom/postroom/outbound"
)

// vendor is a RoundTripper that answers from memory, as a server cannot run in
// a synctest bubble.
type vendor struct {
	answer func(n int, req *http.Request) (*http.Response, error)

	mu     sync.Mutex
	calls  []time.Time
	keys   []string
	bodies []string
	open   atomic.Int64 // bodies of responses that are not closed yet
}

func (v *vendor) RoundTrip(req *http.Request) (*http.Response, error) {
	var sent []byte
	if req.Body != nil {
		sent, _ = io.ReadAll(req.Body)
		_ = req.Body.Close()
	}
	v.mu.Lock()
	v.calls = append(v.calls, time.Now())
	v.keys = append(v.keys, req.Header.Get("Idempotency-Key"))
	v.bodies = append(v.bodies, string(sent))
	n := len(v.calls)
	v.mu.Unlock()
	resp, err := v.answer(n, req)
	if resp != nil {
		v.open.Add(1)
		resp.Request, resp.Body = req, &tracked{Reader: resp.Body, open: &v.open}
	}
	return resp, err
}

func (v *vendor) count() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.calls)
}

// tracked is a body that counts as open until it is closed.
type tracked struct {
	io.Reader
	open   *atomic.Int64
	closed bool
}

func (b *tracked) Close() error {
	if !b.closed {
		b.closed = true
		b.open.Add(-1)
	}
	return nil
}

// status is a response; headers are name, value, …
func status(code int, headers ...string) *http.Response {
	resp := &http.Response{
		StatusCode: code, Header: make(http.Header), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Body: io.NopCloser(strings.NewReader("answer")),
	}
	for i := 0; i < len(headers); i += 2 {
		resp.Header.Add(headers[i], headers[i+1])
	}
	return resp
}

// always answers with one status.
func always(code int, headers ...string) *vendor {
	return &vendor{answer: func(int, *http.Request) (*http.Response, error) { return status(code, headers...), nil }}
}

// inTurn answers with one status after the other, and repeats the last.
func inTurn(codes ...int) *vendor {
	return &vendor{answer: func(n int, _ *http.Request) (*http.Response, error) {
		return status(codes[min(n, len(codes))-1]), nil
	}}
}

// hangs answers when the request's context ends.
func hangs(_ int, req *http.Request) (*http.Response, error) {
	<-req.Context().Done()
	return nil, req.Context().Err()
}

var (
	errRefused = &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	errReset   = &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
)

var nolog = log.New(io.Discard, "", 0)

var quiet = slog.New(slog.DiscardHandler)

// client has neither budget nor breaker, unless a test is about them.
func client(next http.RoundTripper, cfg outbound.Config) *outbound.Client {
	cfg.Next, cfg.Logger = next, quiet
	cfg.Budget.Off, cfg.Breaker.Off = true, true
	return outbound.NewClient(cfg)
}

func request(ctx context.Context, t testing.TB, method, body string) *http.Request {
	t.Helper()
	return requestTo(ctx, t, method, "https://api.vendor.example/v1/charges?secret=hush", body)
}

func requestTo(ctx context.Context, t testing.TB, method, url, body string) *http.Request {
	t.Helper()
	var r io.Reader
	if body != "" {
		r = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, url, r)
	if err != nil {
		t.Fatal(err)
	}
	return req
}
