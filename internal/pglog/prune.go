package pglog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/eventlog"
)

// pruneAgain is how often pruning starts over at the beginning of the log. A
// row that became visible late, below what was pruned by then, is found only so.
const pruneAgain = time.Hour

// pruner removes published events from the log, by the lease of a term.
type pruner struct {
	lease *lease
	next  int64     // the seq that the next step begins at
	since time.Time // when it last began at the first; zero before
}

// pruneRow is what prune.sql returns.
type pruneRow struct {
	Removed, Next int64
	More          bool
}

// Prune deletes published events that were written longer than keep ago from the
// start of the log, and returns how many. It is one bounded step: 1,000 events,
// or fewer where they are large, in a few milliseconds. More says that a next
// step has work to do now.
//
// It stops at the first event that is younger, or that the recorded state does
// not call published. An event that became visible late, when newer ones had
// been deleted already, is deleted up to an hour later than they.
//
// It returns [eventlog.ErrLeaseLost] where another term has begun: then nothing
// was deleted. It may run beside Read, not beside Record or Release.
func (p *pruner) Prune(ctx context.Context, keep time.Duration) (removed int64, more bool, err error) {
	if time.Since(p.since) >= pruneAgain {
		p.next, p.since = 0, time.Now()
	}
	row, err := oneRow[pruneRow](ctx, p.lease.conn, p.lease.log.sql.Prune, p.lease.epoch, p.next, keep)
	if errors.Is(err, pgx.ErrNoRows) {
		err = eventlog.ErrLeaseLost
	}
	if err != nil {
		return 0, false, fmt.Errorf("outbox: prune: %w", p.lease.log.advise(err))
	}
	p.next = row.Next
	return row.Removed, row.More, nil
}
