package webhook_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

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
	e := newEndpoint(t, func(c *webhook.Config) { c.Patience = time.Millisecond })
	e.in.during = func(ctx context.Context) error {
		select {
		case <-ctx.Done():
		case <-time.After(5 * time.Second): // it would wait for ever
		}
		return ctx.Err()
	}
	e.want(signed(t, "a", "{}"), 503, "webhook_not_stored")
	if !strings.Contains(e.log.String(), `level=WARN msg="webhook not stored"`) {
		t.Errorf("log:\n%s", e.log)
	}
}

// If a body does not come, the receiver gives up.
func TestSlowBody(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t, func(c *webhook.Config) { c.Patience = 10 * time.Millisecond })
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
	if _, err := fmt.Fprint(conn, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{"); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusRequestTimeout || !resp.Close || e.counted("too_slow", "") != 1 {
		t.Errorf("answered %d %v", resp.StatusCode, resp.Header)
	}
}
