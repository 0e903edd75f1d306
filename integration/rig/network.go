package rig

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"github.com/postroom/postroom/internal/devstack"
)

// Way is the connection of one process to one server.
type Way = toxiproxy.Proxy

// Network is between the processes and the servers. Each process has its own way to each server.
type Network struct {
	server *toxiproxy.ApiServer // it is not started, but proxies need one

	mu   sync.Mutex
	ways map[string]*Way // by process and server
}

// NewNetwork returns a network without ways.
func NewNetwork() *Network {
	return &Network{
		server: toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()),
		ways:   make(map[string]*Way),
	}
}

// Way starts a way from a process to the server at an address. It returns the address at which the
// process reaches the server.
func (n *Network) Way(process, server, address string) (string, error) {
	ports, err := devstack.FreePorts(1)
	if err != nil {
		return "", err
	}
	p := toxiproxy.NewProxy(n.server, process+" to "+server, fmt.Sprintf("127.0.0.1:%d", ports[0]), address)
	if err := p.Start(); err != nil {
		return "", fmt.Errorf("start a proxy: %w", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ways[p.Name] = p
	return p.Listen, nil
}

// Through returns the URL of a server, but with the given address, user and password. The server
// does not check the password.
func Through(server, address, user, password string) (string, error) {
	u, err := url.Parse(server)
	if err != nil {
		return "", fmt.Errorf("read URL of a server: %w", err)
	}
	u.Host, u.User = address, url.UserPassword(user, password)
	return u.String(), nil
}

// To returns the ways of a process to all servers whose names begin with the given text.
func (n *Network) To(process, servers string) (ways []*Way) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for name, p := range n.ways {
		if strings.HasPrefix(name, process+" to "+servers) {
			ways = append(ways, p)
		}
	}
	return ways
}

// Streams of a connection, as toxiproxy calls them.
const (
	Upstream   = "upstream"   // the bytes that the process sends
	Downstream = "downstream" // the bytes that the process receives
)

// Toxic is a fault of a way.
type Toxic struct {
	Kind, Stream string
	Attributes   string // JSON
}

// Loses returns a toxic that drops all bytes of one stream. The connections stay open.
func Loses(stream string) Toxic { return Toxic{"timeout", stream, `{"timeout": 0}`} }

// Delays returns a toxic that delays one stream by about the given time.
func Delays(stream string, latency, jitter time.Duration) Toxic {
	return Toxic{"latency", stream, fmt.Sprintf(`{"latency": %d, "jitter": %d}`, latency.Milliseconds(), jitter.Milliseconds())}
}

// Poison adds toxics to ways, calls the given function, and removes the toxics. If the parameter
// cut is true, it closes the ways' connections before the removal. If cut is false, Toxiproxy still
// closes a connection from which a toxic of [Loses] is removed.
func Poison(ctx context.Context, ways []*Way, toxics []Toxic, cut bool, during func()) error {
	var errs []error
	for _, way := range ways {
		for _, t := range toxics {
			text := fmt.Sprintf(`{"name": "%s-%s", "type": "%s", "stream": "%s", "attributes": %s}`, t.Kind, t.Stream, t.Kind, t.Stream, t.Attributes)
			if _, err := way.Toxics.AddToxicJson(strings.NewReader(text)); err != nil {
				errs = append(errs, fmt.Errorf("add %s to %s: %w", t.Kind, way.Name, err))
			}
		}
	}
	during()
	for _, way := range ways {
		errs = append(errs, cleaned(ctx, way, toxics, cut))
	}
	return errors.Join(errs...)
}

// Open makes a stopped way work again. If that fails, it tries again for up to [Patience], because
// the operating system may not release the port at once.
func Open(ctx context.Context, way *Way) error {
	return Again(ctx, Patience, "open "+way.Name, func(context.Context) error { return way.Start() })
}

// cleaned removes toxics. If a stopped process prevents that, cleaned closes the way's connections.
func cleaned(ctx context.Context, way *Way, toxics []Toxic, cut bool) error {
	if cut {
		way.Stop()
	}
	done := make(chan error, 1)
	go func() {
		var errs []error
		for _, t := range toxics {
			errs = append(errs, way.Toxics.RemoveToxic(ctx, t.Kind+"-"+t.Stream))
		}
		done <- errors.Join(errs...)
	}()
	var err error
	select {
	case err = <-done:
	case <-time.After(3 * time.Second):
		way.Stop()
		cut = true
		err = <-done
	}
	if cut {
		err = errors.Join(err, Open(ctx, way))
	}
	if err != nil {
		return fmt.Errorf("repair %s: %w", way.Name, err)
	}
	return nil
}

// Close ends all ways.
func (n *Network) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.ways {
		p.Stop()
	}
	return nil
}
