package integration

import (
	"testing"

	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
)

// If a process is stopped while it runs held events, it leaves none claimed. An event that it
// did not run costs no attempt, and no process has to wait until its claim ends.
func TestAStopLeavesNoClaims(t *testing.T) {
	t.Parallel()
	const events = 240
	d := openDepot(t)
	d.exec(auditHeld)
	sub := inbox.Subscription{Name: "stopped", Stream: d.stream, Types: []string{d.typed("placed")}, Workers: 8}
	first := d.instance(inbox.Config{}, nil)
	first.Handle(sub, noting("stopped"))
	for _, ev := range d.events("placed", "ok", events) {
		if got, err := first.Accept(t.Context(), "stopped", ev); err != nil || got != inbox.Stored {
			t.Fatalf("Accept = %v, %v", got, err)
		}
	}
	stops := 0
	for d.heldCount("stopped") > 0 && !t.Failed() {
		c := d.instance(inbox.Config{}, nil)
		c.Handle(sub, noting("stopped"))
		stop := c.start()
		devtest.Eventually(t, depotPatience, "some to be done", func() bool {
			return c.counted("stopped", "done") >= 20 || d.heldCount("stopped") == 0
		})
		stop()
		c.pool.Close()
		stops++
		if n := d.number("SELECT count(*) FROM postroom.held WHERE claimed_by IS NOT NULL"); n > 0 {
			t.Errorf("stop %d left %d events claimed, with their attempts counted", stops, n)
		}
	}
	if _, attempts, failures, _ := d.auditOf("true"); attempts > 1 || failures > 0 {
		t.Errorf("up to %d attempts and %d failures, want 1 and none", attempts, failures)
	}
	if got := d.tally("stopped"); !t.Failed() && (len(got) != events || !eachOnce(got)) {
		t.Errorf("%d of %d events took effect, want each once", len(got), events)
	}
	t.Logf("%d stops", stops)
}
