// Package health reports over HTTP whether a relay is alive and whether it is ready.
package health

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/relay"
)

// Handler serves /livez, /readyz and /metrics.
func Handler(health func() relay.Health, metrics http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", postroom.HealthHandler(postroom.NewProbe("relay", health)))
	mux.Handle("GET /metrics", metrics)
	return mux
}

// Serve serves handler until the caller calls the result stop. If the address is empty, it serves
// nothing. Call stop only after the relay has ended, because while a relay is ending, the endpoints
// must still answer that the relay is alive and not ready.
func Serve(ctx context.Context, address string, handler http.Handler, log *slog.Logger) (stop func(), err error) {
	if address == "" {
		return func() {}, nil
	}
	var listen net.ListenConfig
	listener, err := listen.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("serve health endpoints (--listen): %w", err)
	}
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      10 * time.Second,
		IdleTimeout:       time.Minute,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.Error("health endpoints ended", "error", err)
		}
	}()
	log.Info("health endpoints", "address", listener.Addr().String())
	return func() {
		_ = server.Close() // the server closes all connections, and refuses new ones
		<-done
	}, nil
}
