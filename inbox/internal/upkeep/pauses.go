package upkeep

import (
	"context"
	"slices"
	"time"

	"github.com/postroom/postroom/internal/pause"
)

// pausesEvery is how often a process asks which handlers operators have paused. They are
// to stop within two seconds.
const pausesEvery = time.Second

// Pauses obeys operators who pause handlers. It implements postroom.Runner.
type Pauses struct {
	// Paused returns those of the handlers that an operator has paused.
	Paused func(ctx context.Context, handlers []string) ([]string, error)

	Handlers []string
	Set      func(handler string, paused bool) // called for each handler after each answer
	Warn     func(ctx context.Context, what string, err error, args ...any)
}

// Ask asks once. Call it before events are handled: a pause outlives processes.
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

// Run asks until ctx ends. While the database does not answer, its last answer holds.
func (p Pauses) Run(ctx context.Context) error {
	for failures := 0; ctx.Err() == nil; pause.For(ctx, pausesEvery) {
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
