package deadletter_test

import (
	"strings"
	"testing"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/deadletter"
	"github.com/postroom/postroom/internal/inspect"
)

// After a replay has succeeded, the failures that led to it can still be read, though the event
// is not held any more.
func TestFailuresAreKeptAfterASuccessfulReplay(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	n.die("h0", declined, event("e1"))
	failed := n.texts("SELECT failures->0->>'text' FROM postroom.held")
	n.handle("h0", func(postroom.Event) error { return nil })
	if done := n.runReplay(n.replay(deadletter.Filter{All: true}, deadletter.ReplayOptions{})); done.Succeeded != 1 {
		t.Fatalf("result: %+v", done)
	}
	n.want("held", 0, "SELECT count(*) FROM postroom.held")
	journey, err := inspect.New(n.pool, nil, inspect.Config{}).Event(t.Context(), "", n.texts("SELECT event_id FROM postroom.replay_event")[0])
	if err != nil {
		t.Fatal(err)
	}
	said := ""
	for _, m := range journey.Timeline() {
		said += m.Where + ": " + m.Text + "\n"
	}
	if len(failed) != 1 || failed[0] == "" || strings.Count(said, failed[0]) != 1 || !strings.Contains(said, "h0: failed: ") {
		t.Errorf("want the failure %q once in the timeline:\n%s", failed, said)
	}
}
