package integration_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/internal/devstack"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/relay"
)

// A leaf node has a stream on the same subjects, and programs listen on all of them. Meanwhile our stream
// loses its subjects and gets them back. Each event is in our stream in the end, and what is recorded as
// published is there at each time.
func TestAHubAndALeafNodeLoseNothing(t *testing.T) {
	t.Parallel()
	for name, atomic := range map[string]bool{"one by one": false, "in atomic batches": true} {
		for _, domains := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, domains %t", name, domains), func(t *testing.T) {
				t.Parallel()
				hubAndLeaf(t, atomic, domains)
			})
		}
	}
}

func hubAndLeaf(t *testing.T, atomic, domains bool) {
	t.Helper()
	rnd := devtest.Random(t, 0)
	pool := devtest.Pool(t)
	server := func(name, domain, options string) *nats.Conn {
		t.Helper()
		if domains {
			options += "\njetstream { domain: " + domain + " }"
		}
		n, err := devstack.StartNATS(t.Context(), devstack.NATSConfig{Name: name, Options: options, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = n.Close() }) // an error would only say that a file is left
		nc, err := nats.Connect(n.URL(), natsjs.ConnectOptions()...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		return nc
	}
	free, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := free.Addr().(*net.TCPAddr).Port
	_ = free.Close() // the hub takes the port
	hub := server("hub", "hub", fmt.Sprintf("leafnodes { listen: \"127.0.0.1:%d\" }", port))
	leaf := server("leaf", "leaf", fmt.Sprintf("leafnodes { remotes: [ { url: \"nats-leaf://127.0.0.1:%d\" } ], reconnect: 1 }", port))
	devtest.NeedsNATS(t, hub, 12)

	cfg := jetstream.StreamConfig{Name: "SHOP", Subjects: []string{"order.>"}, AllowAtomicPublish: atomic}
	if atomic {
		cfg.Subjects = append(cfg.Subjects, natsjs.LeaseSubjects("SHOP"))
	}
	site := jetstream.StreamConfig{Name: "SITE", Subjects: []string{"order.>", "postroom.lease.>"}, AllowAtomicPublish: atomic}
	for nc, c := range map[*nats.Conn]jetstream.StreamConfig{hub: cfg, leaf: site} {
		if err := natsjs.EnsureStream(t.Context(), nc, c); err != nil {
			t.Fatal(err)
		}
		for answer, reply := range map[string]string{"thanks": ">", "": "order.>"} {
			watching, err := nc.Subscribe(reply, func(m *nats.Msg) {
				if answer != "" && m.Reply != "" && m.Header.Get("ce-id") != "" {
					_ = m.Respond([]byte(answer))
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = watching.Unsubscribe() }) // the connection is closed after it
		}
	}
	js := devtest.JetStream(t, hub)
	s, err := js.Stream(t.Context(), "SHOP")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	own, err := nats.Connect(hub.ConnectedUrl(), natsjs.ConnectOptions()...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(own.Close)
	r := relay.New(pool, natsjs.NewPublisher(own), relay.Config{Atomic: atomic, AcceptRisks: natsjs.Risks(), IdlePoll: 20 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v", err)
		}
	})

	written := 0
	write := func(n int) {
		t.Helper()
		_, err := pool.Exec(t.Context(), `SELECT postroom.write('/shop', 'order.' || n % 3, '{}', id => 'e-' || n, key => CASE WHEN n % 2 = 0 THEN 'k' || n % 7 END)
			FROM generate_series($1::int, $2::int) n`, written+1, written+n)
		if err != nil {
			t.Fatal(err)
		}
		written += n
	}
	withSubjects := func(subjects ...string) {
		t.Helper()
		changed := s.CachedInfo().Config
		changed.Subjects = append(append([]string(nil), cfg.Subjects[1:]...), subjects...)
		if _, err := js.UpdateStream(t.Context(), changed); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		write(1 + rnd.IntN(60))
		withSubjects("order.0")
		write(1 + rnd.IntN(60))
		devtest.Eventually(t, time.Minute, "an event without a stream to be held", func() bool {
			var held int
			err := pool.QueryRow(t.Context(), "SELECT count(*) FROM postroom.held WHERE handler = 'outbox' AND class = 'no_stream'").Scan(&held)
			return err == nil && held > 0
		})
		withSubjects("order.>")
	}
	devtest.Eventually(t, 3*time.Minute, "no event to be held", func() bool {
		var held int
		err := pool.QueryRow(t.Context(), "SELECT count(*) FROM postroom.held").Scan(&held)
		info, infoErr := s.Info(t.Context())
		return err == nil && held == 0 && infoErr == nil && info.State.Msgs >= uint64(written) //nolint:gosec // a small number
	})
	missing := make(map[string]bool)
	for n := range written {
		missing[fmt.Sprint("e-", n+1)] = true
	}
	last := uint64(0)
	devtest.Eventually(t, 3*time.Minute, "all events to be in the stream", func() bool {
		info, err := s.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for last < info.State.LastSeq {
			last++
			m, err := s.GetMsg(t.Context(), last)
			if err != nil {
				t.Fatal(err)
			}
			delete(missing, m.Header.Get("ce-id"))
		}
		return len(missing) == 0
	})
	if lost := r.Health().Losses; len(lost) > 0 {
		t.Errorf("the relay found losses: %+v", lost)
	}
}
