package outbound_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postroom/postroom/outbound"
)

// soon is a schedule without waits, for tests with real servers.
var soon = outbound.Exponential{Base: time.Microsecond, Cap: time.Microsecond}

// serve starts a server, and returns it with how many connections it had.
func serve(t *testing.T, h http.HandlerFunc) (*httptest.Server, *atomic.Int64) {
	t.Helper()
	var connections atomic.Int64
	s := httptest.NewUnstartedServer(h)
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	return s, &connections
}

func real(t *testing.T, cfg outbound.Config) *outbound.Client {
	t.Helper()
	if cfg.Schedule == nil {
		cfg.Schedule = soon
	}
	c := client(cfg.Next, cfg)
	t.Cleanup(c.HTTP().CloseIdleConnections)
	return c
}

// TestBodiesAreRewound sends a body of random bytes three times, for each way in which a request
// can have its body.
func TestBodiesAreRewound(t *testing.T) {
	sent := make([]byte, 300_000)
	_, _ = rand.NewChaCha8([32]byte{}).Read(sent) // never fails
	want := fmt.Sprintf("%x", sha256.Sum256(sent))
	tests := map[string]struct {
		body   func() io.Reader
		length int64
	}{
		"with GetBody":                    {func() io.Reader { return bytes.NewReader(sent) }, int64(len(sent))},
		"without GetBody":                 {func() io.Reader { return io.MultiReader(bytes.NewReader(sent)) }, int64(len(sent))},
		"without GetBody, of any length":  {func() io.Reader { return io.MultiReader(bytes.NewReader(sent)) }, -1},
		"without GetBody, length not set": {func() io.Reader { return io.MultiReader(bytes.NewReader(sent)) }, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var got, keys []string
			s, connections := serve(t, func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				mu.Lock()
				defer mu.Unlock()
				got, keys = append(got, fmt.Sprintf("%x", sha256.Sum256(body))), append(keys, r.Header.Get("Idempotency-Key"))
				if err != nil || len(got) < 3 {
					w.WriteHeader(http.StatusServiceUnavailable)
					_, _ = w.Write(bytes.Repeat([]byte("no"), 10_000))
				}
			})
			req, err := http.NewRequestWithContext(outbound.WithKey(t.Context(), "k1"), "POST", s.URL, tt.body())
			if err != nil {
				t.Fatal(err)
			}
			req.ContentLength = tt.length
			before := req.Header.Clone()
			if _, err := real(t, outbound.Config{}).Fetch(req); err != nil {
				t.Fatal(err)
			}
			mu.Lock()
			defer mu.Unlock()
			if len(got) != 3 || got[0] != want || got[1] != want || got[2] != want {
				t.Errorf("got %d bodies, %v, want three of %s", len(got), got, want)
			}
			if strings.Join(keys, " ") != "k1 k1 k1" {
				t.Errorf("keys %q", keys)
			}
			if n := connections.Load(); n != 1 {
				t.Errorf("%d connections, want the first to be used again", n)
			}
			if len(req.Header) != len(before) {
				t.Errorf("the request was changed: %v", req.Header)
			}
		})
	}
}

func TestBodiesThatCannotBeRewound(t *testing.T) {
	calls := new(atomic.Int64)
	s, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	long := func() *closing { return &closing{Reader: strings.NewReader(strings.Repeat("x", 2000))} }
	c := real(t, outbound.Config{MaxBody: 1000})

	for _, length := range []int64{-1, 2000} {
		body := long()
		req, _ := http.NewRequestWithContext(outbound.WithKey(t.Context(), "k"), "POST", s.URL, body)
		req.ContentLength = length
		_, err := c.Fetch(req)
		if err == nil || !strings.Contains(err.Error(), "GetBody") || !errors.Is(err, outbound.ErrNotSent) || calls.Load() != 0 {
			t.Errorf("Fetch = %v after %d calls, want a refusal that says what to do", err, calls.Load())
		}
		if !body.closed.Load() {
			t.Error("the body is open")
		}
	}

	// If nothing can be sent again, the body is not kept in memory.
	body := long()
	req, _ := http.NewRequestWithContext(t.Context(), "POST", s.URL, body)
	var e *outbound.Error
	if _, err := c.Fetch(req); !errors.As(err, &e) || e.Reason != outbound.ReasonUnsafe || calls.Load() != 1 || !body.closed.Load() {
		t.Errorf("Fetch = %v after %d calls, want one", err, calls.Load())
	}
}

// closing is a body that remembers that it was closed.
type closing struct {
	io.Reader
	closed atomic.Bool
}

func (c *closing) Close() error { c.closed.Store(true); return nil }

// A fault of the caller's body does not count against the vendor, and is not tried again.
func TestABodyThatFails(t *testing.T) {
	s, _ := serve(t, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	gone := errors.New("the disk is gone")
	req, _ := http.NewRequestWithContext(t.Context(), "PUT", s.URL, io.MultiReader(strings.NewReader("x"), failing{gone}))
	req.GetBody = func() (io.ReadCloser, error) { t.Error("sent again"); return nil, gone }
	_, err := real(t, outbound.Config{}).Fetch(req)
	var e *outbound.Error
	if !errors.As(err, &e) || !errors.Is(err, gone) || e.Reason != outbound.ReasonRequest || e.Attempts != 1 {
		t.Errorf("Fetch = %v", err)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// If a body's reader blocks, a caller that gives up does not wait for it.
func TestABodyThatBlocks(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	t.Cleanup(func() { _ = w.Close() })
	req, _ := http.NewRequestWithContext(outbound.WithKey(ctx, "k"), "POST", "http://127.0.0.1:1/", r)
	go cancel()
	if _, err := real(t, outbound.Config{}).Fetch(req); !errors.Is(err, context.Canceled) || !errors.Is(err, outbound.ErrNotSent) {
		t.Errorf("Fetch = %v", err)
	}
}

// http.Transport reports its connections. These reports decide whether a request was sent.
func TestNotSent(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := "http://" + listener.Addr().String()
	_ = listener.Close()
	cut, _ := serve(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	tls := httptest.NewUnstartedServer(http.NotFoundHandler())
	tls.Config.ErrorLog = nolog
	tls.StartTLS()
	t.Cleanup(tls.Close)
	tests := []struct {
		name, url string
		notSent   bool
		attempts  int // attempts by a POST without a key
	}{
		{"connection refused", closed, true, 5},
		{"cut off", cut.URL, false, 1},
		{"an unknown certificate", tls.URL, true, 1},
		{"no TLS there", strings.Replace(cut.URL, "http:", "https:", 1), true, 1},
		{"no such scheme", "gopher://127.0.0.1/", true, 0},
		{"no host", "http:///x", true, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := real(t, outbound.Config{}).Fetch(requestTo(t.Context(), t, "POST", tt.url, "x"))
			var e *outbound.Error
			if !errors.As(err, &e) || errors.Is(err, outbound.ErrNotSent) != tt.notSent || e.Attempts != tt.attempts {
				t.Errorf("%v after %d attempts; want %d, not sent: %v", err, e.Attempts, tt.attempts, tt.notSent)
			}
		})
	}
}

// If http.Transport refuses a request by itself, the request is not tried again.
func TestInvalidRequestIsNotRetried(t *testing.T) {
	s, _ := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("called") })
	req := requestTo(t.Context(), t, "GET", s.URL, "")
	req.Header["Bad Name"] = []string{"x"}
	var e *outbound.Error
	resp, err := outbound.NewTransport(outbound.Config{Logger: quiet}).RoundTrip(req)
	if resp != nil || !errors.As(err, &e) || e.Attempts != 1 || e.Class != outbound.ClassInvalid {
		t.Errorf("RoundTrip = %v", err)
	}
}

// TestCancelingLeavesNothing cancels a call to a real server at each point of the call.
func TestCancelingLeavesNothing(t *testing.T) {
	stop := make(chan struct{})
	arrived := make(chan struct{}, 100)
	s, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		switch r.URL.Path {
		case "/header":
			arrived <- struct{}{}
			select {
			case <-stop:
			case <-r.Context().Done():
			}
		case "/body":
			_, _ = io.WriteString(w, "begun")
			w.(http.Flusher).Flush()
			select {
			case <-stop:
			case <-r.Context().Done():
			}
		case "/wait":
			w.Header().Set("Retry-After", "5")
			w.WriteHeader(http.StatusServiceUnavailable)
			arrived <- struct{}{}
		}
	})
	defer close(stop)
	c := client(nil, outbound.Config{Schedule: soon})
	for _, path := range []string{"/header", "/body", "/wait"} {
		for range 5 {
			ctx, cancel := context.WithCancel(t.Context())
			resp, err := func() (*http.Response, error) {
				if path != "/body" {
					go func() { <-arrived; cancel() }()
				}
				return c.HTTP().Do(requestTo(ctx, t, "PUT", s.URL+path, "x"))
			}()
			if path == "/body" {
				if err != nil {
					t.Fatal(err)
				}
				cancel()
				if _, err := io.ReadAll(resp.Body); !errors.Is(err, context.Canceled) {
					t.Errorf("reading on: %v", err)
				}
				_ = resp.Body.Close()
			} else if !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", path, err)
			}
			cancel()
		}
	}
	c.HTTP().CloseIdleConnections()
	s.CloseClientConnections()
	deadline := time.Now().Add(10 * time.Second)
	for stacks := make([]byte, 1<<20); ; runtime.Gosched() {
		all := string(stacks[:runtime.Stack(stacks, true)])
		if !strings.Contains(all, "persistConn") && !strings.Contains(all, "postroom/outbound.") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("goroutines are left\n%s", all)
		}
	}
}

// The caller gets the last response with its whole body.
func TestLastResponseIsReturnedWhole(t *testing.T) {
	long := strings.Repeat("detail ", 50_000)
	s, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, long)
	})
	c := real(t, outbound.Config{Attempts: 2})
	resp, err := c.HTTP().Do(requestTo(t.Context(), t, "GET", s.URL, ""))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(resp.Body); err != nil || string(got) != long {
		t.Errorf("%d bytes, %v; want %d", len(got), err, len(long))
	}
	_ = resp.Body.Close()
	_, err = c.Do(requestTo(t.Context(), t, "GET", s.URL, ""))
	var e *outbound.Error
	if !errors.As(err, &e) || !errors.Is(err, outbound.ErrAttempts) || e.Attempts != 2 {
		t.Fatalf("Do = %v", err)
	}
	if e.Last == nil || !e.Last.Truncated || string(e.Last.Body) != long[:64<<10] {
		t.Error("a part of a long body is not stored")
	}
}

func TestA401IsRefreshedOnce(t *testing.T) {
	calls := 0
	v := &vendor{answer: func(_ int, req *http.Request) (*http.Response, error) {
		if req.Header.Get("Authorization") == "Bearer new" {
			return status(201), nil
		}
		return status(401), nil
	}}
	refresh := func(*http.Request) (string, error) { calls++; return "Bearer new", nil }
	if _, err := client(v, outbound.Config{Refresh: refresh, Schedule: soon}).Fetch(request(t.Context(), t, "POST", "x")); err != nil || calls != 1 || v.count() != 2 {
		t.Errorf("%v after %d attempts, %d new authorizations", err, v.count(), calls)
	}
	v = always(401)
	if _, err := client(v, outbound.Config{Refresh: refresh, Schedule: soon}).Fetch(request(t.Context(), t, "POST", "x")); err == nil || calls != 2 || v.count() != 2 {
		t.Errorf("%v after %d attempts, %d new authorizations", err, v.count(), calls)
	}
	if v.bodies[1] != "x" {
		t.Errorf("the second body was %q", v.bodies[1])
	}
	// A Refresh that failed is not asked again, even if Decide wants more attempts.
	calls = 0
	cfg := outbound.Config{
		Schedule: soon,
		Decide:   func(*http.Response, error) outbound.Decision { return outbound.Retry },
		Refresh:  func(*http.Request) (string, error) { calls++; return "", errors.New("no token") },
	}
	v = always(401)
	if _, err := client(v, cfg).Fetch(request(outbound.WithKey(t.Context(), "k"), t, "POST", "x")); err == nil || calls != 1 || v.count() < 2 {
		t.Errorf("%v after %d attempts, %d calls of Refresh", err, v.count(), calls)
	}
}

// A transport within another transport repeats nothing, because 5 × 5 attempts would not help.
func TestOneLayerRepeats(t *testing.T) {
	v := always(503)
	inner := outbound.NewTransport(outbound.Config{Next: v, Logger: quiet, Schedule: soon})
	_, err := client(inner, outbound.Config{Schedule: soon, Attempts: 3}).Do(request(t.Context(), t, "GET", ""))
	if !errors.Is(err, outbound.ErrAttempts) || v.count() != 3 {
		t.Errorf("%v after %d attempts, want 3", err, v.count())
	}
}

func TestTimeoutHeader(t *testing.T) {
	var got string
	v := &vendor{answer: func(_ int, req *http.Request) (*http.Response, error) {
		got = req.Header.Get("X-Request-Timeout")
		return status(200), nil
	}}
	if _, err := client(v, outbound.Config{TimeoutHeader: "X-Request-Timeout"}).Fetch(request(t.Context(), t, "GET", "")); err != nil || got != "5000" {
		t.Errorf("header %q, %v; want 5000", got, err)
	}
}

// The body of a refused request is closed, like the body of a request that is sent.
func TestRefusedBodiesAreClosed(t *testing.T) {
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	tests := []struct {
		name string
		ctx  context.Context
		url  string
		cfg  outbound.Config
	}{
		{"no such scheme", t.Context(), "gopher://127.0.0.1/", outbound.Config{}},
		{"the caller has gone", gone, "https://api.example/", outbound.Config{}},
		{"a key that cannot be sent", outbound.WithKey(t.Context(), "a b"), "https://api.example/", outbound.Config{}},
		{"an open breaker", t.Context(), "https://api.example/", outbound.Config{Breaker: outbound.Breaker{Failures: 1}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.cfg.Next, tt.cfg.Logger = always(500), quiet
			tr := outbound.NewTransport(tt.cfg)
			if tt.cfg.Breaker.Failures > 0 {
				resp, err := tr.RoundTrip(requestTo(t.Context(), t, "POST", tt.url, "x"))
				if err != nil {
					t.Fatal(err)
				}
				_ = resp.Body.Close()
			}
			body := &closing{Reader: strings.NewReader("x")}
			req, err := http.NewRequestWithContext(tt.ctx, "POST", tt.url, body)
			if err != nil {
				t.Fatal(err)
			}
			req.GetBody = func() (io.ReadCloser, error) { return body, nil }
			_, err = tr.RoundTrip(req)
			if !errors.Is(err, outbound.ErrNotSent) || !body.closed.Load() {
				t.Errorf("RoundTrip = %v, closed: %v", err, body.closed.Load())
			}
		})
	}
}
