package delivery

import (
	"context"
	"errors"
	"time"
)

// Lifetime says how long a part of the inbox works. It ends in two steps, so that work
// under way can finish.
type Lifetime struct {
	// Take ends when the process must stop. From then on the part takes no more events,
	// gives back events that it has not begun, and does not wait for the end of an
	// outage.
	Take context.Context

	// Work ends when Config.DrainTimeout has passed since the end of Take. Handlers and statements
	// run with this context. When it ends, the part no longer waits for anything.
	Work context.Context
}

// NewLifetime returns a lifetime. Its Take is ctx. The parameter drain is the time from the end of
// ctx until Work ends. The returned function ends Work at once.
func NewLifetime(ctx context.Context, drain time.Duration) (life Lifetime, end func()) {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(drain, cancel) })
	return Lifetime{Take: ctx, Work: work}, func() { stop(); cancel() }
}

// IsStopping reports whether the part must take no more events.
func (l Lifetime) IsStopping() bool { return l.Take.Err() != nil }

// IsOver reports whether the part must no longer wait for anything.
func (l Lifetime) IsOver() bool { return l.Work.Err() != nil }

// Ends reports whether a run failed because the process stops, so that it is no attempt. A handler
// may use a context of its program that ends when the process begins to stop.
func (l Lifetime) Ends(err error) bool {
	//guard:a-context-that-ends-with-the-process-is-no-attempt 2.2 false
	return l.IsOver() || l.IsStopping() && (IsOutage(err) || errors.Is(err, context.Canceled))
}
