package integration

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/internal/devstack"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/natsjs"
)

// clusterPatience is long enough for several elections on a busy machine.
const clusterPatience = 2 * time.Minute

// cluster is a shop whose stream is on three servers.
type cluster struct {
	*shop

	servers map[string]*devstack.NATS // by name
}

func openCluster(t *testing.T, atomic bool) *cluster {
	t.Helper()
	servers := devtest.OwnNATSCluster(t, 3)
	nc, err := nats.Connect(servers.URL(), natsjs.ConnectOptions()...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	c := &cluster{servers: map[string]*devstack.NATS{}}
	for i, s := range servers.Nodes() {
		c.servers[fmt.Sprint("node-", i)] = s
	}
	c.shop = openShopWith(t, nc, jetstream.StreamConfig{Replicas: 3, DenyDelete: true, AllowAtomicPublish: atomic})
	strategy := map[bool]string{true: "yes"}[atomic]
	for i := range 2 {
		startRelay(t, fmt.Sprint("relay ", i), c.url, servers.URL(), atomicVar+"="+strategy)
	}
	return c
}

// leader waits until a server other than the named one leads the stream, and returns its name.
func (c *cluster) leader(other string) string {
	c.Helper()
	var name string
	devtest.Eventually(c.T, clusterPatience, "another server than "+other+" to lead the stream", func() bool {
		info, err := c.info()
		if err == nil {
			name = info.Cluster.Leader
		}
		return err == nil && name != "" && name != other
	})
	return name
}

func (c *cluster) info() (*jetstream.StreamInfo, error) {
	ctx, cancel := context.WithTimeout(c.Context(), 5*time.Second)
	defer cancel()
	stream, err := c.js.Stream(ctx, c.stream)
	if err != nil {
		return nil, err
	}
	return stream.Info(ctx)
}

// whole waits until every server has the stream.
func (c *cluster) whole() {
	c.Helper()
	devtest.Eventually(c.T, clusterPatience, "every server to have the stream", func() bool {
		info, err := c.info()
		if err != nil || info.Cluster.Leader == "" || len(info.Cluster.Replicas) != 2 {
			return false
		}
		for _, r := range info.Cluster.Replicas {
			if !r.Current || r.Offline {
				return false
			}
		}
		return true
	})
}

// passes waits until the handlers have seen more events than before. Clients are in a hurry then, so
// that the next fault can interrupt work.
func (c *cluster) passes() {
	c.Helper()
	effects := func() (n int) {
		if err := c.pool.QueryRow(c.Context(), "SELECT count(*) FROM effect").Scan(&n); err != nil {
			c.Fatal(err)
		}
		return n
	}
	before := effects()
	c.hurry(60)
	devtest.Eventually(c.T, clusterPatience, "events to take effect", func() bool { return effects() >= before+30*handlers })
}

func (c *cluster) restart(s *devstack.NATS) {
	c.Helper()
	if err := s.Restart(c.Context()); err != nil {
		c.Fatal(err)
	}
}

// Three servers store every event. During the work one is killed, all are killed, and the
// leader is asked to step down and is stopped. Afterwards every event is there, in order, and
// has taken effect once.
func TestClusterOfThreeServers(t *testing.T) {
	t.Parallel()
	for name, atomic := range map[string]bool{"single publishes": false, "atomic batches": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := openCluster(t, atomic)
			c.passes()
			c.leaderStepsDown()
			c.passes()
			c.leaderIsKilled()
			c.passes()
			c.leaderIsPaused()
			c.passes()
			c.allAreKilled()
			c.passes()
			c.waitUntilIdle()
			c.whole()
		})
	}
}

func (c *cluster) leaderStepsDown() {
	c.Helper()
	was := c.leader("")
	devtest.Eventually(c.T, clusterPatience, "an answer to the request to step down, or another leader", func() bool {
		_, err := c.nc.Request("$JS.API.STREAM.LEADER.STEPDOWN."+c.stream, nil, 5*time.Second)
		return err == nil || c.leader("") != was
	})
	c.Logf("%s stepped down, %s leads", was, c.leader(was))
}

func (c *cluster) leaderIsKilled() {
	c.Helper()
	was := c.leader("")
	if err := c.servers[was].Kill(); err != nil {
		c.Fatal(err)
	}
	c.Logf("%s was killed, %s leads", was, c.leader(was))
	c.passes() // two are enough
	c.restart(c.servers[was])
	c.whole()
}

func (c *cluster) leaderIsPaused() {
	c.Helper()
	was := c.leader("")
	if err := c.servers[was].Pause(); err != nil {
		c.Fatal(err)
	}
	c.Logf("%s was paused, %s leads", was, c.leader(was))
	if err := c.servers[was].Resume(); err != nil {
		c.Fatal(err)
	}
	c.whole()
}

func (c *cluster) allAreKilled() {
	c.Helper()
	var errs []error
	for _, s := range c.servers {
		errs = append(errs, s.Kill())
	}
	if err := errors.Join(errs...); err != nil {
		c.Fatal(err)
	}
	c.grow(100) // events wait in the log
	for _, s := range c.servers {
		c.restart(s)
	}
	c.whole()
}
