package pglog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/internal/clock"
	"github.com/postroom/postroom/internal/eventlog"
)

// pruneAgain is how often pruning starts again at the beginning of the log. This finds rows that
// became visible after pruning had passed their seqs.
const pruneAgain = time.Hour

// pruner removes published events from the log while the lease of its term lasts.
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

// Prune deletes, from the start of the log on, published events that are older than the time keep.
// It returns how many it deleted. One call is one step of a few milliseconds: it deletes at most
// 1,000 events, or fewer large ones. more says whether another step now would delete more.
//
// Prune stops at the first event that is younger, that is not published according to the recorded
// state, or that a running republish must still read. If an event became visible after newer events
// had been deleted, Prune deletes it up to an hour later. See prune.sql for times in the future.
//
// If another term has begun, Prune deletes nothing and returns [eventlog.ErrLeaseLost]. It
// may run at the same time as Read, but not at the same time as Record or Release.
func (p *pruner) Prune(ctx context.Context, keep time.Duration) (removed int64, more bool, err error) {
	if time.Since(p.since) >= pruneAgain {
		p.next, p.since = 0, time.Now()
	}
	var row pruneRow
	err = p.lease.send(ctx, func(ctx context.Context) (err error) {
		row, err = oneRow[pruneRow](ctx, p.lease.conn, p.lease.log.sql.Prune, p.lease.epoch, p.next, keep, clock.Latest())
		return err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		err = eventlog.ErrLeaseLost
	}
	if err != nil {
		return 0, false, fmt.Errorf("outbox: prune: %w", p.lease.log.advise(err))
	}
	p.next = row.Next
	return row.Removed, row.More, nil
}
