package delivery

import (
	"context"
	"time"
)

// Lifetime is how long a part of the inbox works. It ends in two steps, so that work
// under way can finish.
type Lifetime struct {
	// Take ends when the process is to stop. From then on the part takes nothing more,
	// does not wait out outages, and hands back what it has not begun.
	Take context.Context

	// Work ends later, by Config.DrainTimeout. Handlers and statements run within it.
	// When it ends, the part waits for nothing any longer.
	Work context.Context
}

// NewLifetime returns a lifetime whose Take ends with ctx, and whose Work ends later by
// drain. end ends both.
func NewLifetime(ctx context.Context, drain time.Duration) (life Lifetime, end func()) {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(drain, cancel) })
	return Lifetime{Take: ctx, Work: work}, func() { stop(); cancel() }
}

// IsStopping reports whether the part must take nothing more.
func (l Lifetime) IsStopping() bool { return l.Take.Err() != nil }

// IsOver reports whether the part must wait for nothing any longer.
func (l Lifetime) IsOver() bool { return l.Work.Err() != nil }

// RunnerFunc makes a function a postroom.Runner.
type RunnerFunc func(ctx context.Context) error

// Run implements postroom.Runner.
func (f RunnerFunc) Run(ctx context.Context) error { return f(ctx) }
