package webhook_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
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
	for name, set := range map[string]func(c *webhook.Config){
		"Choose": func(c *webhook.Config) {
			c.Choose = func(*http.Request) (string, webhook.Scheme, error) {
				<-end
				return "", nil, webhook.ErrUnknownTenant
			}
		},
		"Scheme": func(c *webhook.Config) { c.Scheme = hangingScheme{end} },
		"Event": func(c *webhook.Config) {
			c.Event = func(webhook.Message, http.Header, []byte) (postroom.Event, error) {
				<-end
				return postroom.Event{}, errors.New("too late")
			}
		},
		"Key": func(c *webhook.Config) {
			c.Key = func(postroom.Event) string {
				<-end
				return ""
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEndpoint(t, set, func(c *webhook.Config) { c.Patience = 50 * time.Millisecond })
			answered := make(chan *httptest.ResponseRecorder, 1)
			req := signed(t, "a", "{}")
			go func() { answered <- e.do(req) }()
			if w := devtest.Receive(t, patience, "an answer", answered); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "1" {
				t.Errorf("answered %d %s", w.Code, w.Body)
			}
		})
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
