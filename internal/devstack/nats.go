package devstack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// NATSConfig tunes a [NATS]. The zero value is ready to use.
type NATSConfig struct {
	// Logger receives messages about containers, and about a server that does not stop. Nil means
	// [slog.Default]. The server's own log is a file beside its storage.
	Logger *slog.Logger

	// Durable makes the server sync every message to disk before it acknowledges the message. If
	// Durable is false, the server syncs every two minutes, which is the default of NATS.
	Durable bool

	// Container runs the server in a container: see [Containers]. The server's storage is a directory
	// of this machine, so Docker must run on this machine.
	Container bool

	// Name is the server's name. The servers of a cluster must have different names.
	//
	// Defaults to postroom-devstack, or to the container's name.
	Name string

	// Options are lines that are added to the server's configuration file: for instance users,
	// limits, a cluster, or no JetStream (jetstream: disabled).
	Options string

	network string // the network of containers; see StartNATSCluster
}

// plain reports whether the server must run without JetStream.
func (c NATSConfig) plain() bool { return strings.Contains(c.Options, "jetstream: disabled") }

const defaultNATSName = "postroom-devstack"

// NATS is a NATS server with JetStream. Its methods may be called concurrently.
type NATS struct {
	logger   *slog.Logger
	source   string
	hostname string

	mu      sync.Mutex // serialises changes of the server's state
	server  natsServer
	running bool
	closed  bool
}

// natsServer has the methods that differ between a process and a container. [NATS] calls one of
// them at a time, except url and dir, which it calls at any time.
type natsServer interface {
	url() string
	dir() string
	start(ctx context.Context) error // for a server that is not running
	stop() error                     // an orderly stop
	kill() error                     // like a crash
	freeze() error
	thaw() error
	reload(options string) error
	close() error // removes the data of a server that is not running
}

// StartNATS starts a server on a free port of the loopback interface. ctx limits only the
// start: the server runs until [NATS.Close], or the end of this process.
func StartNATS(ctx context.Context, cfg NATSConfig) (*NATS, error) {
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	var n *NATS
	var err error
	if cfg.Container {
		n, err = startNATSContainer(ctx, cfg)
	} else {
		n, err = startNATSProcess(ctx, cfg)
	}
	if err != nil {
		return nil, fmt.Errorf("devstack: start nats: %w", err)
	}
	n.logger, n.running = cfg.Logger, true
	return n, nil
}

// URL returns the server's URL. It stays the same after restarts.
func (n *NATS) URL() string { return n.server.url() }

// Dir returns the directory of the server's storage. You may copy or replace the directory while
// the server is stopped.
func (n *NATS) Dir() string { return filepath.Join(n.server.dir(), "jetstream") }

// Source says how the server runs: "process", or for instance "container nats:2".
func (n *NATS) Source() string { return n.source }

// Hostname returns the name of the server's container, or "" if the server does not run in a
// container. If NATSConfig.Name is not set, the container's name is also the server's name.
func (n *NATS) Hostname() string { return n.hostname }

// Stop shuts down the server and keeps its storage. It does nothing if the server is
// stopped.
func (n *NATS) Stop() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.stop(); err != nil {
		n.logger.Error("nats-server did not stop", "error", err)
	}
}

// Kill ends the server with kill -9, like a crash, and keeps its storage.
func (n *NATS) Kill() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.running {
		return errors.New("devstack: kill nats: not running")
	}
	if err := n.server.kill(); err != nil {
		return fmt.Errorf("devstack: kill nats: %w", err)
	}
	n.running = false
	return nil
}

// Pause freezes the server until [NATS.Resume]. The server's connections stay open. You can kill,
// stop and restart a paused server.
func (n *NATS) Pause() error { return n.change("pause", natsServer.freeze) }

// Resume continues a paused server. It does nothing if the server is not paused.
func (n *NATS) Resume() error { return n.change("resume", natsServer.thaw) }

// Reload gives the running server new [NATSConfig.Options].
func (n *NATS) Reload(options string) error {
	return n.change("reload", func(s natsServer) error { return s.reload(options) })
}

// change calls the function do if the server is running.
func (n *NATS) change(what string, do func(natsServer) error) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.running {
		return fmt.Errorf("devstack: %s nats: not running", what)
	}
	if err := do(n.server); err != nil {
		return fmt.Errorf("devstack: %s nats: %w", what, err)
	}
	return nil
}

// Restart starts the server again with the same port and storage. If the server is running, Restart
// shuts it down first. It returns when clients can connect.
func (n *NATS) Restart(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return errors.New("devstack: restart nats: closed")
	}
	if err := n.stop(); err != nil {
		return fmt.Errorf("devstack: stop nats: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, localPatience)
	defer cancel()
	for {
		err := n.server.start(ctx)
		if err == nil {
			n.running = true
			return nil
		}
		// Another process may have taken the port: try until it frees the port.
		if !errors.Is(err, errPortTaken) || pause(ctx, 100*time.Millisecond) != nil {
			return fmt.Errorf("devstack: restart nats: %w", err)
		}
	}
}

// Close shuts down the server and removes its storage. A second call does nothing.
func (n *NATS) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	stopping := n.stop()
	if n.closed {
		return nil
	}
	n.closed = true
	if err := errors.Join(stopping, n.server.close()); err != nil {
		return fmt.Errorf("devstack: close nats: %w", err)
	}
	return nil
}

// stop shuts down the server. The caller holds the mutex mu.
func (n *NATS) stop() error {
	if !n.running {
		return nil
	}
	err := n.server.stop()
	n.running = err != nil
	return err
}

func portFree(port int) error {
	listener, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return fmt.Errorf("%w: %w", errPortTaken, err)
	}
	return listener.Close()
}
