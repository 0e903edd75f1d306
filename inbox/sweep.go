package inbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Of the ledger's pages, how many are looked at in a step at the least, in how
// many steps all of them are, and how long a step rests.
const (
	sweepPages = 128
	sweepSteps = 1800
	sweepRest  = time.Second
)

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
		inbox: in, rest: min(sweepRest, max(in.cfg.Ledger/sweepSteps, time.Millisecond)),
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
	ctx, cancel := context.WithTimeout(ctx, writePatience)
	defer cancel()
	err = pgx.BeginFunc(ctx, s.inbox.pool, func(tx pgx.Tx) error {
		var from, pages int64
		err := tx.QueryRow(ctx, s.inbox.sql.sweep).Scan(&from, &pages)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("take the turn: %w", err)
		}
		if _, err := tx.Exec(ctx, s.inbox.sql.plan); err != nil {
			return fmt.Errorf("choose plan: %w", err)
		}
		to, wait := from+max(sweepPages, pages/sweepSteps), s.rest/2
		tag, err := tx.Exec(ctx, s.inbox.sql.expire, firstRow(from), firstRow(to), s.inbox.cfg.Ledger)
		if err != nil {
			return fmt.Errorf("remove rows: %w", err)
		}
		removed = tag.RowsAffected()
		if to >= pages {
			to, wait = 0, s.pause
		}
		if _, err := tx.Exec(ctx, s.inbox.sql.swept, to, wait); err != nil {
			return fmt.Errorf("note the place: %w", err)
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("sweep ledger: %w", err)
	}
	return removed, nil
}

// firstRow is the first row of a page.
func firstRow(page int64) string { return fmt.Sprintf("(%d,0)", page) }
