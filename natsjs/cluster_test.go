package natsjs_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/internal/devstack"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/relay"
	"github.com/postroom/postroom/relay/broker"
)

// clusterPatience is long enough for several elections on a busy machine.
const clusterPatience = 2 * time.Minute

// cluster is three servers that store streams together.
type cluster struct {
	*testing.T

	servers map[string]*devstack.NATS // by name
}

// on returns the cluster for a subtest, or for another test.
func (c *cluster) on(t *testing.T) *cluster { return &cluster{t, c.servers} }

// common is the cluster of the tests that stop none of its servers.
var common struct {
	mu     sync.Mutex
	users  int
	leased *cluster
	close  func(t *testing.T)
}

// commonCluster returns a cluster that several tests use at a time. The last of them stops it.
func commonCluster(t *testing.T) *cluster {
	t.Helper()
	common.mu.Lock()
	defer common.mu.Unlock()
	if common.users == 0 {
		common.leased, common.close = newCluster(t)
	}
	common.users++
	t.Cleanup(func() {
		common.mu.Lock()
		defer common.mu.Unlock()
		if common.users--; common.users == 0 {
			common.close(t)
		}
	})
	return common.leased.on(t)
}

// startCluster returns a cluster for this test alone.
func startCluster(t *testing.T) *cluster {
	t.Helper()
	c, closeAll := newCluster(t)
	t.Cleanup(func() { closeAll(t) })
	return c
}

func newCluster(t *testing.T) (c *cluster, closeAll func(t *testing.T)) {
	t.Helper()
	c = &cluster{T: t, servers: map[string]*devstack.NATS{}}
	ports := freePorts(t, 3)
	var routes []string
	for _, port := range ports {
		routes = append(routes, fmt.Sprintf("%q", fmt.Sprint("nats://127.0.0.1:", port)))
	}
	for n, port := range ports {
		name := fmt.Sprint("server-", n)
		c.servers[name] = openNATS(t, devstack.NATSConfig{
			Name:    name,
			Options: fmt.Sprintf(`cluster { name: c, listen: "127.0.0.1:%d", routes: [ %s ] }`, port, strings.Join(routes, ", ")),
		})
	}
	return c, func(t *testing.T) {
		for _, server := range c.servers {
			if err := server.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// freePorts returns ports that were free a moment ago.
func freePorts(t *testing.T, n int) []int {
	t.Helper()
	var ports []int
	for range n {
		listener, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = listener.Close() }() // not before all ports are known, so that they differ
		ports = append(ports, listener.Addr().(*net.TCPAddr).Port)
	}
	return ports
}

// url names all servers.
func (c *cluster) url() string {
	var urls []string
	for _, s := range c.servers {
		urls = append(urls, s.URL())
	}
	return strings.Join(urls, ",")
}

// stream makes a stream of three replicas.
func (c *cluster) stream(nc *nats.Conn, name, subject string) jetstream.Stream {
	c.Helper()
	return c.streamOf(nc, jetstream.StreamConfig{Name: name, Subjects: []string{subject}})
}

// streamOf makes a stream of three replicas, otherwise with the given configuration.
func (c *cluster) streamOf(nc *nats.Conn, cfg jetstream.StreamConfig) jetstream.Stream {
	c.Helper()
	if cfg.AllowAtomicPublish {
		devtest.NeedsNATS(c.T, nc, 12)
	}
	js := devtest.JetStream(c.T, nc)
	cfg.Replicas = len(c.servers)
	var s jetstream.Stream
	devtest.Eventually(c.T, clusterPatience, "the cluster to make a stream", func() bool {
		ctx, cancel := context.WithTimeout(c.Context(), 5*time.Second)
		defer cancel()
		err := natsjs.EnsureStream(ctx, nc, cfg)
		if err == nil {
			s, err = js.Stream(ctx, cfg.Name)
		}
		return err == nil && c.leader(s) != ""
	})
	return s
}

// leader returns the name of the server that leads a stream. It is empty if the cluster names
// none.
func (c *cluster) leader(s jetstream.Stream) string {
	ctx, cancel := context.WithTimeout(c.Context(), 5*time.Second)
	defer cancel()
	info, err := s.Info(ctx)
	if err != nil || info.Cluster == nil {
		return ""
	}
	return info.Cluster.Leader
}

func (c *cluster) restart(name string) {
	c.Helper()
	if err := c.servers[name].Restart(c.Context()); err != nil {
		c.Fatal(err)
	}
}

// stopFollowers stops all servers but the leader of a stream, which then has no quorum.
func (c *cluster) stopFollowers(s jetstream.Stream) (stopped []string) {
	c.Helper()
	leader := c.leader(s)
	for name, server := range c.servers {
		if name != leader {
			server.Stop()
			stopped = append(stopped, name)
		}
	}
	return stopped
}

// waitUntilCurrent waits until all servers have all of a stream.
func (c *cluster) waitUntilCurrent(s jetstream.Stream) {
	c.Helper()
	devtest.Eventually(c.T, clusterPatience, "all servers to be current", func() bool { return c.current(s) })
}

// current reports whether all replicas of a stream are up to date.
func (c *cluster) current(s jetstream.Stream) bool {
	ctx, cancel := context.WithTimeout(c.Context(), 5*time.Second)
	defer cancel()
	info, err := s.Info(ctx)
	if err != nil || info.Cluster == nil || info.Cluster.Leader == "" {
		return false
	}
	return len(info.Cluster.Replicas) == len(c.servers)-1 &&
		!slices.ContainsFunc(info.Cluster.Replicas, func(r *jetstream.PeerInfo) bool { return !r.Current || r.Offline })
}

// ids returns the ids of the events in a stream, in its order.
func (c *cluster) ids(s jetstream.Stream) (ids []string) {
	c.Helper()
	c.waitUntilCurrent(s)
	var last uint64
	c.ask("for the state of the stream", func(ctx context.Context) error {
		info, err := s.Info(ctx)
		if err == nil {
			last = info.State.LastSeq
		}
		return err
	})
	for seq := uint64(1); seq <= last; seq++ {
		c.ask("for a message", func(ctx context.Context) error {
			m, err := s.GetMsg(ctx, seq)
			if err == nil && !strings.HasPrefix(m.Subject, "postroom.lease.") {
				ids = append(ids, m.Header.Get("ce-id"))
			}
			return err
		})
	}
	return ids
}

// ask asks until there is an answer: a new cluster holds elections for a while.
func (c *cluster) ask(what string, question func(ctx context.Context) error) {
	c.Helper()
	devtest.Eventually(c.T, clusterPatience, "an answer to the question "+what, func() bool {
		ctx, cancel := context.WithTimeout(c.Context(), 5*time.Second)
		defer cancel()
		return question(ctx) == nil
	})
}

// persist publishes n events until all are stored, and returns how often each
// class of failure was seen. No event fails with a class that counts as a refusal. onFailure is
// called after each.
func (c *cluster) persist(p *publisher, name, subject string, n int, onFailure func(o outcome)) {
	c.Helper()
	seen := map[string]int{}
	var batch []broker.Event
	for i := range int64(n) {
		batch = append(batch, event(i, subject, fmt.Sprint(name, " ", i)))
	}
	all := slices.Clone(batch)
	devtest.Eventually(c.T, clusterPatience, name+": all events to be stored", func() bool {
		p.send(batch...)
		var again []broker.Event
		for range batch {
			o := p.next()
			seen[fmt.Sprint(o.class, " ", codeOf(o.err))]++
			switch o.class {
			case broker.Stored:
				continue
			case broker.Unknown, broker.Unavailable:
			default:
				c.Errorf("%s: %s with %v of an event that the cluster will take", name, o.class, o.err)
			}
			again = append(again, all[o.seq])
			onFailure(o)
		}
		batch = again
		return len(batch) == 0
	})
	c.Logf("%s: %v", name, seen)
}

// Without its leader, or without a quorum, a stream takes no event for a while. No outcome of
// that time counts as a refusal.
func TestOutcomesWithoutALeader(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	nc := connect(t, c.url())
	s := c.stream(nc, "LEADER", "leader.a")
	p := publish(t, nc)
	c.persist(p, "all servers", "leader.a", 20, func(outcome) {})

	gone := c.leader(s)
	c.servers[gone].Stop()
	c.persist(p, "without its leader", "leader.a", 20, func(outcome) {})
	c.restart(gone)
	c.waitUntilCurrent(s)

	stopped := c.stopFollowers(s)
	unanswered := false
	c.persist(p, "without a quorum", "leader.a", 20, func(o outcome) {
		if errors.Is(o.err, broker.ErrNoLeader) && !unanswered { // the remaining server noticed that it has no quorum
			unanswered = true
			for _, name := range stopped {
				c.restart(name)
			}
		}
	})
	if !unanswered {
		t.Error("inconclusive: the outcome was never that there is no leader")
	}

	ids := c.ids(s)
	slices.Sort(ids)
	if want := len(slices.Compact(slices.Clone(ids))); len(ids) != 60 || want != 60 {
		t.Errorf("%d messages of %d events in the stream, want one of each of 60", len(ids), want)
	}
}

// While there is traffic, a relay's stream loses its leader, and then its quorum. The relay
// holds no event, and the stream stores all of them in the order of their keys.
func TestARelayWaitsForItsCluster(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	for _, atomic := range []bool{false, true} {
		t.Run(fmt.Sprint("atomic ", atomic), func(t *testing.T) { c.on(t).makeRelayWait(atomic) })
	}
}

// makeRelayWait stops servers, and starts them again.
func (c *cluster) makeRelayWait(atomic bool) {
	const keys, rounds = 5, 20
	t, name := c.T, fmt.Sprint("waits-", atomic)
	nc := connect(t, c.url())
	s := c.streamOf(nc, jetstream.StreamConfig{Name: name, Subjects: []string{name}, AllowAtomicPublish: atomic})
	src := using(name)
	// Short leases make no difference here: the log is in memory.
	r := relayOver(src, natsjs.NewPublisher(connect(t, c.url())), relay.Config{Atomic: atomic})
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("Run = %v: an outage is no reason to return", err)
		}
	}()
	devtest.Eventually(t, clusterPatience, "the relay to lead", func() bool { return r.Health().State == relay.Leading })

	var written int64
	write := func() { // one event of each key
		src.Set(func() {
			term := src.Terms[len(src.Terms)-1]
			for k := range keys {
				ev := event(written+1, name, fmt.Sprintf("%d-%d", k, written))
				ev.Key = fmt.Sprint(k)
				src.Events = append(src.Events, ev)
				term.Unread = append(term.Unread, ev)
				written++
			}
		})
	}
	// flow writes events until a condition holds.
	flow := func(what string, cond func() bool) {
		t.Helper()
		next := time.Now()
		devtest.Eventually(t, clusterPatience, what, func() bool {
			if now := time.Now(); now.After(next) {
				write()
				next = now.Add(100 * time.Millisecond)
			}
			return cond()
		})
	}
	published := func() int64 { return int64(len(src.PublishedSeqs())) }

	flow("first events", func() bool { return published() >= keys*rounds })
	gone := c.leader(s)
	c.servers[gone].Stop()
	before := written
	flow("events that were written without the leader", func() bool { return published() > before+keys*rounds })
	c.restart(gone)
	flow("all servers to be current", func() bool { return c.current(s) })

	stopped := c.stopFollowers(s)
	outage := time.Now()
	flow("an outage that is longer than the relay's patience with what is refused", func() bool { return time.Since(outage) > 8*time.Second })
	for _, name := range stopped {
		c.restart(name)
	}
	before = written
	flow("events that were written without a quorum", func() bool { return published() > before })
	devtest.Eventually(t, clusterPatience, "everything to be published", func() bool { return published() == written })

	src.Set(func() {
		if len(src.Held) > 0 {
			t.Errorf("%d events are held, and an outage holds none: %+v", len(src.Held), src.Held)
		}
	})
	last, seen := map[string]int64{}, map[string]bool{}
	for _, id := range c.ids(s) {
		if seen[id] {
			continue
		}
		seen[id] = true
		key, number, _ := strings.Cut(id, "-")
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if n < last[key] {
			t.Errorf("event %d of key %s comes after %d", n, key, last[key])
		}
		last[key] = n
	}
	if int64(len(seen)) != written {
		t.Errorf("%d events are in the stream, %d were written", len(seen), written)
	}
	t.Logf("%d events", written)
}
