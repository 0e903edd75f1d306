package devstack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// NATSConfig tunes a [NATS]. The zero value is ready to use.
type NATSConfig struct {
	// Logger receives the server's warnings and errors. Nil means
	// [slog.Default].
	Logger *slog.Logger

	// Durable syncs every message to disk before it is acknowledged. Without
	// it the server syncs every two minutes, as it does by default.
	Durable bool

	// Name is the server's, which has to differ from those of the others of its
	// cluster.
	//
	// Defaults to postroom-devstack.
	Name string

	// Options are added to the server's, in the language of its configuration
	// file: users, limits, a cluster.
	Options string
}

// NATS is an embedded NATS server with JetStream. Its methods may be called
// concurrently.
type NATS struct {
	cfg   NATSConfig
	guard *guard
	port  int

	mu     sync.Mutex
	server *server.Server // nil while stopped
	closed bool
}

// StartNATS starts a server on a free port of the loopback interface. ctx
// bounds the start, not the server: that runs until [NATS.Close].
func StartNATS(ctx context.Context, cfg NATSConfig) (*NATS, error) {
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	cfg.Name = cmp.Or(cfg.Name, "postroom-devstack")
	g, err := newGuard("nats")
	if err != nil {
		return nil, fmt.Errorf("devstack: start nats: %w", err)
	}
	n := &NATS{cfg: cfg, guard: g, port: server.RANDOM_PORT}
	if err := n.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("devstack: start nats: %w", err), g.Close())
	}
	return n, nil
}

// URL returns the server's URL. It stays the same through restarts.
func (n *NATS) URL() string { return fmt.Sprintf("nats://127.0.0.1:%d", n.port) }

// Dir returns the directory of the server's storage, which may be copied, or
// replaced, while the server is stopped.
func (n *NATS) Dir() string { return filepath.Join(n.guard.dir, server.JetStreamStoreDir) }

// Stop shuts the server down and keeps its storage. It does nothing if the
// server is stopped.
func (n *NATS) Stop() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stop()
}

// Restart starts the server again on the same port and storage; a running one
// is shut down first. It returns once clients can connect.
func (n *NATS) Restart(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return errors.New("devstack: restart nats: closed")
	}
	n.stop()
	ctx, cancel := context.WithTimeout(ctx, localPatience)
	defer cancel()
	for {
		err := n.start(ctx)
		if err == nil {
			return nil
		}
		// The port was free for others meanwhile.
		if !errors.Is(err, errPortTaken) || pause(ctx, 100*time.Millisecond) != nil {
			return fmt.Errorf("devstack: restart nats: %w", err)
		}
	}
}

// Reload gives the server other [NATSConfig.Options] while it runs.
func (n *NATS) Reload(options string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.server == nil {
		return errors.New("devstack: reload nats: stopped")
	}
	n.cfg.Options = options
	opts, err := n.options()
	if err == nil {
		err = n.server.ReloadOptions(opts)
	}
	if err != nil {
		return fmt.Errorf("devstack: reload nats: %w", err)
	}
	return nil
}

// Close shuts the server down and removes its storage. It is idempotent.
func (n *NATS) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stop()
	n.closed = true
	if err := n.guard.Close(); err != nil {
		return fmt.Errorf("devstack: close nats: %w", err)
	}
	return nil
}

func (n *NATS) start(ctx context.Context) error {
	// Of a port that is taken the server only logs: ask first.
	if n.port != server.RANDOM_PORT {
		if err := portFree(n.port); err != nil {
			return err
		}
	}
	opts, err := n.options()
	if err != nil {
		return err
	}
	srv, err := server.NewServer(opts)
	if err != nil {
		return err
	}
	log := &natsLog{logger: n.cfg.Logger}
	srv.SetLoggerV2(log, false, false, false)
	srv.Start()
	if err := ready(ctx, srv, log); err != nil {
		srv.Shutdown()
		srv.WaitForShutdown()
		return err
	}
	n.server = srv
	n.port = srv.Addr().(*net.TCPAddr).Port
	return nil
}

// options returns the server's options.
func (n *NATS) options() (*server.Options, error) {
	opts := &server.Options{
		ServerName:             n.cfg.Name,
		Host:                   "127.0.0.1",
		Port:                   n.port,
		NoSigs:                 true,
		JetStream:              true,
		StoreDir:               n.guard.dir,
		SyncAlways:             n.cfg.Durable,
		DisableJetStreamBanner: true,
	}
	if n.cfg.Options == "" {
		return opts, nil
	}
	return opts, opts.ProcessConfigString(n.cfg.Options)
}

// ready waits until srv takes connections and JetStream runs.
func ready(ctx context.Context, srv *server.Server, log *natsLog) error {
	deadline := 10 * time.Second
	if at, ok := ctx.Deadline(); ok {
		deadline = min(deadline, time.Until(at))
	}
	if err := errors.Join(ctx.Err(), log.fatal()); err != nil {
		return err
	}
	if !srv.ReadyForConnections(deadline) || !srv.JetStreamEnabled() {
		return errors.Join(errors.New("server is not ready for connections"), log.fatal())
	}
	return nil
}

// stop shuts the server down; mu is held.
func (n *NATS) stop() {
	if n.server == nil {
		return
	}
	n.server.Shutdown()
	n.server.WaitForShutdown()
	n.server = nil
}

func portFree(port int) error {
	listener, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return fmt.Errorf("%w: %w", errPortTaken, err)
	}
	return listener.Close()
}

// natsLog gives the server's warnings to a logger, and keeps its last words.
type natsLog struct {
	logger *slog.Logger
	mu     sync.Mutex
	last   error
}

func (l *natsLog) fatal() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

func (l *natsLog) Fatalf(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = fmt.Errorf(format, args...)
}

func (l *natsLog) Errorf(format string, args ...any) {
	l.logger.Error("nats-server: " + fmt.Sprintf(format, args...))
}

func (l *natsLog) Warnf(format string, args ...any) {
	l.logger.Warn("nats-server: " + fmt.Sprintf(format, args...))
}

func (*natsLog) Noticef(string, ...any) {}
func (*natsLog) Debugf(string, ...any)  {}
func (*natsLog) Tracef(string, ...any)  {}
