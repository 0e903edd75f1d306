package relay_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/relay"
)

// A stream lost messages, and does not allow the consumer with which the relay would read it. The events
// of other streams are published.
func TestAStreamThatCannotBeRepairedStopsNoOther(t *testing.T) {
	t.Parallel()
	pool, nc := devtest.Pool(t), devtest.NATS(t)
	prefix := nats.NewInbox()[len("_INBOX."):]
	js := devtest.JetStream(t, nc)
	create := func(name string) jetstream.Stream {
		t.Helper()
		s, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: prefix + name, Subjects: []string{prefix + "." + name}, Discard: jetstream.DiscardNew, MaxConsumers: 1})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	count := func(s jetstream.Stream) uint64 {
		info, err := s.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return info.State.Msgs
	}
	write := func(name string) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), "SELECT postroom.write('/shop', $1, '{}')", prefix+"."+name); err != nil {
			t.Fatal(err)
		}
	}
	good, lossy := create("good"), create("lossy")
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	r := relay.New(pool, natsjs.NewPublisher(nc), relay.Config{AcceptRisks: natsjs.Risks()})
	go func() {
		defer close(done)
		_ = r.Run(ctx) // the end of the test stops it
	}()
	t.Cleanup(func() { cancel(); <-done })
	write("good")
	write("lossy")
	devtest.Eventually(t, time.Minute, "two events", func() bool { return count(good)+count(lossy) == 2 })
	if err := js.DeleteStream(t.Context(), prefix+"lossy"); err != nil {
		t.Fatal(err)
	}
	lossy = create("lossy")
	if _, err := lossy.CreateConsumer(t.Context(), jetstream.ConsumerConfig{Durable: "billing", AckPolicy: jetstream.AckExplicitPolicy}); err != nil { // that of a handler
		t.Fatal(err)
	}
	write("lossy")
	devtest.Eventually(t, time.Minute, "the relay to notice the loss", func() bool { return len(r.Health().Losses) > 0 })
	for n := range uint64(5) {
		write("good")
		devtest.Eventually(t, 30*time.Second, "an event of the other stream", func() bool { return count(good) == n+2 })
	}
	if losses := r.Health().Losses; !losses[0].RepairedAt.IsZero() {
		t.Errorf("the loss is repaired: %+v", losses)
	}
}
