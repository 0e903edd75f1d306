package integration

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
)

// Each event is in the stream three times, and two processes share the work. One copy takes
// effect. The other two are recognised as duplicates.
func TestDuplicatesAtTwoProcesses(t *testing.T) {
	t.Parallel()
	const events, copies = 600, 3
	d := openDepot(t)
	var all []postroom.Event
	for i, ev := range d.events("placed", "ev", events) {
		if i%2 == 0 { // copies of half of them are neighbours, so both processes get them at the same time
			all = append(all, slices.Repeat([]postroom.Event{ev}, copies)...)
		}
	}
	for range copies { // those of the others are far apart
		for i, ev := range d.events("placed", "ev", events) {
			if i%2 == 1 {
				all = append(all, ev)
			}
		}
	}
	d.publish(all...)
	instances := []*instance{d.instance(inbox.Config{}, nil), d.instance(inbox.Config{}, nil)}
	for _, c := range instances {
		c.Handle(inbox.Subscription{Name: "once", Stream: d.stream, Types: []string{d.typed("placed")}, Workers: 8}, noting("once"))
		c.start()
	}
	d.waitUntilIdle("once")

	if got := d.tally("once"); len(got) != events || !eachOnce(got) {
		t.Errorf("%d of %d events took effect, want each once", len(got), events)
	}
	if n := d.number("SELECT count(*) FROM postroom.inbox"); n != events {
		t.Errorf("%d inbox rows of %d events", n, events)
	}
	want := map[string]int{"done": events, "duplicate": (copies - 1) * events}
	got := map[string]int{}
	for _, outcome := range []string{"done", "duplicate", "held", "dead", "conflict", "skipped", "released"} {
		for i, c := range instances {
			n := c.counted("once", outcome)
			if got[outcome] += n; got[outcome] == 0 {
				delete(got, outcome)
			}
			t.Logf("process %d: %s %d", i, outcome, n)
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("outcomes %v, want %v", got, want)
	}
}

// Two services on one stream have a handler of the same name. Each gets every event, and
// neither takes the other's.
func TestTwoServicesWithOneHandlerName(t *testing.T) {
	t.Parallel()
	const events = 500
	one := openDepot(t)
	two := openDepotOn(t, one.stream)
	for _, d := range []*depot{one, two} {
		// The databases are copies of one template. Real services do not create theirs like
		// that.
		d.exec("UPDATE postroom.instance SET id = gen_random_uuid()")
		c := d.instance(inbox.Config{AckWait: 5 * time.Second}, nil)
		c.Handle(inbox.Subscription{Name: "billing", Stream: d.stream, Types: []string{d.typed("placed")}, Workers: 4}, noting("billing"))
		c.start()
	}
	one.publish(one.events("placed", "ev", events)...)
	for _, d := range []*depot{one, two} {
		d.waitUntilIdle("billing")
		if got := d.tally("billing"); len(got) != events || !eachOnce(got) {
			t.Errorf("%d of %d events took effect, want each once", len(got), events)
		}
		if n := d.number("SELECT count(*) FROM postroom.inbox"); n != events {
			t.Errorf("%d inbox rows of %d events", n, events)
		}
	}
	if n := len(one.consumers("billing")); n != 2 {
		t.Errorf("%d consumers, want one for each service", n)
	}
}
