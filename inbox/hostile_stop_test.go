package inbox_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
)

// A handler uses a context of its program, which ends when the process begins to stop. That costs no
// attempt: the event is handled after the stop.
func TestAContextThatEndsWithTheProcessCostsNoAttempt(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name           string
		change         func(*inbox.Subscription)
		held, external bool
	}{
		{name: "a delivery", change: func(*inbox.Subscription) {}},
		{name: "a batch", change: func(s *inbox.Subscription) { s.Batch = 5 }},
		{name: "an ordered handler", change: func(s *inbox.Subscription) { s.Order = inbox.HoldKey }},
		{name: "a held event", change: func(s *inbox.Subscription) { s.Stream, s.Types = "", nil }, held: true},
		{name: "held events together", change: func(s *inbox.Subscription) { s.Stream, s.Types, s.Batch = "", nil, 5 }, held: true},
		{name: "calls", change: func(s *inbox.Subscription) { s.Stream, s.Types = "", nil }, held: true, external: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			said := new(lines)
			b.anew(func(cfg *inbox.Config) { cfg.Logger = said.logger() })
			sub := b.subscription("h")
			sub.Workers, sub.Attempts, sub.Schedule, sub.Pause = 1, 1, nil, inbox.Pause{Off: true}
			tt.change(&sub)
			handle := func(h postroom.HandlerFunc) {
				if !tt.external {
					b.in.Handle(sub, h)
					return
				}
				b.in.HandleExternal(sub, func(ctx context.Context, attempt *inbox.Attempt) error {
					attempt.OnSuccess(func(ctx context.Context, tx pgx.Tx) error { return effect("h").Handle(ctx, tx, attempt.Event) })
					return h(ctx, nil, attempt.Event)
				})
			}
			program, end := context.WithCancel(context.WithoutCancel(t.Context()))
			defer end()
			began, finish := make(chan struct{}, 10), make(chan struct{})
			handle(func(context.Context, pgx.Tx, postroom.Event) error {
				began <- struct{}{}
				<-finish
				return fmt.Errorf("ask for the price: %w", program.Err())
			})
			if tt.held {
				b.accept("h", "1", "2")
			} else {
				b.publish("1", "2")
			}
			ended := make(chan error, 1)
			go func() { ended <- b.in.Run(program) }()
			<-began
			end()
			b.eventually("it to stop", func() bool { return said.has("inbox stopping") })
			close(finish)
			if err := <-ended; err != nil {
				t.Error(err)
			}
			for key, h := range b.held("h") {
				if h.Attempts != 0 || h.Failures != 0 {
					t.Errorf("%s is held as %+v, want no attempt", key, h)
				}
			}
			b.anew(nil)
			handle(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
				if tx == nil {
					return nil
				}
				return effect("h").Handle(ctx, tx, ev)
			})
			b.run()
			b.eventually("the events to be handled", func() bool { return len(b.effects("h")) == 2 || b.dead("h") > 0 })
			b.wantOnce("h", "1", "2")
		})
	}
}
