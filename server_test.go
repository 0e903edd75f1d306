package postroom_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/postroom/postroom"
)

// free returns an address on which no server listens.
func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return address
}

// When the context ends, a request that runs gets its answer, and then the part ends.
func TestHTTPServerDrains(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	stopping, answered := make(chan struct{}), make(chan string, 1)
	server := &http.Server{Addr: free(t), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		cancel()
		select {
		case <-stopping:
			_, _ = io.WriteString(w, "done")
		case <-r.Context().Done(): // it was cut off
		}
	})}
	server.RegisterOnShutdown(func() { close(stopping) })
	server.BaseContext = func(net.Listener) context.Context { // it listens
		go func() {
			resp, err := http.Get("http://" + server.Addr)
			if err != nil {
				answered <- err.Error()
				return
			}
			body, err := io.ReadAll(resp.Body)
			if err := errors.Join(err, resp.Body.Close()); err != nil {
				body = []byte(err.Error())
			}
			answered <- string(body)
		}()
		return context.Background()
	}
	if err := postroom.Run(ctx, postroom.HTTPServer(server)); err != nil {
		t.Errorf("Run = %v", err)
	}
	if got := <-answered; got != "done" {
		t.Errorf("the request that ran got %q", got)
	}
	if conn, err := net.Dial("tcp", server.Addr); err == nil {
		t.Error("the server still listens", conn.Close())
	}
}

func TestHTTPServerEndsWithItsServer(t *testing.T) {
	t.Parallel()
	server := &http.Server{Addr: free(t)}
	server.BaseContext = func(net.Listener) context.Context {
		go func() { _ = server.Shutdown(context.Background()) }() // nothing runs that it could cut off
		return context.Background()
	}
	if err := postroom.Run(t.Context(), postroom.HTTPServer(server)); err != nil {
		t.Errorf("Run = %v", err)
	}
}

// A service that is stopped before its server listens ends without an error, also if the address has
// the name of a host.
func TestHTTPServerThatIsStoppedAtOnce(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, addr := range []string{"localhost:0", "127.0.0.1:0"} {
		if err := postroom.Run(ctx, postroom.HTTPServer(&http.Server{Addr: addr})); err != nil {
			t.Errorf("Run with %s = %v", addr, err)
		}
	}
}

// A panic outside a request, such as in BaseContext, ends the part and not the process.
func TestHTTPServerThatPanics(t *testing.T) {
	t.Parallel()
	server := &http.Server{Addr: "127.0.0.1:0", BaseContext: func(net.Listener) context.Context { panic("boom") }}
	err := postroom.Run(t.Context(), postroom.HTTPServer(server))
	if err == nil || !strings.Contains(err.Error(), "panic: boom") || !strings.Contains(err.Error(), "goroutine ") {
		t.Errorf("Run = %v, want the panic and its stack", err)
	}
}

func TestHTTPServerSaysThatItCannotListen(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = taken.Close() }) // the test ends
	err = postroom.Run(t.Context(), postroom.HTTPServer(&http.Server{Addr: taken.Addr().String()}))
	if err == nil || !strings.Contains(err.Error(), taken.Addr().String()) {
		t.Errorf("Run = %v, want the address that is taken", err)
	}
}
