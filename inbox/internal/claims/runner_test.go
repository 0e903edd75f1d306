package claims

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/postroom/postroom/inbox/internal/delivery"
)

// An event that must run alone waits for the calls of external handlers, but not for ever.
func TestAnEventThatRunsAloneWaitsForCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRunner(Config{AloneAfter: time.Minute})
		external := NewQueue(Handler{Name: "external", Renewed: true}, 10, 1000)
		r.Serve([]*Queue{external, NewQueue(Handler{Name: "h"}, 10, 1000)})
		call := &Claim{HeldEvent: delivery.HeldEvent{ID: 1}, queue: external}
		steps := []struct {
			what string
			do   func()
			want bool
		}{
			{"nothing runs", func() {}, false},
			{"a claim waits for a worker", func() { r.Begun(call); external.put(call) }, false},
			{"its call has begun", func() { external.Begin(external.Take()) }, true},
			{"it still runs", func() { time.Sleep(59 * time.Second) }, true},
			{"it runs for too long", func() { time.Sleep(time.Second) }, false},
			{"it has ended", func() { r.Ended(call) }, false},
			{"it has begun again", func() { r.Begun(call) }, true},
		}
		for _, s := range steps {
			if s.do(); r.mustWait() != s.want {
				t.Errorf("%s: must wait: %v, want %v", s.what, !s.want, s.want)
			}
		}
	})
}
