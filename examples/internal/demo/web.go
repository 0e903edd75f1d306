package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Web serves HTTP at an address. It implements postroom.Runner.
type Web struct {
	server   *http.Server
	listener net.Listener
}

// Listen returns a server that listens at an address. Port 0 means any free port. The server logs
// to the given logger.
func Listen(address string, handler http.Handler, log *slog.Logger) (*Web, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	server := &http.Server{Handler: handler, ReadTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn)}
	return &Web{server: server, listener: listener}, nil
}

// URL is the URL of the server.
func (w *Web) URL() string { return "http://" + w.listener.Addr().String() }

// Run serves until ctx ends. Then it waits up to five seconds for running requests.
func (w *Web) Run(ctx context.Context) error {
	serving := make(chan error, 1)
	go func() { serving <- w.server.Serve(w.listener) }() // ends with Shutdown
	select {
	case err := <-serving:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	down := w.server.Shutdown(drain)
	if err := <-serving; !errors.Is(err, http.ErrServerClosed) {
		return errors.Join(fmt.Errorf("serve: %w", err), down)
	}
	return down
}

// Close releases the address if the caller did not call Run. It does nothing if w is nil.
func (w *Web) Close() {
	if w != nil {
		_ = w.listener.Close() // Run may have closed it
	}
}
