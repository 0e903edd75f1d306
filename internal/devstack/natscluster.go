package devstack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/postroom/postroom/internal/freeport"
)

// NATSCluster is a group of servers that store streams together.
type NATSCluster struct {
	nodes []*NATS
	net   *boxNet // nil if the servers are processes
}

// StartNATSCluster starts servers that form one cluster. Their names are node-0, node-1 and so on.
// If cfg.Name is set, it replaces "node". Clients can create streams only after the servers have
// elected a leader, which takes seconds. StartNATSCluster does not wait for the election.
func StartNATSCluster(ctx context.Context, size int, cfg NATSConfig) (*NATSCluster, error) {
	c := &NATSCluster{}
	if err := c.start(ctx, size, cfg); err != nil {
		return nil, errors.Join(fmt.Errorf("devstack: start nats cluster: %w", err), c.Close())
	}
	return c, nil
}

func (c *NATSCluster) start(ctx context.Context, size int, cfg NATSConfig) error {
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	prefix, more := cmp.Or(cfg.Name, "node"), cfg.Options
	ports, err := freeport.Find(size) // containers do not use these ports: in a container the port is always the same
	if err != nil {
		return err
	}
	var hosts, listen []string
	for i, port := range ports {
		if cfg.Container {
			hosts = append(hosts, fmt.Sprintf("%s-%d:%s", prefix, i, natsRoutePort))
			listen = append(listen, "0.0.0.0:"+natsRoutePort)
			continue
		}
		hosts = append(hosts, fmt.Sprintf("127.0.0.1:%d", port))
		listen = append(listen, hosts[i])
	}
	if cfg.Container {
		if c.net, err = makeBoxNet(ctx, cfg.Logger); err != nil {
			return err
		}
		cfg.network = c.net.name
	}
	var routes []string
	for _, host := range hosts {
		routes = append(routes, fmt.Sprintf("%q", "nats://"+host))
	}
	for i := range size {
		cfg.Name = fmt.Sprint(prefix, "-", i)
		cfg.Options = fmt.Sprintf("cluster { name: %q, listen: %q, routes: [ %s ] }\n%s", prefix, listen[i], strings.Join(routes, ", "), more)
		n, err := StartNATS(ctx, cfg)
		if err != nil {
			return fmt.Errorf("node %d: %w", i, err)
		}
		c.nodes = append(c.nodes, n)
	}
	return nil
}

// Nodes returns the servers, in the order of their names.
func (c *NATSCluster) Nodes() []*NATS { return c.nodes }

// URL returns the URLs of all servers, separated by commas.
func (c *NATSCluster) URL() string {
	var urls []string
	for _, n := range c.nodes {
		urls = append(urls, n.URL())
	}
	return strings.Join(urls, ",")
}

// Close shuts down the servers and removes their storage. A second call does nothing.
func (c *NATSCluster) Close() error {
	var errs []error
	for _, n := range c.nodes {
		errs = append(errs, n.Close())
	}
	if c.net != nil {
		errs = append(errs, c.net.close())
		c.net = nil
	}
	return errors.Join(errs...)
}

// boxNet is a network of containers.
type boxNet struct {
	name  string
	guard *guard
}

func makeBoxNet(ctx context.Context, logger *slog.Logger) (*boxNet, error) {
	if _, err := findDocker(ctx, logger); err != nil {
		return nil, err
	}
	g, err := newGuard("", "network")
	if err != nil {
		return nil, err
	}
	n := &boxNet{name: filepath.Base(g.dir), guard: g}
	if err := os.WriteFile(filepath.Join(n.guard.dir, networkFile), []byte(n.name+"\n"), 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("tell watchdog: %w", err), n.close())
	}
	args := append([]string{"network", "create", "--driver", "bridge"}, ownLabels()...)
	if _, err := docker(ctx, append(args, n.name)...); err != nil {
		return nil, errors.Join(fmt.Errorf("make network: %w", err), n.close())
	}
	return n, nil
}

// close removes the network.
func (n *boxNet) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), dockerPatience)
	defer cancel()
	_, err := docker(ctx, "network", "rm", n.name)
	if err = unlessGone(err); err == nil {
		err = os.Remove(filepath.Join(n.guard.dir, networkFile))
	}
	return errors.Join(err, n.guard.Close())
}
