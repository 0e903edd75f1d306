package inbox_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
)

// If a process dies during several calls, these calls are repeated at the same time. The same holds
// for accepted events, many of which no worker had begun. Only an event that was claimed at two
// deaths runs alone.
func TestEventsOfADeadProcess(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		external bool
		attempts int
		together bool
	}{
		{"calls, one death", true, 1, true},
		{"calls, two deaths", true, 2, false},
		{"accepted events, one death", false, 1, true},
		{"accepted events, two deaths", false, 2, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			var inside, most atomic.Int32
			met := make(chan struct{})
			run := func(ctx context.Context) error {
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
			}
			if sub := (inbox.Subscription{Name: "h", Workers: 2}); tt.external {
				b.in.HandleExternal(sub, func(ctx context.Context, _ *inbox.Attempt) error { return run(ctx) })
			} else {
				b.in.Handle(sub, postroom.HandlerFunc(func(ctx context.Context, _ pgx.Tx, _ postroom.Event) error { return run(ctx) }))
			}
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

// A process claims more accepted events than it can run, and dies. The events that no worker had begun
// are not dead, although they may have only one attempt.
func TestAnEventThatNoWorkerBeganIsNotDead(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.anew(func(cfg *inbox.Config) { cfg.DrainTimeout = time.Millisecond })
	sub := inbox.Subscription{Name: "h", Workers: 1, Attempts: 1}
	b.in.Handle(sub, postroom.HandlerFunc(func(ctx context.Context, _ pgx.Tx, _ postroom.Event) error {
		<-ctx.Done()
		return ctx.Err()
	}))
	b.accept("h", "a", "b", "c", "d")
	stop := b.run()
	b.eventually("the claims", func() bool {
		claimed := 0
		for _, o := range b.held("h") {
			if o.State == "claimed" {
				claimed++
			}
		}
		return claimed == 4
	})
	b.exec("UPDATE postroom.held SET epoch = epoch + 1, claimed_by = 'gone', next_at = now() - interval '1 s'")
	stop()
	b.anew(nil)
	b.in.Handle(sub, effect("h"))
	b.run()
	b.eventually("the end of all", func() bool { return len(b.held("h")) == b.dead("h") })
	b.wantOnce("h", "a", "b", "c", "d")
}

// An event must run alone while a long call is under way. The other events do not wait for the call.
func TestOthersDoNotWaitForAnEventThatRunsAlone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	calling, end := make(chan struct{}), make(chan struct{})
	b.in.HandleExternal(inbox.Subscription{Name: "external", Workers: 2}, func(ctx context.Context, _ *inbox.Attempt) error {
		close(calling)
		select {
		case <-end:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	b.in.Handle(inbox.Subscription{Name: "h", Workers: 1}, effect("h"))
	b.in.Handle(inbox.Subscription{Name: "alone", Workers: 1}, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		select {
		case <-end:
		default:
			t.Error("the event runs beside a call that began less than a minute ago")
		}
		return effect("alone").Handle(ctx, tx, ev)
	}))
	b.accept("external", "a")
	b.accept("alone", "poison")
	b.exec("UPDATE postroom.held SET solitary = true, next_at = now() + interval '1 hour' WHERE handler = 'alone'")
	b.run()
	<-calling
	b.exec("UPDATE postroom.held SET next_at = now() WHERE handler = 'alone'") // the next Accept wakes the inbox
	for _, id := range ids("h", 5) {
		b.accept("h", id)
		b.eventually("its effect", func() bool { return b.effects("h")[id] == 1 })
	}
	close(end)
	b.eventually("the effect of the event that runs alone", func() bool { return b.effects("alone")["poison"] == 1 })
}
