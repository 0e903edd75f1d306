package natsjs_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/internal/devstack"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/relay/broker"
)

// A place is where the events of a situation are published.
type place struct {
	relay   *nats.Conn
	stream  jetstream.Stream // the stream that is asked; nil if there is none
	subject string

	// If the class waits is not Stored, the events that are not stored have this class until the function
	// remedy was called, and this error or code of the broker. Without a remedy they go on waiting.
	waits  broker.Class
	err    error
	code   int
	remedy func()

	rounds int    // how often more events are published
	always bool   // no event has another outcome than Stored, or Unknown if an answer comes too late
	during func() // is called again and again while events are published
	settle func() // waits until the stream can be read
}

// situations are what can be between a publisher and the stream that it asks.
var situations = []struct {
	name string
	open func(t *testing.T, name string, atomic bool) place
}{
	{"a stream alone", func(t *testing.T, name string, atomic bool) place {
		nc := devtest.NATS(t)
		return place{relay: nc, stream: asked(t, nc, name, atomic), subject: name + ".a", waits: broker.Stored}
	}},
	{"a mirror of the stream", func(t *testing.T, name string, atomic bool) place {
		nc := devtest.NATS(t)
		s := asked(t, nc, name, atomic)
		create(t, nc, jetstream.StreamConfig{Name: name + "-M", Mirror: &jetstream.StreamSource{Name: name}})
		return place{relay: nc, stream: s, subject: name + ".a", waits: broker.Stored}
	}},
	{"only a mirror", func(t *testing.T, name string, atomic bool) place {
		nc := devtest.NATS(t)
		asked(t, nc, name, atomic)
		create(t, nc, jetstream.StreamConfig{Name: name + "-M", Mirror: &jetstream.StreamSource{Name: name}})
		if err := devtest.JetStream(t, nc).DeleteStream(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		return place{relay: nc, subject: name + ".a", waits: broker.Unroutable, err: broker.ErrNoStream}
	}},
	{"a source that has the subject", func(t *testing.T, name string, atomic bool) place {
		nc := devtest.NATS(t)
		create(t, nc, jetstream.StreamConfig{Name: name + "-S", Subjects: []string{name + "-S.a"}})
		s := asked(t, nc, name, atomic, func(cfg *jetstream.StreamConfig) {
			cfg.Sources = []*jetstream.StreamSource{{
				Name: name + "-S", SubjectTransforms: []jetstream.SubjectTransformConfig{{Source: name + "-S.a", Destination: name + ".a"}},
			}}
		})
		other := connect(t, nc.ConnectedUrl())
		return place{relay: nc, stream: s, subject: name + ".a", waits: broker.Stored, during: func() { _, _ = other.Request(name+"-S.a", nil, time.Second) }}
	}},
	{"a stream that has the stream as its source", func(t *testing.T, name string, atomic bool) place {
		nc := devtest.NATS(t)
		s := asked(t, nc, name, atomic)
		create(t, nc, jetstream.StreamConfig{Name: name + "-T", Sources: []*jetstream.StreamSource{{Name: name}}})
		return place{relay: nc, stream: s, subject: name + ".a", waits: broker.Stored}
	}},
	{"a copy of each message for another stream", func(t *testing.T, name string, atomic bool) place {
		nc := devtest.NATS(t)
		create(t, nc, jetstream.StreamConfig{Name: name + "-C", Subjects: []string{"copy." + name + ".>"}})
		s := asked(t, nc, name, atomic, func(cfg *jetstream.StreamConfig) {
			cfg.RePublish = &jetstream.RePublish{Source: name + ".>", Destination: "copy." + name + ".>"}
		})
		return place{relay: nc, stream: s, subject: name + ".a", waits: broker.Stored}
	}},
	{"another subject in the stream", func(t *testing.T, name string, atomic bool) place {
		nc := devtest.NATS(t)
		s := asked(t, nc, name, atomic, func(cfg *jetstream.StreamConfig) {
			cfg.SubjectTransform = &jetstream.SubjectTransformConfig{Source: name + ".a", Destination: name + ".b"}
		})
		return place{relay: nc, stream: s, subject: name + ".a", waits: broker.Stored}
	}},
	{"a stream of another account, with its API", func(t *testing.T, name string, atomic bool) place {
		return inAnotherAccount(t, name, atomic, `, { service: { account: STREAMS, subject: "$JS.API.>" } }`, "")
	}},
	{"a stream of another account, without its API", func(t *testing.T, name string, atomic bool) place {
		p := inAnotherAccount(t, name, atomic, "", "")
		if p.waits, p.code = broker.Unknown, 10039; atomic {
			p.waits, p.err, p.code = broker.Unavailable, broker.ErrNoLeader, 0 // it must know the stream before it sends anything
		}
		return p
	}},
	{"a stream of another account, beside the relay's own JetStream", func(t *testing.T, name string, atomic bool) place {
		p := inAnotherAccount(t, name, atomic, "", "jetstream: enabled,")
		p.waits, p.err = broker.Unroutable, broker.ErrNoStream
		return p
	}},
	{"an account without room for files", func(t *testing.T, name string, atomic bool) place {
		return inAFullAccount(t, name, atomic, jetstream.FileStorage)
	}},
	{"an account without room in memory", func(t *testing.T, name string, atomic bool) place {
		return inAFullAccount(t, name, atomic, jetstream.MemoryStorage)
	}},
	{"an account with as many streams and consumers as it may have", func(t *testing.T, name string, atomic bool) place {
		server := startNATS(t, devstack.NATSConfig{Options: `accounts { A { jetstream: { max_streams: 1, max_consumers: 1 }, users: [ { user: a, password: a } ] } }`})
		nc := connect(t, server.URL(), nats.UserInfo("a", "a"))
		s := asked(t, nc, name, atomic)
		if _, err := s.CreateConsumer(t.Context(), jetstream.ConsumerConfig{Durable: "only"}); err != nil {
			t.Fatal(err)
		}
		return place{relay: nc, stream: s, subject: name + ".a", waits: broker.Stored}
	}},
	{"a program that answers with errors of its own", func(t *testing.T, name string, atomic bool) place {
		nc := connect(t, devtest.NATSURL(t))
		s := asked(t, nc, name, atomic)
		if _, err := nc.Subscribe(name+".a", func(m *nats.Msg) {
			_ = m.Respond([]byte(`{"jsonrpc":"2.0","error":{"code":-32601,"message":"Method not found"},"id":null}`))
		}); err != nil {
			t.Fatal(err)
		}
		return place{relay: nc, stream: s, subject: name + ".a", waits: broker.Stored, always: true}
	}},
	{"a leaf node without a JetStream", func(t *testing.T, name string, atomic bool) place {
		hub, leaf := startHubAndLeaf(t, "jetstream { domain: hub }", "jetstream: disabled")
		p := place{relay: leaf, stream: asked(t, hub, name, atomic), subject: name + ".a", waits: broker.Unknown, err: nats.ErrNoResponders}
		if atomic {
			p.waits, p.err = broker.Unavailable, broker.ErrNoLeader // it must know the stream before it sends anything
		}
		return p
	}},
	{"a leaf node that has the hub's JetStream", func(t *testing.T, name string, atomic bool) place {
		hub, leaf := startHubAndLeaf(t, "jetstream { domain: hub }", `jetstream: disabled, default_js_domain { "$G": hub }`)
		return place{relay: leaf, stream: asked(t, hub, name, atomic), subject: name + ".a", waits: broker.Stored}
	}},
	{"a leaf node with a JetStream, and a stream at the hub", func(t *testing.T, name string, atomic bool) place {
		hub, leaf := startHubAndLeaf(t, "jetstream { domain: hub }", "jetstream { domain: leaf }")
		return place{relay: leaf, stream: asked(t, hub, name, atomic), subject: name + ".a", waits: broker.Unroutable, err: broker.ErrNoStream}
	}},
	{"a leader that changes", func(t *testing.T, name string, atomic bool) place {
		c := commonCluster(t)
		nc := connect(t, c.url())
		s := c.streamOf(nc, jetstream.StreamConfig{Name: name, Subjects: []string{name + ".a"}, AllowAtomicPublish: atomic})
		return place{
			relay: nc, stream: s, subject: name + ".a", waits: broker.Stored, rounds: 1,
			during: func() { _, _ = nc.Request("$JS.API.STREAM.LEADER.STEPDOWN."+name, nil, time.Second) }, // it may have none
			settle: func() { c.waitUntilCurrent(s) },
		}
	}},
	{"no quorum", func(t *testing.T, name string, atomic bool) place {
		c := startCluster(t)
		s := c.streamOf(connect(t, c.url()), jetstream.StreamConfig{Name: name, Subjects: []string{name + ".a"}, AllowAtomicPublish: atomic})
		remains := connect(t, c.servers[c.leader(s)].URL())
		stopped := c.stopFollowers(s)
		return place{
			relay: remains, stream: s, subject: name + ".a", waits: broker.Unavailable, err: broker.ErrNoLeader,
			remedy: func() {
				for _, server := range stopped {
					c.restart(server)
				}
			},
			settle: func() {
				c.waitUntilCurrent(s)
				devtest.Eventually(t, clusterPatience, "the servers to have a leader", func() bool { // it makes consumers
					_, err := devtest.JetStream(t, remains).AccountInfo(t.Context())
					return err == nil
				})
			},
		}
	}},
}

// asked makes the stream that a situation is about.
func asked(t *testing.T, nc *nats.Conn, name string, atomic bool, more ...func(*jetstream.StreamConfig)) jetstream.Stream {
	t.Helper()
	cfg := jetstream.StreamConfig{Name: name, Subjects: []string{name + ".a"}, AllowAtomicPublish: atomic}
	for _, change := range more {
		change(&cfg)
	}
	return stream(t, nc, cfg)
}

// inAnotherAccount makes a stream in an account of which the relay's account imports the subjects.
func inAnotherAccount(t *testing.T, name string, atomic bool, more, own string) place {
	t.Helper()
	server := startNATS(t, devstack.NATSConfig{Options: fmt.Sprintf(`accounts {
		STREAMS { jetstream: enabled, users: [ { user: streams, password: s } ], exports: [ { service: "*.a", response_type: singleton }, { service: "postroom.lease.>" }, { service: "$JS.API.>" } ] }
		RELAYS { %s users: [ { user: relay, password: r } ], imports: [ { service: { account: STREAMS, subject: "*.a" } }, { service: { account: STREAMS, subject: "postroom.lease.>" } } %s ] }
	}`, own, more)})
	return place{
		relay: connect(t, server.URL(), nats.UserInfo("relay", "r")), subject: name + ".a", waits: broker.Stored,
		stream: asked(t, connect(t, server.URL(), nats.UserInfo("streams", "s")), name, atomic),
	}
}

// inAFullAccount makes a stream in an account that another stream has filled.
func inAFullAccount(t *testing.T, name string, atomic bool, storage jetstream.StorageType) place {
	t.Helper()
	server := startNATS(t, devstack.NATSConfig{Options: `accounts { A { jetstream: { max_file: 200000, max_memory: 200000 }, users: [ { user: a, password: a } ] } }`})
	nc := connect(t, server.URL(), nats.UserInfo("a", "a"))
	s := asked(t, nc, name, atomic, func(cfg *jetstream.StreamConfig) { cfg.Storage = storage })
	create(t, nc, jetstream.StreamConfig{Name: "FILLER", Subjects: []string{"filler"}, Storage: storage})
	if _, err := devtest.JetStream(t, nc).Publish(t.Context(), "filler", make([]byte, 199_000)); err != nil {
		t.Fatal(err)
	}
	return place{relay: nc, stream: s, subject: name + ".a", waits: broker.Unavailable, code: 10002, remedy: func() {
		if err := devtest.JetStream(t, nc).DeleteStream(t.Context(), "FILLER"); err != nil {
			t.Error(err)
		}
	}}
}

// Whatever stands between a publisher and its stream: each event ends in this stream, once, or it waits and
// its outcome says why. No outcome says Stored of an event that the stream does not have.
func TestSituations(t *testing.T) {
	t.Parallel()
	for _, situation := range situations {
		for mode, atomic := range map[string]bool{"one by one": false, "in atomic batches": true} {
			t.Run(situation.name+", "+mode, func(t *testing.T) {
				t.Parallel()
				p := situation.open(t, strings.ReplaceAll(nats.NewInbox(), ".", "-"), atomic)
				p.publish(t, atomic)
			})
		}
	}
}

// publish publishes events until all are stored, or have the outcome that the situation lets expect.
func (p place) publish(t *testing.T, atomic bool) {
	t.Helper()
	all := series(p.subject, p.subject, 200*(1+p.rounds), 7)
	told := make(map[int64]broker.Outcome)
	for events := range slices.Chunk(all, 200) {
		some := p.run(t, atomic, events, p.waits)
		for seq, o := range some {
			if o.Class != broker.Stored && (p.err != nil && !errors.Is(o.Err, p.err) || codeOf(o.Err) != p.code) {
				t.Fatalf("event %d: %s with %v, want %v, code %d", seq, o.Class, o.Err, p.err, p.code)
			}
		}
		if p.waits != broker.Stored && p.remedy == nil {
			return
		}
		if p.remedy != nil {
			p.remedy()
			some = p.run(t, atomic, events, broker.Stored)
		}
		maps.Copy(told, some)
	}
	if p.settle != nil {
		p.settle()
	}
	wantStored(t, p.stream, all, told)
	ids, _ := stored(t, p.stream)
	ids = slices.DeleteFunc(ids, func(id string) bool { return id == "" }) // messages of others
	slices.Sort(ids)
	if want := slices.Sorted(slices.Values(idsOf(all))); !slices.Equal(ids, want) {
		t.Errorf("the stream has %d events, want each of %d once", len(ids), len(want))
	}
}

// run publishes events again and again, as the relay does, until each is stored or has an outcome of the
// given class. Nothing is stored if there is no remedy.
func (p place) run(t *testing.T, atomic bool, events []broker.Event, waits broker.Class) map[int64]broker.Outcome {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	type result struct {
		seq int64
		broker.Outcome
	}
	results, batches, ended := make(chan result, len(events)), make(chan []*broker.Message), make(chan error, 1)
	report := func(f *broker.Message, o broker.Outcome) { results <- result{f.Seq, o} }
	pub, claim := natsjs.NewPublisher(connect(t, p.relay.ConnectedUrl(), nats.UserInfo(p.relay.Opts.User, p.relay.Opts.Password))), (&leaseTable{}).claim()
	go func() {
		err := broker.ErrReconnected
		for errors.Is(err, broker.ErrReconnected) {
			if atomic {
				err = pub.RunAtomic(ctx, claim, batches, report)
			} else {
				err = pub.Run(ctx, batches, report)
			}
		}
		ended <- err
	}()
	var during sync.WaitGroup
	if p.during != nil {
		during.Go(func() {
			for ctx.Err() == nil {
				p.during()
			}
		})
	}
	told := make(map[int64]broker.Outcome)
	left := events
	devtest.Eventually(t, clusterPatience, "each event to have its outcome", func() bool {
		batches <- natsjs.Usual(asMessages(left...))
		var again []broker.Event
		for range left {
			r := devtest.Receive(t, 30*time.Second, "an event to have an outcome", results)
			if told[r.seq] = r.Outcome; r.Class != broker.Stored && r.Class != waits {
				again = append(again, events[r.seq-events[0].Seq])
			}
			if p.always && r.Class != broker.Stored && r.Class != broker.Unknown {
				t.Errorf("event %d: %s with %v", r.seq, r.Class, r.Err)
			}
			if r.Class == broker.Stored && p.waits != broker.Stored && p.remedy == nil {
				t.Fatalf("event %d is stored (%+v), want that it waits", r.seq, r.Outcome)
			}
		}
		slices.SortFunc(again, func(a, b broker.Event) int { return cmp.Compare(a.Seq, b.Seq) })
		left = again
		return len(left) == 0
	})
	cancel()
	during.Wait()
	if err := <-ended; err != nil {
		t.Errorf("the publisher ended with %v", err)
	}
	return told
}
