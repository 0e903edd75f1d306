package inbox_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
)

// changeConsumer changes the handler's consumer, as an operator does with the nats CLI.
func (b *bench) changeConsumer(change func(*jetstream.ConsumerConfig)) {
	b.Helper()
	stream, err := b.js.Stream(b.Context(), b.stream)
	if err != nil {
		b.Fatal(err)
	}
	cfg := b.consumers()[0].Config
	change(&cfg)
	if _, err := stream.UpdateConsumer(b.Context(), cfg); err != nil {
		b.Fatal(err)
	}
}

// An operator limits max_deliver while six events are in flight, and these are given back: by a
// graceful restart, or because the process runs on and cannot hold them. The broker then drops them.
// The handler gets them nevertheless, whatever the retention of the stream is.
func TestMaxDeliverOfAnOperatorLosesNothing(t *testing.T) {
	t.Parallel()
	for _, retention := range []jetstream.RetentionPolicy{jetstream.LimitsPolicy, jetstream.InterestPolicy, jetstream.WorkQueuePolicy} {
		for name, restart := range map[string]bool{"restart": true, "running": false} {
			t.Run(retention.String()+", "+name, func(t *testing.T) {
				t.Parallel()
				b := newBench(t)
				if err := b.js.DeleteStream(t.Context(), b.stream); err != nil {
					t.Fatal(err)
				}
				_, err := b.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: b.stream, Subjects: []string{b.stream + ".>"}, Retention: retention})
				if err != nil {
					t.Fatal(err)
				}
				cfg := b.config()
				cfg.DrainTimeout = 50 * time.Millisecond
				b.in = inbox.New(b.pool, b.nc, cfg)
				began, finish := make(chan struct{}, 6), make(chan struct{})
				sub := b.subscription("h")
				sub.Workers = 6
				b.in.Handle(sub, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
					if ev.ID != "before" {
						began <- struct{}{}
						select {
						case <-finish:
						case <-ctx.Done():
							return ctx.Err()
						}
					}
					return effect("h").Handle(ctx, tx, ev)
				}))
				stop := b.run()
				b.eventually("the consumer", func() bool { return len(b.consumers()) == 1 })
				b.publish("before")
				b.eventually("the first effect", func() bool { return len(b.effects("h")) == 1 })
				b.publish(ids("e", 6)...)
				for range 6 {
					<-began
				}
				b.changeConsumer(func(c *jetstream.ConsumerConfig) { c.MaxDeliver = 1 })
				if !restart { // another process of the handler runs on, and sees the change
					other := inbox.New(b.pool, b.nc, b.config())
					inbox.LookOften(other, 10*time.Millisecond)
					other.Handle(b.subscription("h"), effect("h"))
					first := b.in
					b.in = other
					b.run()
					b.in = first
					b.eventually("the change to be mended", func() bool { all := b.consumers(); return len(all) == 1 && all[0].Config.MaxDeliver == -1 })
				}
				stop()
				if restart {
					b.in = inbox.New(b.pool, b.nc, b.config())
					b.in.Handle(b.subscription("h"), effect("h"))
					b.run()
				}
				b.eventually("the effects of all events", func() bool { return len(b.effects("h")) == 7 })
				b.drained()
				b.wantOnce("h", append(ids("e", 6), "before")...)
			})
		}
	}
}

// A running process corrects what an operator changed on the consumer, and reads on. With some of
// these settings, the broker refuses each request of the process.
func TestDriftIsCorrectedAtOnce(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(*jetstream.ConsumerConfig)
		minor  int // the setting came with NATS 2.minor
	}{
		"max_deliver":     {func(c *jetstream.ConsumerConfig) { c.MaxDeliver = 5 }, 0},
		"max_ack_pending": {func(c *jetstream.ConsumerConfig) { c.MaxAckPending = 1 }, 0},
		"filter_subjects": {func(c *jetstream.ConsumerConfig) { c.FilterSubjects, c.FilterSubject = nil, "other.thing" }, 0},
		"max_batch":       {func(c *jetstream.ConsumerConfig) { c.MaxRequestBatch = 1 }, 0},
		"max_bytes":       {func(c *jetstream.ConsumerConfig) { c.MaxRequestMaxBytes = 1 }, 0},
		"max_expires":     {func(c *jetstream.ConsumerConfig) { c.MaxRequestExpires = time.Second }, 0},
		"priority_policy": {func(c *jetstream.ConsumerConfig) {
			c.PriorityPolicy, c.PriorityGroups = jetstream.PriorityPolicyOverflow, []string{"jobs"}
		}, 11},
		"pinned client": {func(c *jetstream.ConsumerConfig) {
			c.PriorityPolicy, c.PriorityGroups, c.PinnedTTL = jetstream.PriorityPolicyPinned, []string{"jobs"}, time.Minute
		}, 11},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			devtest.NeedsNATS(t, b.nc, tt.minor)
			inbox.LookOften(b.in, 10*time.Millisecond)
			b.in.Handle(b.subscription("h"), effect("h"))
			b.run()
			b.publish("a")
			b.eventually("the first effect", func() bool { return len(b.effects("h")) == 1 })
			want := b.consumers()[0].Config
			b.changeConsumer(tt.change)
			b.eventually("it to be mended", func() bool {
				all := b.consumers()
				if len(all) != 1 {
					return false
				}
				got := all[0].Config
				return got.MaxDeliver == want.MaxDeliver && got.MaxAckPending == want.MaxAckPending &&
					got.MaxRequestBatch == 0 && got.MaxRequestMaxBytes == 0 && got.MaxRequestExpires == 0 &&
					got.PriorityPolicy == jetstream.PriorityPolicyNone && len(got.PriorityGroups) == 0 && got.PinnedTTL == 0 &&
					got.FilterSubject+" "+append(got.FilterSubjects, "")[0] != "other.thing "
			})
			b.publish(ids("b", 30)...)
			b.eventually("the other effects", func() bool { return len(b.effects("h")) == 31 })
			b.drained()
			b.wantOnce("h", append(ids("b", 30), "a")...)
		})
	}
}
