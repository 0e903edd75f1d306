package inbox_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
)

// link dials connections that together transfer a limited number of bytes a second.
type link struct {
	mu   sync.Mutex
	rate float64
	free time.Time // when the link has transferred everything that was read
}

func (l *link) Dial(network, address string) (net.Conn, error) {
	conn, err := net.Dial(network, address)
	if err != nil {
		return nil, err
	}
	if err := conn.(*net.TCPConn).SetReadBuffer(64 << 10); err != nil {
		return nil, err
	}
	return &linked{conn, l}, nil
}

type linked struct {
	net.Conn

	link *link
}

func (c *linked) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p[:min(len(p), 32<<10)])
	l := c.link
	l.mu.Lock()
	if now := time.Now(); l.free.Before(now) {
		l.free = now
	}
	l.free = l.free.Add(time.Duration(float64(n) / l.rate * float64(time.Second)))
	wait := time.Until(l.free)
	l.mu.Unlock()
	time.Sleep(wait) // this makes the link slow; no test waits here for something else
	return n, err
}

// Large events come over a slow link. The server never has to buffer more than it does for a
// client, and it sends no event twice.
func TestLargeEventsComeOnceOverASlowLink(t *testing.T) {
	t.Parallel()
	const events, size = 100, 980_000 // more than the server buffers for a client, and more than the inbox has in memory
	for _, way := range []string{"transactional", "ordered", "external"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			narrow := &link{rate: 24e6}
			var lost atomic.Int32
			nc, err := nats.Connect(devtest.NATSURL(t), nats.MaxReconnects(-1), nats.ReconnectBufSize(-1), nats.ReconnectWait(50*time.Millisecond),
				nats.SetCustomDialer(narrow), nats.DisconnectErrHandler(func(*nats.Conn, error) { lost.Add(1) }))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(nc.Close)
			b := newBenchOn(t, poolWith(t, func(cfg *pgxpool.Config) { cfg.MaxConns = 40 }), nc)
			fast := devtest.JetStream(t, devtest.NATS(t))
			b.js = fast
			cfg := b.config()
			cfg.AckWait = 30 * time.Second
			b.in = inbox.New(b.pool, nc, cfg)
			sub := b.subscription("h")
			var handled atomic.Int32
			handle := postroom.HandlerFunc(func(context.Context, pgx.Tx, postroom.Event) error {
				handled.Add(1)
				return nil
			})
			switch way {
			case "ordered":
				sub.Order = inbox.HoldKey
				b.in.Handle(sub, handle)
			case "transactional":
				sub.Workers = 32 // they have 256 events in memory
				b.in.Handle(sub, handle)
			case "external":
				b.in.HandleExternal(sub, func(context.Context, *inbox.Attempt) error {
					handled.Add(1)
					return nil
				})
			}
			for i := range events {
				b.publishEvent(postroom.Event{ID: fmt.Sprint(i), Source: "/shop", Type: b.stream + ".placed", Key: fmt.Sprint(i), Data: make([]byte, size)})
			}
			b.run()
			devtest.Eventually(t, 2*time.Minute, "all to be handled", func() bool { return handled.Load() >= events })
			if n := lost.Load(); n > 0 {
				t.Errorf("the server disconnected the client %d times", n)
			}
			if n := handled.Load(); n > events {
				t.Errorf("%d events were handled, want %d", n, events)
			}
			if way == "ordered" {
				return
			}
			for _, info := range b.consumers() {
				if n := info.Delivered.Consumer; n > events {
					t.Errorf("%d deliveries of %d events", n, events)
				}
			}
		})
	}
}

// If an event is larger than a request, it comes nevertheless, and so do the events behind it.
func TestEventLargerThanARequestComes(t *testing.T) {
	t.Parallel()
	for _, order := range []inbox.Order{inbox.Unordered, inbox.HoldKey} {
		server := devtest.OwnNATS(t)
		if err := server.Reload("max_payload: 8MB"); err != nil {
			t.Fatal(err)
		}
		nc, err := nats.Connect(server.URL(), nats.MaxReconnects(-1), nats.ReconnectBufSize(-1))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		b := newBenchOn(t, devtest.Pool(t), nc)
		cfg := b.config()
		cfg.PullBytes = 2 << 20
		b.in = inbox.New(b.pool, nc, cfg)
		sub := b.subscription("h")
		sub.Order = order
		b.in.Handle(sub, effect("h"))
		b.publish("first")
		for _, id := range []string{"large", "larger"} {
			b.publishEvent(postroom.Event{ID: id, Source: "/shop", Type: b.stream + ".placed", Key: id, Data: make([]byte, 3<<20)})
		}
		b.publish("last")
		b.run()
		b.eventually("all effects", func() bool { return len(b.effects("h")) == 4 })
		b.wantOnce("h", "first", "large", "larger", "last")
	}
}
