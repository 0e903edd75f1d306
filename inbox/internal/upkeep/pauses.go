package upkeep

import (
	"context"
	"slices"
	"time"

	"github.com/postroom/postroom/internal/sleep"
)

// pausesEvery is how often a process asks which handlers operators have paused. Paused
// handlers must stop within two seconds.
const pausesEvery = time.Second

// Pauses asks the database which handlers operators have paused, and pauses these handlers in this
// process. It implements postroom.Runner.
type Pauses struct {
	// Paused returns which of the given handlers an operator has paused.
	Paused func(ctx context.Context, handlers []string) ([]string, error)

	Handlers []string
	Set      func(handler string, paused bool) // called for each handler after each answer
	Warn     func(ctx context.Context, what string, err error, args ...any)
}

// Ask asks once. Call it before events are handled, because an operator may have paused a handler
// before this process started.
func (p Pauses) Ask(ctx context.Context) error {
	paused, err := p.Paused(ctx, p.Handlers)
	if err != nil {
		return err
	}
	for _, handler := range p.Handlers {
		p.Set(handler, slices.Contains(paused, handler))
	}
	return nil
}

// Run asks at intervals until ctx ends. While the database does not answer, its last answer counts.
func (p Pauses) Run(ctx context.Context) error {
	for failures := 0; ctx.Err() == nil; sleep.For(ctx, pausesEvery) {
		err := p.Ask(ctx)
		if err == nil {
			failures = 0
			continue
		}
		if failures++; ctx.Err() == nil && failures > 1 {
			p.Warn(ctx, "cannot ask which handlers are paused", err, "failures", failures)
		}
	}
	return nil
}
