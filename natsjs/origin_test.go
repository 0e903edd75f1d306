package natsjs_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/internal/devstack"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/relay/broker"
)

// startHubAndLeaf returns connections to a server and to a leaf node of it. Each has a JetStream of its own,
// with the given options.
func startHubAndLeaf(t *testing.T, hubOptions, leafOptions string) (hub, leaf *nats.Conn) {
	t.Helper()
	port := freePorts(t, 1)[0]
	atHub := startNATS(t, devstack.NATSConfig{Name: "hub", Options: fmt.Sprintf("%s\nleafnodes { listen: \"127.0.0.1:%d\" }", hubOptions, port)})
	atLeaf := startNATS(t, devstack.NATSConfig{Name: "leaf", Options: fmt.Sprintf("%s\nleafnodes { remotes: [ { url: \"nats-leaf://127.0.0.1:%d\" } ], reconnect: 1 }", leafOptions, port)})
	hub, leaf = connect(t, atHub.URL()), connect(t, atLeaf.URL())
	listening, err := leaf.Subscribe("is.joined", func(m *nats.Msg) { _ = m.Respond(nil) })
	if err != nil {
		t.Fatal(err)
	}
	devtest.Eventually(t, time.Minute, "the leaf node to join", func() bool {
		_, err := hub.Request("is.joined", nil, time.Second)
		return err == nil
	})
	if err := listening.Unsubscribe(); err != nil {
		t.Fatal(err)
	}
	return hub, leaf
}

// joins are the ways in which a second JetStream can take the same subjects.
var joins = []struct{ name, hubOptions, leafOptions, site string }{
	{"in another domain", "jetstream { domain: hub }", "jetstream { domain: leaf }", "SITE"},
	{"in another domain with the same name", "jetstream { domain: hub }", "jetstream { domain: leaf }", "SHOP"},
	{"without domains", "", "", "SITE"},
}

// heard waits until a message to the subject reaches the stream of the leaf node.
func heard(t *testing.T, hub *nats.Conn, site jetstream.Stream, subject string) {
	t.Helper()
	devtest.Eventually(t, time.Minute, "the leaf node's stream to hear the hub", func() bool {
		if err := hub.Publish(subject, nil); err != nil {
			t.Fatal(err)
		}
		info, err := site.Info(t.Context())
		return err == nil && info.State.Msgs > 0
	})
}

// Another JetStream may store an event too, and acknowledge it first. That does not count: the event
// may not be in our stream.
func TestOnlyOurJetStreamAcknowledges(t *testing.T) {
	t.Parallel()
	for _, join := range joins {
		t.Run(join.name, func(t *testing.T) {
			t.Parallel()
			hub, leaf := startHubAndLeaf(t, join.hubOptions, join.leafOptions)
			site := stream(t, leaf, jetstream.StreamConfig{Name: join.site, Subjects: []string{"two.>"}})
			s := stream(t, hub, jetstream.StreamConfig{Name: "SHOP", Subjects: []string{"two.a"}})
			heard(t, hub, site, "two.x")

			told := publishTogether(t, connect(t, hub.ConnectedUrl()), several("two.a", 300))
			wantStored(t, s, several("two.a", 300), told)
			for _, o := range told {
				if o.Stream != "SHOP" {
					t.Fatalf("outcome %+v, want that of SHOP", o)
				}
			}

			p := publish(t, connect(t, hub.ConnectedUrl()))
			devtest.Eventually(t, time.Minute, "the publisher to find out that no stream takes the subject", func() bool {
				p.send(event(1, "two.b", "b1"))
				o := p.next()
				if o.class == broker.Stored {
					t.Fatalf("an event that only the leaf node's stream has counts as stored: %+v", o)
				}
				return errors.Is(o.err, broker.ErrNoStream)
			})
			if err := devtest.JetStream(t, hub).DeleteStream(t.Context(), "SHOP"); err != nil {
				t.Fatal(err)
			}
			stream(t, hub, jetstream.StreamConfig{Name: "SHOP", Subjects: []string{"two.>"}})
			devtest.Eventually(t, time.Minute, "the event to be stored by our stream", func() bool {
				p.send(event(1, "two.b", "b1"))
				return p.next().class == broker.Stored
			})
		})
	}
}

// What a stream of another JetStream refuses, ours may store.
func TestOnlyOurJetStreamRefuses(t *testing.T) {
	t.Parallel()
	hub, leaf := startHubAndLeaf(t, "", "")
	site := stream(t, leaf, jetstream.StreamConfig{Name: "SITE", Subjects: []string{"two.>"}, MaxMsgs: 1, Discard: jetstream.DiscardNew})
	s := stream(t, hub, jetstream.StreamConfig{Name: "SHOP", Subjects: []string{"two.a"}})
	heard(t, hub, site, "two.x")
	events := several("two.a", 300)
	wantStored(t, s, events, publishTogether(t, connect(t, hub.ConnectedUrl()), events))
}

// Atomic batches and single events with a fence are acknowledged by our stream too, and by no other.
func TestOnlyOurJetStreamAcknowledgesAtomicBatches(t *testing.T) {
	t.Parallel()
	for _, join := range joins {
		t.Run(join.name, func(t *testing.T) {
			t.Parallel()
			hub, leaf := startHubAndLeaf(t, join.hubOptions, join.leafOptions)
			site := stream(t, leaf, jetstream.StreamConfig{Name: join.site, Subjects: []string{"two.>", "postroom.lease.>"}, AllowAtomicPublish: true})
			s := atomicStream(t, hub, "SHOP", "two.a")
			heard(t, hub, site, "two.x")
			claims := &leaseTable{}
			p := begin(t, hub, claims.claim())
			p.store(series("two.a", "batch", 300, 5)...)
			for i := range 20 {
				p.send(event(int64(i+1), "two.a", fmt.Sprint("single", i)))
				if o := p.next(); o.class != broker.Stored || o.stream != "SHOP" {
					t.Fatalf("event %d: %+v, want stored in SHOP", i, o)
				}
			}
			if ids, _ := stored(t, s); len(ids) != 320 {
				t.Errorf("SHOP has %d events, want 320", len(ids))
			}
		})
	}
}

// answering makes a program of the given user answer each message to a subject, as a stream might.
func answering(t *testing.T, url, subject, answer string) {
	t.Helper()
	nc := connect(t, url, nats.UserInfo("op", "op"))
	if _, err := nc.Subscribe(subject, func(m *nats.Msg) { _ = m.Respond([]byte(answer)) }); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
}

// A stream that cannot be looked up holds back the acknowledgements of no other.
func TestALookupWithoutAnAnswerHoldsBackNoOther(t *testing.T) {
	t.Parallel()
	server := startNATS(t, devstack.NATSConfig{Options: denying("$JS.API.STREAM.INFO.SITE")})
	stream(t, connect(t, server.URL(), nats.UserInfo("op", "op")), jetstream.StreamConfig{Name: "SHOP", Subjects: []string{"two.a"}})
	answering(t, server.URL(), "two.site", `{"stream":"SITE","seq":1}`)
	denied := make(chan error, 100)
	p := publish(t, connect(t, server.URL(), nats.UserInfo("relay", "relay"),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { denied <- err })))
	p.send(event(1, "two.site", "site"))
	if err := devtest.Receive(t, time.Minute, "the lookup of SITE to be denied", denied); !errors.Is(err, nats.ErrPermissionViolation) { // it gets no answer
		t.Fatal(err)
	}
	p.send(event(2, "two.a", "a"))
	if o := p.next(); o.seq != 2 || o.class != broker.Stored {
		t.Errorf("the first outcome is %+v, want that of event 2, stored", o)
	}
}

// If it is not known whether a stream that answered is ours, its answer is no outcome of an atomic batch.
func TestAtomicBatchesBesideAStreamThatCannotBeLookedUp(t *testing.T) {
	t.Parallel()
	server := startNATS(t, devstack.NATSConfig{Options: denying("$JS.API.STREAM.INFO.SITE")})
	op := connect(t, server.URL(), nats.UserInfo("op", "op"))
	s := atomicStream(t, op, "SHOP", "two.a")
	answering(t, server.URL(), "two.a", `{"error":{"code":400,"err_code":10060,"description":"expected stream does not match"},"stream":"SITE","seq":0}`)
	p := begin(t, connect(t, server.URL(), nats.UserInfo("relay", "relay")), (&leaseTable{}).claim())
	for i := range 5 {
		p.store(series("two.a", fmt.Sprint("batch", i), 100, 5)...)
	}
	if ids, _ := stored(t, s); len(ids) != 500 {
		t.Errorf("SHOP has %d events, want 500", len(ids))
	}
}

// A program may answer with a name that no stream can have. The server would close the connection that asks
// for a stream of such a length.
func TestANameThatIsTooLongBreaksNoConnection(t *testing.T) {
	t.Parallel()
	server := startNATS(t, devstack.NATSConfig{Options: denying("none")})
	answering(t, server.URL(), "two.long", `{"stream":"`+strings.Repeat("n", 5000)+`","seq":1}`)
	nc := connect(t, server.URL(), nats.UserInfo("relay", "relay"))
	p := publish(t, nc)
	p.send(event(1, "two.long", "long"))
	if o := p.next(); !errors.Is(o.err, broker.ErrNoStream) {
		t.Errorf("outcome %+v, want ErrNoStream", o)
	}
	if n := nc.Stats().Reconnects; n != 0 {
		t.Errorf("the connection broke %d times", n)
	}
}
