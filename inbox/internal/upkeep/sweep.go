package upkeep

import (
	"context"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/pause"
)

// sweepRest is how long a sweep rests between steps at the most.
const sweepRest = time.Second

// Ledger is what is swept.
type Ledger interface {
	// Sweep removes expired rows from the ledger's next pages, if it is this process's
	// turn. The next step comes no sooner than after half of rest, the next sweep than
	// after pause.
	Sweep(ctx context.Context, keep, rest, pause time.Duration) (removed int64, err error)
}

// Sweeper removes ledger rows that have expired. The ledger is read from its first
// page to its last, a few pages at a time, over and over: freed space is used
// again, so that old rows come to lie beside new ones and no summary of ranges
// stays useful. Processes take turns. It implements postroom.Runner.
type Sweeper struct {
	SweeperConfig

	rest  time.Duration // between steps
	pause time.Duration // between the end of a sweep and the next
}

// SweeperConfig is what a sweeper works with.
type SweeperConfig struct {
	Ledger  Ledger
	Keep    time.Duration // for how long rows are kept
	Steps   int           // in which a sweep looks at all pages, at the most
	Removed func(ctx context.Context, rows int64)
	Warn    func(ctx context.Context, what string, err error, args ...any) // logs what is tried again
	Outage  postroom.Backoff
}

// NewSweeper returns a sweeper, whose rests depend on how long rows are kept.
func NewSweeper(cfg SweeperConfig) *Sweeper {
	return &Sweeper{
		SweeperConfig: cfg,
		rest:          min(sweepRest, max(cfg.Keep/time.Duration(cfg.Steps), time.Millisecond)),
		pause:         min(time.Hour, max(cfg.Keep/720, 10*time.Millisecond)),
	}
}

// Run sweeps until ctx ends.
func (s *Sweeper) Run(ctx context.Context) error {
	for failures := 0; ctx.Err() == nil; {
		removed, err := s.Step(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			failures++
			s.Warn(ctx, "expired rows of the ledger could not be removed, will try again", err, "failures", failures)
			pause.For(ctx, s.Outage.Delay(failures))
		case err == nil:
			failures = 0
			s.Removed(ctx, removed)
		}
		pause.For(ctx, s.rest)
	}
	return nil
}

// Step looks at the next pages, if it is this process's turn.
func (s *Sweeper) Step(ctx context.Context) (removed int64, err error) {
	return s.Ledger.Sweep(ctx, s.Keep, s.rest, s.pause)
}
