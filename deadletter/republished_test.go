package deadletter_test

import (
	"testing"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/deadletter"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/operator"
)

// If the broker refuses an event of a republish, the event stays part of the republish when it
// is dead, discarded, reopened and replayed.
func TestRepublishedEventKeepsItsRepublish(t *testing.T) {
	t.Parallel()
	o := newOutgoingRig(newRig(t))
	o.takes(-1)
	o.relay()
	o.write("k", 1, 2, 1)
	store := operator.New(o.pool, operator.Config{})
	devtest.Eventually(t, patience, "the events to be recorded as published", func() bool {
		p, err := store.PreviewRepublish(t.Context(), operator.RepublishRequest{})
		return err == nil && p.Events == 2
	})
	o.takes(small)
	r, err := store.Republish(t.Context(), operator.RepublishRequest{All: true}, postroom.Audit{Actor: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	e1 := name("k", 1)
	o.eventuallyHeld(all("dead", e1))
	o.want("held for the republish", 1, "SELECT count(*) FROM postroom.held WHERE republish = $1 AND chain IS NULL", r.ID)
	by := postroom.Audit{Actor: "ann", Reason: "why"}
	if n, err := o.store.Discard(t.Context(), only(e1), deadletter.ChangeOptions{}, by); err != nil || n != 1 {
		t.Fatalf("Discard = %d, %v", n, err)
	}
	o.want("archived for the republish", 1, "SELECT count(*) FROM postroom.archive WHERE republish = $1", r.ID)
	if n, err := o.store.Reopen(t.Context(), only(e1), deadletter.ChangeOptions{}, by); err != nil || n != 1 {
		t.Fatalf("Reopen = %d, %v", n, err)
	}
	o.takes(-1)
	o.runReplay(o.replay(only(e1), deadletter.ReplayOptions{}))
	o.eventuallyHeld(nil)
	o.write("k", 3, 3)
	o.wantPublished("/office#"+e1, "/office#"+name("k", 2), "/office#"+name("k", 2)+"#g1", "/office#"+e1+"#r1#g1", "/office#"+name("k", 3))
}
