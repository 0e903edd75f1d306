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

	"github.com/postroom/postroom/internal/freeport"
)

// Way is a way of one process to one server.
type Way = toxiproxy.Proxy

// Network is what stands between the processes and the servers: each process has a
// way of its own to each server.
type Network struct {
	server *toxiproxy.ApiServer // is not started: it is only where proxies belong to

	mu   sync.Mutex
	ways map[string]*Way // by process and server
}

// NewNetwork returns one without ways.
func NewNetwork() *Network {
	return &Network{
		server: toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()),
		ways:   make(map[string]*Way),
	}
}

// Way returns the address at which a process finds a server.
func (n *Network) Way(process, server, address string) (string, error) {
	ports, err := freeport.Find(1)
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

// Through returns the URL of a server with another address and user, and a password,
// for which nobody asks.
func Through(server, address, user, password string) (string, error) {
	u, err := url.Parse(server)
	if err != nil {
		return "", fmt.Errorf("read URL of a server: %w", err)
	}
	u.Host, u.User = address, url.UserPassword(user, password)
	return u.String(), nil
}

// To returns the ways of a process to servers whose names begin so.
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
	Upstream   = "upstream"   // what the process sends
	Downstream = "downstream" // what it is told
)

// Toxic is what a way does to what it carries.
type Toxic struct {
	Kind, Stream string
	Attributes   string // JSON
}

// Loses loses all that one stream carries; the connections stay.
func Loses(stream string) Toxic { return Toxic{"timeout", stream, `{"timeout": 0}`} }

// Delays holds up what one stream carries, by about so long.
func Delays(stream string, latency, jitter time.Duration) Toxic {
	return Toxic{"latency", stream, fmt.Sprintf(`{"latency": %d, "jitter": %d}`, latency.Milliseconds(), jitter.Milliseconds())}
}

// Poison has ways do something while a function runs. Their connections end with it
// where cut is true, as they do at any rate where bytes were lost.
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

// Open has a way carry again. The system may hold its port for a moment.
func Open(ctx context.Context, way *Way) error {
	return Again(ctx, Patience, "open "+way.Name, func(context.Context) error { return way.Start() })
}

// cleaned takes toxics away. A process that stands still can keep one from going: its
// connections are cut then.
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
		return fmt.Errorf("mend %s: %w", way.Name, err)
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
