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

// A handler still has an event of a stream that was deleted and made again. A new event has the
// same sequence now. The acknowledgement of the old event must not count for the new one: if the
// process died, the new event would be lost.
func TestALateAcknowledgementOfAnotherStream(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	began, finish := make(chan string, 10), map[string]chan struct{}{"old": make(chan struct{}), "new": make(chan struct{})}
	b.in.Handle(b.subscription("h"), postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		began <- ev.ID
		select {
		case <-finish[ev.ID]:
		case <-ctx.Done():
		}
		return effect("h").Handle(ctx, tx, ev)
	}))
	b.run()
	b.publish("old")
	<-began
	if err := b.js.DeleteStream(t.Context(), b.stream); err != nil {
		t.Fatal(err)
	}
	err := natsjs.EnsureStream(t.Context(), b.nc, jetstream.StreamConfig{Name: b.stream, Subjects: []string{b.stream + ".>"}})
	if err != nil {
		t.Fatal(err)
	}
	b.publish("new")
	if id := <-began; id != "new" {
		t.Fatalf("%s runs", id)
	}
	close(finish["old"])
	b.eventually("the old one's end", func() bool { return b.counted("h", "done") == 1 })
	if err := b.nc.FlushTimeout(10 * time.Second); err != nil { // what it acknowledged has arrived
		t.Fatal(err)
	}
	if all := b.consumers(); len(all) != 1 || all[0].NumAckPending != 1 {
		t.Errorf("the new event counts as acknowledged while its handler runs: %+v", all[0])
	}
	close(finish["new"])
	b.eventually("both effects", func() bool { return len(b.effects("h")) == 2 })
	b.drained()
	b.wantOnce("h", "old", "new")
}

// A stream is restored from a backup, without its consumers, and new events get the sequences of
// the lost ones, beyond the recorded floor. The handler gets all new events.
func TestALostConsumerOfAStreamThatWasSetBack(t *testing.T) {
	t.Parallel()
	v := newBrittle(t)
	v.in.Handle(v.subscription("h"), effect("h"))
	inbox.LookOften(v.in, 20*time.Millisecond)
	stop := v.run()
	v.publish(ids("kept", 3)...)
	v.eventually("the first effects", func() bool { return len(v.effects("h")) == 3 })
	saved := v.save()
	v.publish(ids("lost", 5)...)
	v.eventually("all effects and the floor", func() bool { return len(v.effects("h")) == 8 && v.floorAt("h") == 8 })
	stop()
	v.exec("UPDATE postroom.subscription SET floor_at = now() - interval '1 hour', created_at = now() - interval '1 day'")
	v.forget(saved)
	v.loseConsumers()
	v.publish(ids("new", 7)...)
	v.in = inbox.New(v.pool, v.nc, v.config())
	v.in.Handle(v.subscription("h"), effect("h"))
	v.run()
	want := append(append(ids("kept", 3), ids("lost", 5)...), ids("new", 7)...)
	v.eventually("the last effect", func() bool { return v.effects("h")["new006"] == 1 })
	v.drained()
	v.wantOnce("h", want...)
	if n := alarmed(v.bench, v.meter, "lost_tail"); n != 1 {
		t.Errorf("%d alarms, want 1", n)
	}
}

// An operator makes a consumer leave out the bodies, while a process reads with it and while none
// does. No event is handled without its body.
func TestAConsumerThatLeavesOutBodies(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	handler := postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		if string(ev.Data) != `"`+ev.ID+`"` {
			t.Errorf("%s is handled with the body %q", ev.ID, ev.Data)
		}
		return effect("h").Handle(ctx, tx, ev)
	})
	cut := func() {
		stream, err := b.js.Stream(t.Context(), b.stream)
		if err != nil {
			t.Fatal(err)
		}
		cfg := b.consumers()[0].Config
		cfg.HeadersOnly = true
		if _, err := stream.UpdateConsumer(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
	}
	b.in.Handle(b.subscription("h"), handler)
	stop := b.run()
	b.publish("a")
	b.eventually("the first effect", func() bool { return len(b.effects("h")) == 1 })
	cut()
	b.publish("b")
	b.eventually("the second effect", func() bool { return len(b.effects("h")) == 2 })
	stop()
	cut()
	b.publish("c")
	b.in = inbox.New(b.pool, b.nc, b.config())
	b.in.Handle(b.subscription("h"), handler)
	b.run()
	b.eventually("the third effect", func() bool { return len(b.effects("h")) == 3 })
	b.drained()
	b.wantOnce("h", "a", "b", "c")
}

// A consumer is deleted and created again, as another process does after a loss. This process has
// no request at that time, so the broker does not tell it. It notices nevertheless, and
// acknowledges what the new consumer delivers.
func TestAProcessNoticesThatItsConsumerWasCreatedAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var log lines
	cfg := b.config()
	cfg.Logger = log.logger()
	b.in = inbox.New(b.pool, b.nc, cfg)
	inbox.LookOften(b.in, 20*time.Millisecond)
	began, finish := make(chan struct{}, 100), make(chan struct{})
	sub := b.subscription("h")
	sub.Workers = 1
	b.in.Handle(sub, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		if ev.ID == "a000" {
			began <- struct{}{}
			select {
			case <-finish:
			case <-ctx.Done():
			}
		}
		return effect("h").Handle(ctx, tx, ev)
	}))
	b.publish(ids("a", 20)...)
	b.run()
	<-began
	b.eventually("the process to have as many messages as it may", func() bool {
		all := b.consumers()
		return len(all) == 1 && all[0].NumAckPending == 8 && all[0].NumWaiting == 0
	})
	b.remakeConsumers()
	b.eventually("the process to notice, although it has no request", func() bool { return log.has("and created again") })
	close(finish)
	b.eventually("all effects", func() bool { return len(b.effects("h")) == 20 })
	b.publish(ids("b", 5)...)
	b.eventually("the new effects", func() bool { return len(b.effects("h")) == 25 })
	b.drained()
	b.wantOnce("h", append(ids("a", 20), ids("b", 5)...)...)
}
