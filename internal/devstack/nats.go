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
	// Logger receives what is started. Nil means [slog.Default]. The server's own
	// log is a file beside its storage.
	Logger *slog.Logger

	// Durable syncs every message to disk before it is acknowledged. Without
	// it the server syncs every two minutes, as it does by default.
	Durable bool

	// Container runs the server in a container of the image that
	// POSTROOM_NATS_IMAGE names, or nats:2. Its storage is a directory of this
	// machine, so Docker has to run on this machine too.
	Container bool

	// Name is the server's, which has to differ from those of the others of its
	// cluster.
	//
	// Defaults to postroom-devstack, or to the container's name.
	Name string

	// Options are added to the server's, in the language of its configuration
	// file: users, limits, a cluster, or no JetStream (jetstream: disabled).
	Options string

	network string // of containers; see StartNATSCluster
}

// plain says whether the server is to be without JetStream.
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

// natsServer is what differs between the ways to run a server. [NATS] serialises
// the calls.
type natsServer interface {
	url() string
	dir() string
	start(ctx context.Context) error // of a server that does not run
	stop() error                     // in order
	kill() error                     // as a crash would
	freeze() error
	thaw() error
	reload(options string) error
	close() error // removes what the server stored; it does not run any more
}

// StartNATS starts a server on a free port of the loopback interface. ctx
// bounds the start, not the server: that runs until [NATS.Close], or the end of
// this process.
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

// URL returns the server's URL. It stays the same through restarts.
func (n *NATS) URL() string { return n.server.url() }

// Dir returns the directory of the server's storage, which may be copied, or
// replaced, while the server is stopped.
func (n *NATS) Dir() string { return filepath.Join(n.server.dir(), "jetstream") }

// Source says how the server runs: "process", "container nats:2".
func (n *NATS) Source() string { return n.source }

// Hostname returns the name of the server's container, which is the server's too
// unless NATSConfig.Name is given, or "" where it runs in none.
func (n *NATS) Hostname() string { return n.hostname }

// Stop shuts the server down and keeps its storage. It does nothing if the
// server is stopped.
func (n *NATS) Stop() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.stop(); err != nil {
		n.logger.Error("nats-server did not stop", "error", err)
	}
}

// Kill ends the server as a crash would, kill -9, and keeps its storage.
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

// Pause stops the server where it is, with its connections open, until
// [NATS.Resume]. A paused server can be killed, stopped and restarted.
func (n *NATS) Pause() error { return n.change("pause", natsServer.freeze) }

// Resume lets a paused server go on. It does nothing to one that is not.
func (n *NATS) Resume() error { return n.change("resume", natsServer.thaw) }

// Reload gives the server other [NATSConfig.Options] while it runs.
func (n *NATS) Reload(options string) error {
	return n.change("reload", func(s natsServer) error { return s.reload(options) })
}

// change does something to a server that runs.
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

// Restart starts the server again on the same port and storage; a running one
// is shut down first. It returns once clients can connect.
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
		// The port was free for others meanwhile.
		if !errors.Is(err, errPortTaken) || pause(ctx, 100*time.Millisecond) != nil {
			return fmt.Errorf("devstack: restart nats: %w", err)
		}
	}
}

// Close shuts the server down and removes its storage. It is idempotent.
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

// stop shuts the server down; mu is held.
func (n *NATS) stop() error {
	if !n.running {
		return nil
	}
	err := n.server.stop()
	n.running = err != nil
	return err
}

func portFree(port int) error { return portFreeAt("127.0.0.1", port) }

func portFreeAt(host string, port int) error {
	listener, err := net.Listen("tcp4", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return fmt.Errorf("%w: %w", errPortTaken, err)
	}
	return listener.Close()
}
