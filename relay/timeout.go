package relay

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// maxDoublings limits the time limit of a read to about an hour.
const maxDoublings = 6

// adaptiveTimeout is the time limit for one kind of read. Without a limit, a leader whose
// connection is dead would hold the lease and publish nothing. With a fixed limit, a statement that
// needs longer would be cancelled and started again for ever. So the limit doubles each time it
// cancels a read, and is halved after a fast read. A cancelled read ends the term, so the relay
// keeps the limit for the next term.
//
// An adaptiveTimeout is safe for concurrent use.
type adaptiveTimeout struct{ doublings atomic.Int32 }

func (p *adaptiveTimeout) current() time.Duration { return readTimeout << p.doublings.Load() }

// run runs a read within the limit.
func (p *adaptiveTimeout) run(ctx context.Context, read func(ctx context.Context) error) error {
	within := p.current()
	attempt, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	began := time.Now()
	err := read(attempt)
	n := p.doublings.Load()
	switch {
	case err != nil && errors.Is(attempt.Err(), context.DeadlineExceeded) && ctx.Err() == nil:
		//guard:a-long-read-gets-more-time 1 = @1.1
		p.doublings.Store(min(n+1, maxDoublings))
	case err == nil && n > 0 && time.Since(began) < within/4:
		p.doublings.Store(n - 1)
	}
	return err
}
