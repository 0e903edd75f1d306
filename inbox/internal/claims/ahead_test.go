package claims

import (
	"testing"
	"time"

	"github.com/postroom/postroom/inbox/internal/delivery"
)

// Claims wait for a worker only while the workers take them soon.
func TestAheadFollowsTheWorkers(t *testing.T) {
	t.Parallel()
	a, now := newAhead(8), time.Unix(0, 0)
	want := func(when string, n int) {
		t.Helper()
		if got := a.room(); got != n {
			t.Errorf("%s %d may wait, want %d", when, got, n)
		}
	}
	want("at first", 8)
	a.put(now, 0)
	a.put(now.Add(longWait), 1) // behind the first claim, whose time counts
	if a.isStuck(now.Add(longWait-1), 2) || a.isStuck(now.Add(time.Hour), 0) {
		t.Error("stuck too early, or although no event waits")
	}
	if !a.isStuck(now.Add(longWait), 2) {
		t.Error("not stuck")
	}
	want("after the workers were busy for long", 0)
	now = now.Add(time.Minute)
	a.put(now, 0)
	a.taken(now.Add(shortWait-1), now)
	want("after one was taken soon", 1)
	for range 20 {
		a.taken(now, now)
	}
	want("after many were", 8)
	a.taken(now.Add(longWait), now)
	want("after one waited for longer, and not for long", 8)
	a.taken(now.Add(longWait+1), now)
	want("after one waited for long", 4)
	if a.isStuck(now.Add(longWait+1), 4) {
		t.Error("stuck, and a worker has just taken one")
	}
}

// A queue asks for more when workers have taken half of the claims that may wait, so that one
// statement claims many. If no worker takes a claim, there is no room for another.
func TestQueueAsksForMany(t *testing.T) {
	t.Parallel()
	q := NewQueue(Handler{Name: "h", Running: 2}, 10, 1000)
	room := func(when string, n int32) {
		t.Helper()
		if got, _ := q.room(); got != n {
			t.Errorf("%s there is room for %d, want %d", when, got, n)
		}
	}
	room("at first", 10)
	all := q.Claims(make([]delivery.HeldEvent, 10), time.Now())
	for _, cl := range all {
		q.claimed.Add(1)
		q.put(cl)
	}
	for range 5 {
		q.Take()
		q.claimed.Add(-1)
	}
	room("while more than half of them wait", 0)
	q.Take()
	q.claimed.Add(-1)
	room("when half of them were taken", 6)
	q.ahead.moved = time.Now().Add(-longWait)
	if !q.isStuck() {
		t.Error("not stuck")
	}
	if n := q.allowed(); n != 2 {
		t.Errorf("%d claims may be open, want as many as run", n)
	}
	if fixed := NewQueue(Handler{Name: "h"}, 3, 1000); fixed.isStuck() || fixed.allowed() != 3 || !fixed.wants() {
		t.Error("a queue without claims that wait is stuck, or has another limit")
	}
}
