package inbox_test

import (
	"testing"
	"time"

	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
)

// The broker's user may not delete consumers, so a process cannot begin again before a message that a
// person acknowledged. The recorded floor stays before it. So when the user has the right, the next
// process gets the message.
func TestAnAcknowledgedMessageWaitsForTheRightToBeginAgain(t *testing.T) {
	t.Parallel()
	_, connect := twoUsers(t, `["$JS.API.CONSUMER.DELETE.>"]`)
	b := newBenchOn(t, devtest.Pool(t), connect("all"))
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

	var log lines
	cfg := b.config()
	cfg.Logger = log.logger()
	b.in = inbox.New(b.pool, connect("some"), cfg)
	inbox.LookOften(b.in, 10*time.Millisecond)
	b.in.Handle(b.subscription("h"), effect("h"))
	stop = b.run()
	b.eventually("the report", func() bool { return log.has("cannot begin again before messages that are not decided") })
	b.publish("c")
	b.eventually("the handler to go on", func() bool { return len(b.effects("h")) == 2 })
	looks, err := b.nc.SubscribeSync("$JS.API.CONSUMER.INFO." + b.stream + ".>")
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := looks.NextMsg(20 * time.Second); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	if n := b.floorAt("h"); n > 1 {
		t.Errorf("the floor is %d, want it before the message that is not decided", n)
	}

	b.anew(nil)
	inbox.LookOften(b.in, 10*time.Millisecond)
	b.in.Handle(b.subscription("h"), effect("h"))
	b.run()
	b.eventually("the message", func() bool { return b.effects("h")["b"] == 1 })
	b.eventually("the floor", func() bool { return b.floorAt("h") == 3 })
	b.wantOnce("h", "a", "b", "c")
}
