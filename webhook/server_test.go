package webhook_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/webhook"
)

// If the sender hangs up, a request that it sent completely is still stored.
func TestSenderHangsUp(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t)
	begun, gone := make(chan struct{}), make(chan struct{})
	e.in.during = func(ctx context.Context) error {
		close(begun)
		<-gone // the server has noticed
		return ctx.Err()
	}
	done := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(done)
		context.AfterFunc(r.Context(), func() { close(gone) })
		e.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-begun
		cancel()
	}()
	req := signed(t, "a", "{}")
	out, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	out.Header = req.Header
	if resp, err := http.DefaultClient.Do(out); err == nil {
		_ = resp.Body.Close()
		t.Fatal("the request was answered")
	}
	devtest.Receive(t, patience, "the request to end", done)
	if len(e.in.known) != 1 || e.counted("stored", "") != 1 {
		t.Errorf("stored %v, log:\n%s", e.in.known, e.log)
	}
}

// The answer comes within Patience, whatever the store does.
func TestPatience(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t, func(c *webhook.ReceiverConfig) { c.Patience = time.Millisecond })
	ended := make(chan error, 1)
	e.in.during = func(ctx context.Context) error {
		select {
		case <-ctx.Done():
		case <-time.After(5 * time.Second): // it would wait for ever
		}
		ended <- ctx.Err()
		return ctx.Err()
	}
	e.want(signed(t, "a", "{}"), 503, "webhook_not_stored")
	if err := devtest.Receive(t, patience, "the end of the store's context", ended); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the work in the database ended with %v, want that it ends before the answer is overdue", err)
	}
	if !strings.Contains(e.log.String(), `level=WARN msg="webhook not stored"`) {
		t.Errorf("log:\n%s", e.log)
	}
}

// By default, a request has three seconds.
func TestDefaultPatience(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t, func(c *webhook.ReceiverConfig) { c.Patience = 0 })
	e.in.during = func(ctx context.Context) error {
		if at, _ := ctx.Deadline(); time.Until(at) > 3*time.Second || time.Until(at) < time.Second {
			t.Errorf("%s are left, want 3s", time.Until(at))
		}
		return nil
	}
	e.want(signed(t, "a", "{}"), 200, "")
}

// hangingScheme is a scheme that waits.
type hangingScheme struct{ until chan struct{} }

func (s hangingScheme) Verify(http.Header, []byte, time.Time) (webhook.Message, error) {
	<-s.until
	return webhook.Message{}, nil
}

// The answer comes although a function of the Config, or the scheme, does not return.
func TestPatienceWithFunctions(t *testing.T) {
	t.Parallel()
	end := make(chan struct{})
	t.Cleanup(func() { close(end) })
	for name, set := range map[string]func(c *webhook.ReceiverConfig){
		"Choose": func(c *webhook.ReceiverConfig) {
			c.Choose = func(*http.Request) (string, webhook.Scheme, error) {
				<-end
				return "", nil, webhook.ErrUnknownTenant
			}
		},
		"Scheme": func(c *webhook.ReceiverConfig) { c.Scheme = hangingScheme{end} },
		"Event": func(c *webhook.ReceiverConfig) {
			c.Event = func(webhook.Message, http.Header, []byte) (postroom.Event, error) {
				<-end
				return postroom.Event{}, errors.New("too late")
			}
		},
		"Key": func(c *webhook.ReceiverConfig) {
			c.Key = func(postroom.Event) string {
				<-end
				return ""
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEndpoint(t, set, func(c *webhook.ReceiverConfig) { c.Patience = 50 * time.Millisecond })
			answered := make(chan *httptest.ResponseRecorder, 1)
			req := signed(t, "a", "{}")
			go func() { answered <- e.do(req) }()
			if w := devtest.Receive(t, patience, "an answer", answered); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "1" {
				t.Errorf("answered %d %s", w.Code, w.Body)
			}
		})
	}
}

// If a body does not come, the receiver gives up, also if it does not read the body.
func TestSlowBody(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		head    string
		set     func(c *webhook.ReceiverConfig)
		status  int
		outcome string
	}{
		"it is read":             {"POST / HTTP/1.1\r\nContent-Length: 2", nil, http.StatusRequestTimeout, "too_slow"},
		"it comes in chunks":     {"POST / HTTP/1.1\r\nTransfer-Encoding: chunked", nil, http.StatusRequestTimeout, "too_slow"},
		"it is compressed":       {"POST / HTTP/1.1\r\nContent-Encoding: gzip\r\nContent-Length: 2", nil, http.StatusUnsupportedMediaType, "encoded"},
		"the method is another":  {"PUT / HTTP/1.1\r\nContent-Length: 2", nil, http.StatusMethodNotAllowed, "other_method"},
		"it is too large":        {"POST / HTTP/1.1\r\nContent-Length: 101", func(c *webhook.ReceiverConfig) { c.MaxBody = 100 }, http.StatusRequestEntityTooLarge, "too_large"},
		"the Config has a fault": {"POST / HTTP/1.1\r\nContent-Length: 2", func(c *webhook.ReceiverConfig) { c.Changed = 7 }, http.StatusInternalServerError, "misconfigured"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEndpoint(t, func(c *webhook.ReceiverConfig) { c.Patience = 10 * time.Millisecond })
			if tt.set != nil {
				e = newEndpoint(t, func(c *webhook.ReceiverConfig) { c.Patience = 10 * time.Millisecond }, tt.set)
			}
			server := httptest.NewServer(e)
			t.Cleanup(server.Close)
			conn, err := net.Dial("tcp", server.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = conn.Close() })
			if err := conn.SetDeadline(time.Now().Add(patience / 3)); err != nil { // otherwise a receiver that waits for ever would stop the test
				t.Fatal(err)
			}
			if _, err := fmt.Fprint(conn, tt.head+"\r\nHost: a\r\n\r\n1"); err != nil {
				t.Fatal(err)
			}
			answer := bufio.NewReader(conn)
			resp, err := http.ReadResponse(answer, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, resp.Body); err != nil {
				t.Error(err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode != tt.status || !resp.Close || e.counted(tt.outcome, "") != 1 {
				t.Errorf("answered %d %v", resp.StatusCode, resp.Header)
			}
			if _, err := answer.ReadByte(); !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the connection is open: %v", err)
			}
		})
	}
}
