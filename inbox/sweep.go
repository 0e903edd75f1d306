package inbox

import (
	"context"
	"time"

	"github.com/postroom/postroom/inbox/internal/ledger"
)

// sweepRest is how long a sweep rests between steps at the most.
const sweepRest = time.Second

// sweeper removes ledger rows that have expired. The ledger is read from its first
// page to its last, a few pages at a time, over and over: freed space is used
// again, so that old rows come to lie beside new ones and no summary of ranges
// stays useful. Processes take turns. It implements postroom.Runner.
type sweeper struct {
	inbox *Inbox
	rest  time.Duration // between steps
	pause time.Duration // between the end of a sweep and the next
}

func newSweeper(in *Inbox) *sweeper {
	return &sweeper{
		inbox: in, rest: min(sweepRest, max(in.cfg.Ledger/ledger.SweepSteps, time.Millisecond)),
		pause: min(time.Hour, max(in.cfg.Ledger/720, 10*time.Millisecond)),
	}
}

// Run sweeps until ctx ends.
func (s *sweeper) Run(ctx context.Context) error {
	for failures := 0; ctx.Err() == nil; {
		removed, err := s.step(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			failures++
			s.inbox.lines.Warn(ctx, s.inbox.cfg.Logger, "expired rows of the ledger could not be removed, will try again", s.inbox.advise(err), "failures", failures)
			sleep(ctx, outage.Delay(failures))
		case err == nil:
			failures = 0
			s.inbox.metrics.removed.Add(ctx, removed, s.inbox.metrics.ledger)
		}
		sleep(ctx, s.rest)
	}
	return nil
}

// step looks at the next pages, where it is this process's turn.
func (s *sweeper) step(ctx context.Context) (removed int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, ledger.WritePatience)
	defer cancel()
	return s.inbox.db.Sweep(ctx, s.inbox.cfg.Ledger, s.rest, s.pause)
}
