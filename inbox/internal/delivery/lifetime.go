package delivery

import (
	"context"
	"time"
)

// Lifetime is how long a part of the inbox works. It ends in two steps, so that what was
// begun can come to its end.
type Lifetime struct {
	// Take ends when the process is to stop. From then on nothing more is taken, outages
	// are not waited out, and what was not begun is handed back.
	Take context.Context

	// Work ends later, by Config.DrainTimeout. Handlers and statements run within it. When
	// it ends, nothing is waited for any longer.
	Work context.Context
}

// NewLifetime returns one that ends with ctx, and its work so much later. end ends it all.
func NewLifetime(ctx context.Context, drain time.Duration) (life Lifetime, end func()) {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(drain, cancel) })
	return Lifetime{Take: ctx, Work: work}, func() { stop(); cancel() }
}

// IsStopping reports whether nothing more is to be taken.
func (l Lifetime) IsStopping() bool { return l.Take.Err() != nil }

// IsOver reports whether nothing may be waited for any longer.
func (l Lifetime) IsOver() bool { return l.Work.Err() != nil }
