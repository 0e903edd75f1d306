package inbox_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/postroom/postroom/inbox"
)

// If a process dies during several calls, these calls are repeated at the same time. Only an event
// that was running at two deaths runs alone.
func TestExternalEventsOfADeadProcess(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		attempts int
		together bool
	}{
		{"one death", 1, true},
		{"two deaths", 2, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			var inside, most atomic.Int32
			met := make(chan struct{})
			b.in.HandleExternal(inbox.Subscription{Name: "h", Workers: 2}, func(ctx context.Context, _ *inbox.Attempt) error {
				n := inside.Add(1)
				defer inside.Add(-1)
				most.Store(max(most.Load(), n))
				if !tt.together {
					return nil
				}
				if n == 2 {
					close(met)
				}
				select {
				case <-met:
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			})
			b.accept("h", "a", "b")
			b.exec("UPDATE postroom.held SET attempts = $1::int, epoch = 7, claimed_by = 'gone', next_at = now() - interval '1 s'", tt.attempts)
			b.run()
			b.waitUntilNoneHeld("h")
			if got := most.Load(); (got == 2) != tt.together {
				t.Errorf("%d ran at a time, together: %v", got, tt.together)
			}
		})
	}
}
