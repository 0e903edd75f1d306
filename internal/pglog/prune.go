package pglog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/eventlog"
)

// pruneAgain is how often pruning starts again at the beginning of the log. Only that finds a
// row which became visible late, behind the place that pruning had reached.
const pruneAgain = time.Hour

// pruner removes published events from the log, under the lease of a term.
type pruner struct {
	lease *lease
	next  int64     // the seq at which the next step begins
	since time.Time // when pruning last began at the first row; zero if it never did
}

// pruneRow is a row of prune.sql.
type pruneRow struct {
	Removed, Next int64
	More          bool
}

// Prune deletes published events from the start of the log if they were written longer than
// keep ago, and returns how many. It is one step of a few milliseconds: at most 1,000 events,
// or fewer if they are large. more says that there is work for another step now.
//
// Prune stops at the first event that is younger, or that is not published by the recorded
// state. If an event became visible late, after newer ones were deleted, it is deleted up to
// an hour after those.
//
// Prune returns [eventlog.ErrLeaseLost] if another term has begun: then nothing was deleted.
// It may run at the same time as Read, but not as Record or Release.
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
