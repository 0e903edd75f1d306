//go:build linux || darwin

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/integration/natsfleet"
	"github.com/postroom/postroom/integration/rig"
	"github.com/postroom/postroom/integration/soak/internal/figures"
	"github.com/postroom/postroom/integration/soak/internal/stage"
	"github.com/postroom/postroom/internal/childproc"
)

const aboutOrder = `Producers write events of 1,000 keys. Each transaction locks its key's row before it writes the
event. Meanwhile relays are killed (kill -9). With one server, the server is killed too, and replies
are lost. With a cluster of three servers and three replicas, the leader of the stream is killed.
The stream of the one server has a duplicate window of 100 ms, so it drops almost no duplicates. The
stream of the cluster has the default window. Then the whole stream is read: the first copies of a
key's events must be in the order of their commits.`

// trouble breaks servers and relays while producers write.
type trouble struct {
	stage   *stage.Stage
	brokers *natsfleet.Brokers
	client  *stage.Client
	crew    *crew
	proxy   *rig.DeafProxy // nil on a cluster

	serversKilled, deafened atomic.Int64
}

func order(ctx context.Context, r *stage.Stage) error {
	err := orderOn(ctx, r, "one server", 1, jetstream.StreamConfig{Duplicates: 100 * time.Millisecond})
	if err := errors.Join(err, r.Clean()); err != nil {
		return err
	}
	return orderOn(ctx, r, "cluster", 3, jetstream.StreamConfig{Replicas: 3})
}

// orderOn runs the scenario on the given number of servers.
func orderOn(ctx context.Context, r *stage.Stage, where string, servers int, cfg jetstream.StreamConfig) (err error) {
	t := &trouble{stage: r}
	if t.brokers, err = r.StartBrokers(ctx, servers); err != nil {
		return err
	}
	if t.client, err = r.Connect(ctx, t.brokers.URLs(), cfg); err != nil {
		return err
	}
	d, err := r.NewDatabase(ctx, true)
	if err != nil {
		return err
	}
	job := relayJob{Database: d.URL, NATS: t.brokers.URLs(), Lease: time.Second, ShortWindow: cfg.Duplicates > 0}
	if servers == 1 {
		if t.proxy, err = rig.StartDeafProxy(t.brokers.Address(0)); err != nil {
			return err
		}
		r.Later(t.proxy.Close)
		job.NATS = t.proxy.URL()
	}
	if t.crew, err = startCrew(r, 2, job); err != nil {
		return err
	}

	keys := stage.Pick(r, 1000, 20) // with few keys, each key has more events, so that even a short run can find disorder
	l := rig.NewLedger(keys)
	p := &producer{
		db: d, keys: keys, rate: stage.Pick(r, 3000.0, 600), total: stage.Pick(r, 200_000, 3000), slow: true,
		committed: l.Commit, undone: l.Undo,
	}
	if err := p.prepare(ctx); err != nil {
		return err
	}
	if err := stage.During(ctx, t.produce(p), t.killServers, t.killRelays, t.loseReplies, t.progress(where, l)); err != nil {
		return err
	}
	r.Say("%s: all is committed; waiting for the rest", where)
	if err := conclude(ctx, r, where, d, t.client, l); err != nil {
		return err
	}
	return t.tell(ctx, where, d)
}

// produce lets the producers commit all events. On a slow machine it stops the producers earlier:
// when their time is over and, if there is a proxy, the proxy has dropped a reply.
func (t *trouble) produce(p *producer) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		go func() {
			for childproc.Sleep(ctx, stage.Pick(t.stage, 3*time.Minute, 6*time.Second)) && t.proxy != nil && t.proxy.Dropped.Load() == 0 {
			}
			cancel()
		}()
		return p.run(ctx)
	}
}

// killServers repeatedly kills the server that leads the stream, and starts it again. When
// killServers returns, all servers run.
func (t *trouble) killServers(ctx context.Context) error {
	for childproc.Sleep(ctx, stage.Pick(t.stage, 7*time.Second, 1500*time.Millisecond)) {
		work, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		err := t.killServer(work)
		cancel()
		if err != nil {
			return fmt.Errorf("kill a server: %w", err)
		}
	}
	return nil
}

func (t *trouble) killServer(ctx context.Context) error {
	leader, err := t.leader(ctx)
	if err != nil {
		return err
	}
	t.brokers.Kill(leader)
	t.serversKilled.Add(1)
	childproc.Sleep(ctx, time.Duration(300+rand.IntN(700))*time.Millisecond)
	if err := t.brokers.Start(ctx, leader); err != nil || t.brokers.Len() > 1 {
		return err
	}
	// Kill it again while relays send a backlog, so that many messages are in flight.
	childproc.Sleep(ctx, time.Duration(100+rand.IntN(300))*time.Millisecond)
	t.brokers.Kill(leader)
	t.serversKilled.Add(1)
	return t.brokers.Start(ctx, leader)
}

// leader waits until every replica has all messages, and returns the server that leads the stream.
// Without that wait, the killed server could be the only one that has a message. Then the broker
// itself would lose the message.
func (t *trouble) leader(ctx context.Context) (leader int, err error) {
	err = childproc.Eventually(ctx, 5*time.Minute, "a stream whose replicas are current", func(ctx context.Context) (bool, error) {
		attempt, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		s, err := t.client.JS.Stream(attempt, stage.StreamName)
		if err != nil {
			return false, nil //nolint:nilerr // no leader yet
		}
		if t.brokers.Len() == 1 {
			return true, nil
		}
		cluster := s.CachedInfo().Cluster
		if cluster == nil || len(cluster.Replicas) != t.brokers.Len()-1 {
			return false, nil
		}
		for _, replica := range cluster.Replicas {
			if !replica.Current || replica.Offline {
				return false, nil
			}
		}
		_, err = fmt.Sscanf(cluster.Leader, "node-%d", &leader)
		return err == nil, nil
	})
	return leader, err
}

// killRelays kills a random relay every few seconds, and starts another in its place.
func (t *trouble) killRelays(ctx context.Context) error {
	for childproc.Sleep(ctx, stage.Pick(t.stage, 4*time.Second, 1500*time.Millisecond)) {
		if err := t.crew.replace(rand.IntN(len(t.crew.relays))); err != nil {
			return err
		}
	}
	return nil
}

// loseReplies makes the proxy deaf again and again, so that it drops the server's replies. Each
// time, the proxy is deaf until it has dropped a message, or for about five seconds.
func (t *trouble) loseReplies(ctx context.Context) error {
	for t.proxy != nil && childproc.Sleep(ctx, stage.Pick(t.stage, 3*time.Second, 800*time.Millisecond)) {
		before := t.proxy.Dropped.Load()
		t.proxy.Deaf.Store(true)
		childproc.Sleep(ctx, time.Duration(50+rand.IntN(400))*time.Millisecond)
		for waited := 0; t.proxy.Dropped.Load() == before && waited < 100 && childproc.Sleep(ctx, 50*time.Millisecond); waited++ {
		}
		t.proxy.Deaf.Store(false)
		t.deafened.Add(1)
	}
	return nil
}

// progress prints how far the producers are.
func (t *trouble) progress(where string, l *rig.Ledger) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		for childproc.Sleep(ctx, 5*time.Second) {
			t.stage.Say("%s: %s committed, servers killed %d times, replies lost %d times", where, figures.Grouped(l.Size()), t.serversKilled.Load(), t.deafened.Load())
		}
		return nil
	}
}

// tell reports how often each fault happened, and wants each fault at least once.
func (t *trouble) tell(ctx context.Context, where string, d *stage.Database) error {
	r := t.stage
	r.Check(where+": servers killed", figures.Grouped(t.serversKilled.Load()), "some", t.serversKilled.Load() > 0)
	if t.proxy != nil {
		lost := t.proxy.Dropped.Load()
		r.Check(where+": replies lost", fmt.Sprintf("%s in %s moments", figures.Grouped(lost), figures.Grouped(t.deafened.Load())), "some", lost > 0)
	}
	r.Check(where+": relays killed", figures.Grouped(t.crew.killed), "some", t.crew.killed > 0)
	terms, err := d.Terms(ctx)
	r.Note(where+": times that a relay began to lead", "%s", figures.Grouped(terms))
	r.Count(where+": relays that ended by themselves", t.crew.gone(), "")
	return err
}
