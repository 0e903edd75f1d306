package relay_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/wire"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/relay"
	"github.com/postroom/postroom/relay/broker"
)

// slowToRead is a publisher that reads no stream until release is closed.
type slowToRead struct {
	broker.Publisher

	release chan struct{}
}

func (p slowToRead) ReadStored(ctx context.Context, stream string, within broker.SeqRange) (func(context.Context) ([]broker.StoredMessage, error), func(), error) {
	select {
	case <-p.release:
		return p.Publisher.ReadStored(ctx, stream, within)
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	}
}

// A stream is made again, and the search for what it lost takes long. Meanwhile the relay publishes
// events, also to this stream, and removes none from the log. Then the stream gets what it lost: events
// with a key as copies, which ordered handlers hold, because later events of the key came before.
func TestStreamsGoOnDuringALongSearch(t *testing.T) {
	t.Parallel()
	pool, nc := devtest.Pool(t), devtest.NATS(t)
	prefix := nats.NewInbox()[len("_INBOX."):]
	js := devtest.JetStream(t, nc)
	create := func(name string) jetstream.Stream {
		t.Helper()
		s, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: prefix + name, Subjects: []string{prefix + "." + name}, Discard: jetstream.DiscardNew})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	events := func(s jetstream.Stream) (ids []string) { // in their order; a copy has a + behind its id
		info, err := s.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for seq := uint64(1); seq <= info.State.LastSeq; seq++ {
			m, err := s.GetMsg(t.Context(), seq)
			if err != nil {
				t.Fatal(err)
			}
			id := m.Header.Get("ce-id")
			if m.Header.Get(wire.Republish) != "" {
				id += "+"
			}
			ids = append(ids, id)
		}
		return ids
	}
	exec := func(sql string, args ...any) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	write := func(stream, id, key string) {
		t.Helper()
		exec("SELECT postroom.write('/shop', $1, '{}', id => $2, key => nullif($3, ''))", prefix+"."+stream, id, key)
	}
	number := func(sql string) (n int64) {
		t.Helper()
		if err := pool.QueryRow(t.Context(), sql).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	begin := func(pub broker.Publisher, keep time.Duration) (r *relay.Relay, stop func()) {
		r = relay.New(pool, pub, relay.Config{AcceptRisks: natsjs.Risks(), Retention: keep})
		ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = r.Run(ctx) // it returns nil when ctx ends
		}()
		stop = func() { cancel(); <-done }
		t.Cleanup(stop)
		return r, stop
	}

	good, lossy := create("good"), create("lossy")
	for n := range 2000 {
		if n%1000 == 999 {
			write("lossy", fmt.Sprint("plain", n), "")
			write("lossy", fmt.Sprint("keyed", n), "k")
		}
		write("good", fmt.Sprint("old", n), "")
	}
	lost := []string{"plain999", "keyed999", "plain1999", "keyed1999"}
	_, stop := begin(natsjs.NewPublisher(nc), relay.KeepForever)
	devtest.Eventually(t, time.Minute, "the first events", func() bool { return len(events(lossy)) == 4 })
	devtest.Eventually(t, time.Minute, "their recording", func() bool {
		return number("SELECT high FROM postroom.relay") == number("SELECT max(seq) FROM postroom.outbox")
	})
	devtest.Eventually(t, time.Minute, "the time when the stream was made", func() bool {
		return number("SELECT count(*) FROM postroom.relay, jsonb_each(streams) s WHERE s.key LIKE '%lossy' AND s.value ? 'created'") == 1
	})
	stop()
	if err := js.DeleteStream(t.Context(), prefix+"lossy"); err != nil {
		t.Fatal(err)
	}
	lossy = create("lossy")
	logged := number("SELECT count(*) FROM postroom.outbox")

	pub := slowToRead{natsjs.NewPublisher(nc), make(chan struct{})}
	r, _ := begin(pub, time.Second)
	devtest.Eventually(t, time.Minute, "the relay to notice the loss", func() bool { return len(r.Health().Losses) > 0 })
	write("lossy", "new1", "k")
	write("good", "new2", "")
	devtest.Eventually(t, time.Minute, "new events during the search", func() bool {
		return slices.Equal(events(lossy), []string{"new1"}) && slices.Contains(events(good), "new2")
	})
	term := number("SELECT epoch FROM postroom.relay")
	for n := range 3 {
		write("lossy", fmt.Sprint("more", n), "")
		devtest.Eventually(t, time.Minute, "another new event", func() bool { return len(events(lossy)) == n+2 })
	}
	if losses := r.Health().Losses; len(losses) != 1 || losses[0].Verdict != broker.Recreated || !losses[0].RepairedAt.IsZero() {
		t.Errorf("losses %+v", losses)
	}
	if n := number("SELECT count(*) FROM postroom.outbox"); n != logged+5 {
		t.Errorf("the log has %d events, want %d: none may be removed before the lost ones are found", n, logged+5)
	}

	close(pub.release)
	devtest.Eventually(t, time.Minute, "the lost events", func() bool {
		got := events(lossy)
		return len(got) == 8 && !slices.ContainsFunc(lost, func(id string) bool { return !slices.Contains(got, id) && !slices.Contains(got, id+"+") })
	})
	for _, id := range events(lossy) {
		if copied := id[len(id)-1] == '+'; copied != (id == "keyed999+" || id == "keyed1999+") {
			t.Errorf("the stream has %s, want copies only of the lost events with a key", id)
		}
	}
	if losses := r.Health().Losses; len(losses) != 1 || losses[0].Events != 4 || losses[0].OutOfOrder != 2 || losses[0].RepairedAt.IsZero() {
		t.Errorf("losses %+v", losses)
	}
	if now := number("SELECT epoch FROM postroom.relay"); now != term {
		t.Errorf("term %d, want still %d", now, term)
	}
	devtest.Eventually(t, time.Minute, "the log to be pruned", func() bool { return number("SELECT count(*) FROM postroom.outbox") == 0 })
}
