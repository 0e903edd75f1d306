package reconcile_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/pglog"
	"github.com/postroom/postroom/internal/reconcile"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/relay"
)

// A subject moved to a new stream. Its earlier events are in the earlier stream, and not missing.
func TestEventsOfAMovedSubjectAreNotMissing(t *testing.T) {
	t.Parallel()
	pool, nc := devtest.Pool(t), devtest.NATS(t)
	prefix := nats.NewInbox()[len("_INBOX."):]
	js := devtest.JetStream(t, nc)
	old, fresh := prefix+"-old", prefix+"-new"
	create := func(cfg jetstream.StreamConfig) {
		t.Helper()
		cfg.Discard = jetstream.DiscardNew
		if _, err := js.CreateOrUpdateStream(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
	}
	write := func(n int) {
		t.Helper()
		for range n {
			if _, err := pool.Exec(t.Context(), "SELECT postroom.write('/shop', $1, '{}')", prefix+".payment.made"); err != nil {
				t.Fatal(err)
			}
		}
	}
	recorded := func() {
		t.Helper()
		devtest.Eventually(t, time.Minute, "all to be recorded", func() bool {
			var all bool
			err := pool.QueryRow(t.Context(), "SELECT high = (SELECT max(seq) FROM postroom.outbox) AND isempty(pending) AND NOT EXISTS (SELECT FROM postroom.held) FROM postroom.relay").Scan(&all)
			return err == nil && all
		})
	}
	create(jetstream.StreamConfig{Name: old, Subjects: []string{prefix + ".>"}})
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	publisher, log := natsjs.NewPublisher(nc), pglog.New(pool)
	go func() {
		defer close(done)
		_ = relay.New(pool, publisher, relay.Config{}).Run(ctx) // the end of the test stops it
	}()
	t.Cleanup(func() { stop(); <-done })
	write(10)
	recorded()
	create(jetstream.StreamConfig{Name: old, Subjects: []string{prefix + ".order.>"}})
	create(jetstream.StreamConfig{Name: fresh, Subjects: []string{prefix + ".payment.>"}})
	write(5)
	recorded()
	found, err := reconcile.Compare(t.Context(), log, publisher, reconcile.Config{})
	if err != nil || len(found) != 2 {
		t.Fatalf("%+v, %v", found, err)
	}
	for _, f := range found {
		if len(f.Missing) > 0 {
			t.Errorf("stream %s lacks %v, although no event is lost", f.Stream[len(prefix):], f.Missing)
		}
	}
}
