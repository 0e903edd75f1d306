package devstack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
)

// NATSCluster is a group of servers that store streams together.
type NATSCluster struct {
	nodes  []*NATS
	remove func() error // removes the network; nil if the servers are processes
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
	ports, err := FreePorts(size) // containers do not use these ports: in a container the port is always the same
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
		if Containers.Network == nil {
			return errNoContainers
		}
		if cfg.network, c.remove, err = Containers.Network(ctx); err != nil {
			return err
		}
	}
	var routes []string
	for _, host := range hosts {
		routes = append(routes, fmt.Sprintf("%q", "nats://"+host))
	}
	for i := range size {
		cfg.Name = fmt.Sprint(prefix, "-", i)
		// Without no_advertise, servers in containers would tell clients addresses that only containers reach.
		cfg.Options = fmt.Sprintf("cluster { name: %q, no_advertise: %t, listen: %q, routes: [ %s ] }\n%s", prefix, cfg.Container, listen[i], strings.Join(routes, ", "), more)
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
	if c.remove != nil {
		errs = append(errs, c.remove())
		c.remove = nil
	}
	return errors.Join(errs...)
}
