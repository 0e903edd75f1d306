package claims

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox/internal/delivery"
)

// Postponed events of a key come behind the events of the key that were postponed before. Nothing
// is claimed until the events that have been due for the longest are of other keys.
func TestPostponedEventsStandInLine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(Handler{Name: "h"}, 3, 1000)
		claim := func(key string) *Claim {
			row := delivery.HeldEvent{Handler: "h", Task: delivery.Task{Event: postroom.Event{Key: key}}}
			return q.Claims([]delivery.HeldEvent{row}, time.Now())[0]
		}
		want := func(when string, keys []string, first []time.Duration) (p delivery.Postponement) {
			t.Helper()
			p = q.later.asked(time.Now())
			if !slices.Equal(p.Keys, keys) || !slices.Equal(p.First, first) {
				t.Errorf("%s: keys %v after %v, want %v after %v", when, p.Keys, p.First, keys, first)
			}
			return p
		}
		want("at first", nil, nil)
		q.Later(claim("b"), time.Second, time.Millisecond)
		q.Later(claim("a"), 3*time.Second, 10*time.Millisecond)
		q.Later(claim("a"), time.Second, 10*time.Millisecond) // an earlier time does not count
		p := want("with two keys", []string{"a", "b"}, []time.Duration{3 * time.Second, time.Second})
		if !q.later.done(time.Now(), p, map[string]int{"a": mostPostponed - 1, "b": 1}) {
			t.Error("a full statement leaves nothing to do")
		}
		p = want("behind those before", []string{"a", "b"}, []time.Duration{3*time.Second + 9990*time.Millisecond, 1001 * time.Millisecond})
		if q.later.done(time.Now(), p, map[string]int{"a": 10}) {
			t.Error("more is to be done after the last")
		}
		want("in the end", nil, nil)

		time.Sleep(5 * time.Second)
		q.Later(claim("a"), time.Second, time.Millisecond)
		q.Later(claim("b"), time.Second, time.Millisecond)
		p = want("later", []string{"a", "b"}, []time.Duration{8090 * time.Millisecond, time.Second})
		if !slices.Equal(p.Since, []time.Duration{0, 0}) {
			t.Errorf("an event due %v ago is postponed, want it due now", p.Since)
		}
		time.Sleep(time.Minute)
		p = want("when the line is over", []string{"a", "b"}, []time.Duration{0, 0})
		if !slices.Equal(p.Since, []time.Duration{time.Minute, time.Minute}) {
			t.Errorf("an event due %v ago is postponed, want a minute", p.Since)
		}
		if n := len(q.later.ends); n != 0 {
			t.Errorf("%d lines are remembered", n)
		}
	})
}

// A worker asks for a key again while the statement that postpones its events runs. The runner
// postpones the events of the key once more.
func TestAKeyThatIsAskedForMeanwhileIsPostponedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(Handler{Name: "h"}, 3, 1000)
		later := func() {
			row := delivery.HeldEvent{Handler: "h", Task: delivery.Task{Event: postroom.Event{Key: "a"}}}
			q.Later(q.Claims([]delivery.HeldEvent{row}, time.Now())[0], time.Second, time.Millisecond)
		}
		later()
		p := q.later.asked(time.Now())
		time.Sleep(time.Millisecond) // the statement runs
		later()
		q.later.done(time.Now(), p, map[string]int{"a": 1})
		if p = q.later.asked(time.Now()); !slices.Equal(p.Keys, []string{"a"}) || p.Since[0] != 0 {
			t.Errorf("the runner postpones events of %v that were due %v ago, want those of a that are due now", p.Keys, p.Since)
		}
	})
}
