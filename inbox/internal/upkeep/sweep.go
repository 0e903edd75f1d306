package upkeep

import (
	"context"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/inbox/internal/ledger"
	"github.com/postroom/postroom/internal/sleep"
)

// sweepRest limits the rest between two steps. sweepPause limits the rest between two sweeps.
const (
	sweepRest  = time.Second
	sweepPause = time.Hour
)

// Sweeper removes inbox rows that have expired. It reads the table inbox from its first page to its
// last, a few pages at a time, again and again. A BRIN index would not help, because new rows fill
// the space of removed rows. At each step only one process has its turn. Sweeper implements
// postroom.Runner.
type Sweeper struct {
	SweeperConfig

	rest  time.Duration // the rest between two steps
	pause time.Duration // the rest between two sweeps
}

// SweeperConfig has what a sweeper needs.
type SweeperConfig struct {
	Ledger  ledger.Upkeep
	Windows []delivery.Window // the windows of the handlers of this process
	Steps   int               // a sweep examines all pages in at most about this many steps
	Removed func(ctx context.Context, rows int64)
	Warn    func(ctx context.Context, what string, err error, args ...any) // logs the error of a step; the sweeper tries the step again
	Outage  postroom.Backoff
}

// NewSweeper returns a sweeper. The length of its rests depends on the shortest time for which a
// handler of this process needs rows. That time does not decide which rows have expired.
func NewSweeper(cfg SweeperConfig) *Sweeper {
	s := &Sweeper{SweeperConfig: cfg, rest: sweepRest, pause: sweepPause}
	for _, w := range cfg.Windows {
		s.rest = min(s.rest, max(w.Keep/time.Duration(cfg.Steps), time.Millisecond))
		s.pause = min(s.pause, max(w.Keep/720, 10*time.Millisecond))
	}
	return s
}

// Run sweeps until ctx ends.
func (s *Sweeper) Run(ctx context.Context) error {
	for failures := 0; ctx.Err() == nil; {
		removed, err := s.Step(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			failures++
			s.Warn(ctx, "old inbox rows not removed, will try again", err, "failures", failures)
			sleep.For(ctx, s.Outage.Delay(failures))
		case err == nil:
			failures = 0
			s.Removed(ctx, removed)
		}
		sleep.For(ctx, s.rest)
	}
	return nil
}

// Step examines the next pages, if it is this process's turn.
func (s *Sweeper) Step(ctx context.Context) (removed int64, err error) {
	return s.Ledger.Sweep(ctx, s.rest, s.pause)
}
