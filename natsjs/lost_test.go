package natsjs_test

import (
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/relay/broker"
)

// proxy stands between a client and a server, and can drop the server's bytes.
type proxy struct {
	listener net.Listener
	losing   atomic.Bool
	lost     atomic.Int64 // bytes
}

// startProxy starts a proxy to the server of the given URL.
func startProxy(t *testing.T, to string) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: listener}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp4", strings.TrimPrefix(to, "nats://"))
			if err != nil {
				_ = client.Close()
				continue
			}
			all.Go(func() { _, _ = io.Copy(server, client); _ = server.Close() })
			all.Go(func() { _, _ = io.Copy(lossy{client, p}, server); _ = client.Close() })
		}
	})
	t.Cleanup(func() { _ = listener.Close(); all.Wait() }) // the copying ends with the client, which closes before
	return p
}

func (p *proxy) url() string { return "nats://" + p.listener.Addr().String() }

// lossy passes the server's bytes on, or drops them.
type lossy struct {
	client net.Conn
	proxy  *proxy
}

func (l lossy) Write(b []byte) (int, error) {
	if l.proxy.losing.Load() {
		l.proxy.lost.Add(int64(len(b)))
		return len(b), nil
	}
	return l.client.Write(b)
}

// If an acknowledgement is lost, the publisher cannot tell whether the event is stored. Here it is
// stored, and sending it again shows that.
func TestOutcomeOfALostAnswer(t *testing.T) {
	t.Parallel()
	direct := devtest.NATS(t)
	s := stream(t, direct, jetstream.StreamConfig{Name: "LOST", Subjects: []string{"lost.>"}})
	between := startProxy(t, devtest.NATSURL(t))
	p := publish(t, connect(t, between.url()))
	p.send(event(1, "lost.a", "before"))
	if o := p.next(); o.class != broker.Stored {
		t.Fatalf("outcome %+v through the proxy", o)
	}

	between.losing.Store(true)
	p.send(event(2, "lost.a", "it"))
	if o := p.next(); o.class != broker.Unknown || !errors.Is(o.err, broker.ErrUnacknowledged) || !errors.Is(o.err, nats.ErrTimeout) {
		t.Errorf("outcome %+v, want unknown", o)
	}
	if between.lost.Load() == 0 {
		t.Error("inconclusive: nothing was lost")
	}
	between.losing.Store(false)
	p.send(event(2, "lost.a", "it"))
	for o := p.next(); o.class != broker.Stored || !o.duplicate; o = p.next() {
		if o.class != broker.Unknown {
			t.Fatalf("outcome %+v of the repetition, want a duplicate", o)
		}
		p.send(event(2, "lost.a", "it")) // as the relay does
	}
	if info, err := s.Info(t.Context()); err != nil || info.State.Msgs != 2 {
		t.Errorf("%d messages in the stream (%v), want 2", info.State.Msgs, err)
	}
}
