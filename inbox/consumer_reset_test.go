package inbox_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/natsjs"
)

// resetConsumer makes the handler's consumer go on at a sequence, as an operator does with a request to
// the broker: it passes over the messages before, and numbers its deliveries from 1 again.
func (b *bench) resetConsumer(seq uint64) {
	b.Helper()
	if _, err := b.js.ResetConsumerToSequence(b.Context(), b.stream, b.consumers()[0].Name, seq); err != nil {
		b.Fatal(err)
	}
}

// An operator makes the consumer of a handler pass over messages. The handler gets their events
// nevertheless, and there is an alarm.
func TestAConsumerThatPassesOverMessages(t *testing.T) {
	t.Parallel()
	t.Run("before a process starts", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		b.in.Handle(b.subscription("h"), effect("h"))
		stop := b.run()
		b.publish(ids("a", 3)...)
		b.eventually("the first effects", func() bool { return len(b.effects("h")) == 3 })
		b.drained()
		stop()
		b.publish(ids("b", 5)...)
		b.resetConsumer(9)
		b.anew(nil)
		inbox.LookOften(b.in, 20*time.Millisecond)
		b.in.Handle(b.subscription("h"), effect("h"))
		b.run()
		b.eventually("the floor", func() bool { return b.floorAt("h") == 8 })
		b.publish("last")
		b.eventually("the last effect", func() bool { return b.effects("h")["last"] == 1 })
		b.drained()
		b.wantOnce("h", append(append(ids("a", 3), ids("b", 5)...), "last")...)
		if n := alarmed(b, b.meter, "undecided"); n != 1 {
			t.Errorf("%d alarms, want one", n)
		}
	})
	t.Run("while a process runs", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		inbox.LookOften(b.in, 20*time.Millisecond)
		goOn := make(chan struct{})
		b.in.Handle(b.subscription("h"), postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
			if ev.ID[0] == 'b' {
				select {
				case <-goOn:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			return effect("h").Handle(ctx, tx, ev)
		}))
		b.publish(ids("a", 3)...)
		b.run()
		b.eventually("the floor", func() bool { return b.floorAt("h") == 3 })
		b.publish(ids("b", 30)...)
		b.eventually("the process to have enough messages", func() bool {
			all := b.consumers()
			return all[0].NumAckPending > 0 && all[0].NumPending > 0 && all[0].NumWaiting == 0
		})
		b.resetConsumer(34)
		close(goOn)
		b.eventually("the floor", func() bool { return b.floorAt("h") == 33 })
		b.publish("last")
		b.eventually("the last effect", func() bool { return b.effects("h")["last"] == 1 })
		b.drained()
		b.wantOnce("h", append(append(ids("a", 3), ids("b", 30)...), "last")...)
		if n := alarmed(b, b.meter, "undecided"); n != 1 {
			t.Errorf("%d alarms, want one", n)
		}
	})
}

// A person acknowledged a message, and the broker refuses a further consumer for a while, because the
// stream has as many as it may. That is no missing right: the process looks again, and the handler gets
// the event.
func TestAProcessLooksAgainWhenTheBrokerAllowsIt(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	if err := b.js.DeleteStream(t.Context(), b.stream); err != nil {
		t.Fatal(err)
	}
	if err := natsjs.EnsureStream(t.Context(), b.nc, jetstream.StreamConfig{Name: b.stream, Subjects: []string{b.stream + ".>"}, MaxConsumers: 2}); err != nil {
		t.Fatal(err)
	}
	b.in.Handle(b.subscription("h"), effect("h"))
	stop := b.run()
	b.publish("a")
	b.eventually("the first effect", func() bool { return len(b.effects("h")) == 1 })
	b.drained()
	stop()
	b.publish("b")
	if n := b.take(1); n != 1 {
		t.Fatalf("the person took %d messages", n)
	}
	other, err := b.js.CreateConsumer(t.Context(), b.stream, jetstream.ConsumerConfig{Durable: "other"})
	if err != nil {
		t.Fatal(err)
	}
	var log lines
	b.anew(func(cfg *inbox.Config) { cfg.Logger = log.logger() })
	inbox.LookOften(b.in, 20*time.Millisecond)
	b.in.Handle(b.subscription("h"), effect("h"))
	b.run()
	b.eventually("the report", func() bool { return log.has("cannot check whether acknowledged messages are decided") })
	b.publish("c")
	b.eventually("the handler to go on", func() bool { return b.effects("h")["c"] == 1 })
	if err := b.js.DeleteConsumer(t.Context(), b.stream, other.CachedInfo().Name); err != nil {
		t.Fatal(err)
	}
	b.eventually("the event", func() bool { return b.effects("h")["b"] == 1 })
	b.wantOnce("h", "a", "b", "c")
	if log.has("permission denied") {
		t.Error("the log says that a right is missing")
	}
}
