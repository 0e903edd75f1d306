package relay

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// maxDoublings bounds how often the time for a read is doubled: up to an hour or so.
const maxDoublings = 6

// adaptiveTimeout is for how long one kind of read is waited for. A connection whose other end
// vanished would otherwise keep a silent leader in office; but a statement that needs
// longer than that would be ended, and begun again, for ever. So the time doubles after
// each read that it ended, and comes down again when reads are quick. It outlives a term,
// because such an end ends the term.
//
// It is safe for concurrent use.
type adaptiveTimeout struct{ doublings atomic.Int32 }

func (p *adaptiveTimeout) current() time.Duration { return readTimeout << p.doublings.Load() }

// run runs a read within the time that p allows.
func (p *adaptiveTimeout) run(ctx context.Context, read func(ctx context.Context) error) error {
	within := p.current()
	attempt, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	began := time.Now()
	err := read(attempt)
	n := p.doublings.Load()
	switch {
	case err != nil && errors.Is(attempt.Err(), context.DeadlineExceeded) && ctx.Err() == nil:
		p.doublings.Store(min(n+1, maxDoublings))
	case err == nil && n > 0 && time.Since(began) < within/4:
		p.doublings.Store(n - 1)
	}
	return err
}
