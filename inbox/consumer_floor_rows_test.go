package inbox_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
)

// A process decides old events that were in the stream before the handler, and stops before it
// records its floor. Their rows expire before the next process starts. The broker knows that they
// are acknowledged, so they do not run again.
func TestADecidedBackfillWithoutRowsIsNotMissing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.publishBackfill("a", "b", "c")
	sub := b.subscription("h")
	sub.DedupeWindow = 48 * time.Hour
	b.in.Handle(sub, effect("h"))
	stop := b.run() // it records its floor every minute
	b.eventually("all effects", func() bool { return len(b.effects("h")) == 3 })
	b.drained()
	stop()
	b.exec("UPDATE postroom.subscription SET floor = 0") // on a busy machine its first look may have come so late that it recorded more
	b.overrideAgeOfRows()
	b.startBackfill(inbox.Unordered, effect("h"))
	b.eventually("the floor", func() bool { return b.floorAt("h") == 3 })
	b.drained()
	b.wantOnce("h", "a", "b", "c")
	if n := alarmed(b, b.meter, "undecided"); n != 0 {
		t.Errorf("%d alarms, want none", n)
	}
}

// Two versions of a service run at once, and only one has a DedupeKey function. The other one does
// not take the events of the first for lost, wherever their keys are between its own.
func TestKeysBetweenThoseOfAnotherVersionAreNotMissing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.in.Handle(b.subscription("h"), effect("h"))
	stop := b.run()
	for i := range 25 {
		for _, source := range []string{"/shop", "https://crm.example"} {
			b.publishEvent(postroom.Event{ID: fmt.Sprint("e", i), Source: source, Type: b.stream + ".placed", ContentType: "application/json", Data: []byte("1")})
		}
	}
	b.eventually("the first effects", func() bool { return b.ledger("h") == 50 })
	b.drained()
	stop()

	b.anew(nil)
	sub := b.subscription("h")
	sub.DedupeKey = func(ev postroom.Event) string { return "commission:" + ev.ID }
	b.in.Handle(sub, effect("h"))
	stop = b.run()
	b.publish("x", "y")
	b.eventually("the effects of the version with its own keys", func() bool { return len(b.effects("h")) == 27 })
	b.drained()
	stop()

	b.anew(nil)
	inbox.LookOften(b.in, 20*time.Millisecond)
	b.in.Handle(b.subscription("h"), effect("h"))
	b.run()
	b.eventually("the floor", func() bool { return b.floorAt("h") == 52 })
	b.drained()
	if all := b.effects("h"); all["x"] != 1 || all["y"] != 1 {
		t.Errorf("effects %v, want one of x and one of y", all)
	}
	if n := alarmed(b, b.meter, "undecided"); n != 0 {
		t.Errorf("%d alarms, want none", n)
	}
}
