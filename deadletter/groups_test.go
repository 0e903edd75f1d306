package deadletter_test

import (
	"testing"
	"time"

	"github.com/postroom/postroom/deadletter"
	"github.com/postroom/postroom/internal/devtest"
)

// 20,000 dead events of five causes, in three handlers, are five groups, which are told
// at once.
func TestGroupsOfMany(t *testing.T) {
	t.Parallel()
	n := newNight(t)
	n.seed(20_000, 15, 5)
	// The five causes are in three handlers.
	n.exec("INSERT INTO postroom.inbox (handler, dedupe_key) SELECT 'g' || (id % 5) % 3, dedupe_key FROM postroom.held")
	n.exec("UPDATE postroom.held SET handler = 'g' || (id % 5) % 3")
	n.want("handlers and causes", 5, "SELECT count(DISTINCT (handler, fingerprint)) FROM postroom.held")
	began := time.Now()
	groups, all, err := n.store.Groups(t.Context(), deadletter.Filter{})
	took := time.Since(began)
	if err != nil || all != 5 || len(groups) != 5 {
		t.Fatalf("%d groups (told: %d), %v; want 5", len(groups), all, err)
	}
	handlers := map[string]bool{}
	var sum int64
	for _, g := range groups {
		handlers[g.Handler] = true
		sum += g.Events
		if g.Events != 4000 || g.Keys != 20 || g.Error == "" || g.Class != "error" || !g.FirstDeadAt.Before(g.LastDeadAt) {
			t.Errorf("group: %+v", g)
		}
		if count, err := n.store.Count(t.Context(), deadletter.Filter{Cause: g.Cause, Handler: g.Handler}); err != nil || count != g.Events {
			t.Errorf("events of the group: %d, %v", count, err)
		}
		w := n.show(g.ExampleID)
		if w.Cause != g.Cause || w.Handler != g.Handler || w.Error != g.Error {
			t.Errorf("example of %+v: %+v", g, w)
		}
	}
	if sum != 20_000 || len(handlers) != 3 || took > devtest.Patience(t, 5*time.Second) {
		t.Errorf("%d events in groups of %v, told after %s", sum, handlers, took)
	}
	if groups, all, err = n.store.Groups(t.Context(), deadletter.Filter{Handler: groups[0].Handler, Key: "k1"}); err != nil || all > 2 || len(groups) != all {
		t.Errorf("groups of a handler and a key: %+v, %d, %v", groups, all, err)
	}
}
