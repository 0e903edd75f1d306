//go:build linux || darwin

package main

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

	"github.com/postroom/postroom/internal/fleet"
)

// network is what stands between the processes and the servers: each process has a
// way of its own to each server.
type network struct {
	server *toxiproxy.ApiServer // is not started: it is only where proxies belong to

	mu   sync.Mutex
	ways map[string]*toxiproxy.Proxy // by process and server
}

func newNetwork() *network {
	return &network{
		server: toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()),
		ways:   make(map[string]*toxiproxy.Proxy),
	}
}

// way returns the address at which a process finds a server.
func (n *network) way(process, server, address string) (string, error) {
	ports, err := fleet.FreePorts(1)
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

// through returns the URL of a server with another address and user, and a password,
// for which nobody asks.
func through(server, address, user, password string) (string, error) {
	u, err := url.Parse(server)
	if err != nil {
		return "", fmt.Errorf("read URL of a server: %w", err)
	}
	u.Host, u.User = address, url.UserPassword(user, password)
	return u.String(), nil
}

// to returns the ways of a process to servers whose names begin so.
func (n *network) to(process, servers string) (ways []*toxiproxy.Proxy) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for name, p := range n.ways {
		if strings.HasPrefix(name, process+" to "+servers) {
			ways = append(ways, p)
		}
	}
	return ways
}

// toEach are the ways of several processes.
func (n *network) toEach(all crew, servers string) (ways []*toxiproxy.Proxy) {
	for _, m := range all {
		ways = append(ways, n.to(m.job.Process, servers)...)
	}
	return ways
}

// Streams of a connection, as toxiproxy calls them.
const (
	upstream   = "upstream"   // what the process sends
	downstream = "downstream" // what it is told
)

// toxic is what a way does to what it carries.
type toxic struct {
	kind, stream string
	attributes   string // JSON
}

// poisoned has ways do something while a function runs. Their connections end with it
// where cut is true, as they do at any rate where bytes were lost.
func poisoned(ctx context.Context, ways []*toxiproxy.Proxy, toxics []toxic, cut bool, during func()) error {
	var errs []error
	for _, way := range ways {
		for _, t := range toxics {
			text := fmt.Sprintf(`{"name": "%s-%s", "type": "%s", "stream": "%s", "attributes": %s}`, t.kind, t.stream, t.kind, t.stream, t.attributes)
			if _, err := way.Toxics.AddToxicJson(strings.NewReader(text)); err != nil {
				errs = append(errs, fmt.Errorf("add %s to %s: %w", t.kind, way.Name, err))
			}
		}
	}
	during()
	for _, way := range ways {
		errs = append(errs, cleaned(ctx, way, toxics, cut))
	}
	return errors.Join(errs...)
}

// open has a way carry again. The system may hold its port for a moment.
func open(ctx context.Context, way *toxiproxy.Proxy) error {
	return again(ctx, patience, "open "+way.Name, func(context.Context) error { return way.Start() })
}

// cleaned takes toxics away. A process that stands still can keep one from going: its
// connections are cut then.
func cleaned(ctx context.Context, way *toxiproxy.Proxy, toxics []toxic, cut bool) error {
	if cut {
		way.Stop()
	}
	done := make(chan error, 1)
	go func() {
		var errs []error
		for _, t := range toxics {
			errs = append(errs, way.Toxics.RemoveToxic(ctx, t.kind+"-"+t.stream))
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
		err = errors.Join(err, open(ctx, way))
	}
	if err != nil {
		return fmt.Errorf("mend %s: %w", way.Name, err)
	}
	return nil
}

// close ends all ways.
func (n *network) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.ways {
		p.Stop()
	}
}
