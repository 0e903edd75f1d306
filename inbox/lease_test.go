package inbox_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/telemetry"
	"github.com/postroom/postroom/natsjs"
)

// leases makes the stream take lease messages. It returns a function that stores one, as a relay
// does.
func (b *bench) leases() (store func()) {
	b.Helper()
	devtest.NeedsNATS(b.T, b.nc, 12)
	err := natsjs.EnsureStream(b.Context(), b.nc, jetstream.StreamConfig{Name: b.stream, AllowAtomicPublish: true})
	if err != nil {
		b.Fatal(err)
	}
	return func() {
		b.Helper()
		b.publishRaw(&nats.Msg{Subject: "postroom.lease.log-1." + b.stream, Data: []byte(`{"epoch":1}`)})
	}
}

// Lease messages of relays are no events. No handler sees them, whatever its subjects. None is
// held or counted, and none stops other messages.
func TestHandlersPassOverLeases(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.anew(func(cfg *inbox.Config) { cfg.AckWait = time.Minute }) // so that no message is delivered again, and counted again
	lease := b.leases()
	lease()
	for i := range 5 {
		b.publish(fmt.Sprintf("k-%d", i))
		lease()
	}
	lease() // the last message of the stream is one of these

	all := func(name string) inbox.Subscription {
		sub := b.subscription(name)
		sub.Types, sub.Subjects = nil, []string{">"}
		return sub
	}
	batched, ordered := all("batched"), all("ordered")
	batched.Batch, ordered.Order = 10, inbox.HoldKey
	b.in.Handle(all("single"), effect("single"))
	b.in.Handle(batched, effect("batched"))
	b.in.Handle(ordered, effect("ordered"))
	b.in.HandleExternal(all("external"), func(_ context.Context, attempt *inbox.Attempt) error {
		_, err := b.pool.Exec(b.Context(), "INSERT INTO effect (handler, event) VALUES ('external', $1)", attempt.Event.ID)
		return err
	})
	stop := b.run()
	b.eventually("the effects", func() bool {
		return len(b.effects("single"))+len(b.effects("batched"))+len(b.effects("ordered"))+len(b.effects("external")) >= 20
	})
	b.drained()
	b.eventually("the reader's floor to pass the leases", func() bool { return b.floorAt("ordered") == 12 })
	for _, name := range []string{"single", "batched", "ordered", "external"} {
		b.wantOnce(name, "k-0", "k-1", "k-2", "k-3", "k-4")
		b.eventually("nothing to be held", func() bool { return len(b.held(name)) == 0 })
		if n := b.ledger(name); n != 5 {
			t.Errorf("%s decided %d events, want 5", name, n)
		}
	}
	if n := b.count(telemetry.ConsumedMessages); n != 20 {
		t.Errorf("%d messages are counted, want 20", n)
	}

	// A reader that begins at such a message finds it again.
	stop()
	b.in = inbox.New(b.pool, b.nc, b.config())
	b.in.Handle(ordered, effect("ordered"))
	b.publish("k-5")
	b.run()
	b.eventually("the next effect", func() bool { return len(b.effects("ordered")) == 6 })
	if n := b.count(telemetry.InboxDataLost); n != 0 {
		t.Errorf("the reader missed messages %d times", n)
	}
}

// A process reads again what was acknowledged. It finds no inbox row of a lease message, and that is
// no loss.
func TestLeasesThatWereAcknowledgedAreNotMissing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	lease := b.leases()
	sub := b.subscription("h")
	sub.Types, sub.Subjects = nil, []string{">"}
	b.in.Handle(sub, effect("h"))
	stop := b.run()
	lease()
	b.publish("a")
	lease()
	b.eventually("the effect", func() bool { return len(b.effects("h")) == 1 })
	b.drained()
	stop()
	b.exec("UPDATE postroom.subscription SET floor = 0")
	var log lines
	b.anew(func(cfg *inbox.Config) { cfg.Logger = log.logger() })
	inbox.LookOften(b.in, 20*time.Millisecond)
	b.in.Handle(sub, effect("h"))
	b.run()
	b.eventually("the floor", func() bool { return b.floorAt("h") == 3 || alarmed(b, b.meter, "undecided") > 0 })
	b.wantOnce("h", "a")
	if n := alarmed(b, b.meter, "undecided"); n != 0 || log.has("messages were acknowledged that are not decided") {
		t.Errorf("%d alarms: a lease message is taken for a lost event", n)
	}
}
