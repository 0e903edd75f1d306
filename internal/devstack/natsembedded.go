package devstack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// natsEmbedded is a server that is part of this process.
type natsEmbedded struct {
	cfg    NATSConfig
	guard  *guard
	port   int
	server *server.Server
}

func startNATSEmbedded(ctx context.Context, cfg NATSConfig) (*NATS, error) {
	cfg.Name = cmp.Or(cfg.Name, defaultNATSName)
	g, err := newGuard("", "nats")
	if err != nil {
		return nil, err
	}
	n := &natsEmbedded{cfg: cfg, guard: g, port: server.RANDOM_PORT}
	if err := n.start(ctx); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return &NATS{server: n, source: "embedded"}, nil
}

func (n *natsEmbedded) url() string { return fmt.Sprintf("nats://127.0.0.1:%d", n.port) }
func (n *natsEmbedded) dir() string { return n.guard.dir }

func (n *natsEmbedded) start(ctx context.Context) error {
	// Of a port that is taken the server only logs: ask first.
	if n.port != server.RANDOM_PORT {
		if err := portFree(n.port); err != nil {
			return err
		}
	}
	opts, err := n.options(n.cfg.Options)
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
	if err := ready(ctx, srv, opts.JetStream, log); err != nil {
		srv.Shutdown()
		srv.WaitForShutdown()
		return err
	}
	n.server = srv
	n.port = srv.Addr().(*net.TCPAddr).Port
	return nil
}

// options returns the server's options.
func (n *natsEmbedded) options(more string) (*server.Options, error) {
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
	if more == "" {
		return opts, nil
	}
	return opts, opts.ProcessConfigString(more)
}

// ready waits until srv takes connections, and JetStream runs if it is to.
func ready(ctx context.Context, srv *server.Server, jetStream bool, log *natsLog) error {
	deadline := 10 * time.Second
	if at, ok := ctx.Deadline(); ok {
		deadline = min(deadline, time.Until(at))
	}
	if err := errors.Join(ctx.Err(), log.fatal()); err != nil {
		return err
	}
	if !srv.ReadyForConnections(deadline) || srv.JetStreamEnabled() != jetStream {
		return errors.Join(errors.New("server is not ready for connections"), log.fatal())
	}
	return nil
}

func (n *natsEmbedded) stop() error {
	n.server.Shutdown()
	n.server.WaitForShutdown()
	return nil
}

func (n *natsEmbedded) reload(options string) error {
	n.cfg.Options = options
	opts, err := n.options(options)
	if err != nil {
		return err
	}
	return n.server.ReloadOptions(opts)
}

func (n *natsEmbedded) kill() error   { return ErrEmbedded }
func (n *natsEmbedded) freeze() error { return ErrEmbedded }
func (n *natsEmbedded) thaw() error   { return ErrEmbedded }
func (n *natsEmbedded) close() error  { return n.guard.Close() }

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
