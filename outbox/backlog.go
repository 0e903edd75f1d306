package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/eventlog"
)

// backlogRow is what backlog.sql returns. Ages are in seconds.
type backlogRow struct {
	Age                                float64
	Events, Appended                   int64
	Scheduled, Retrying, Waiting, Dead int64
	Keys                               int64
	RetryingAge, WaitingAge, DeadAge   float64
	Overdue                            float64
	WriterAge                          float64
	WritersUntold                      int64
}

// Backlog returns how far behind the relay is, what it holds, and how large the
// tables are. It reads no more of the log than a few rows, and at most 100,000
// held ones.
func (l *Log) Backlog(ctx context.Context) (eventlog.Backlog, error) {
	if l.err != nil {
		return eventlog.Backlog{}, fmt.Errorf("outbox: %w", postroom.Refuse(l.err))
	}
	// No plan is kept: one that was made while the log was empty would scan it later.
	row, err := oneRow[backlogRow](ctx, l.pool, l.sql.backlog, unplanned)
	if err != nil {
		return eventlog.Backlog{}, fmt.Errorf("outbox: read backlog: %w", l.advise(err))
	}
	sizes, err := l.Sizes(ctx)
	if err != nil {
		return eventlog.Backlog{}, err
	}
	return eventlog.Backlog{
		Age: seconds(row.Age), Events: row.Events, Appended: row.Appended,
		Held: map[eventlog.HeldReason]eventlog.HeldCount{
			eventlog.HeldScheduled: {Events: row.Scheduled},
			eventlog.HeldRetry:     {Events: row.Retrying, Age: seconds(row.RetryingAge)},
			eventlog.HeldKey:       {Events: row.Waiting, Age: seconds(row.WaitingAge)},
			eventlog.HeldDead:      {Events: row.Dead, Age: seconds(row.DeadAge)},
		},
		HeldKeys: row.Keys, Overdue: seconds(row.Overdue),
		Oldest: sizes.Oldest,
		Writer: seconds(row.WriterAge), WritersUntold: row.WritersUntold,
		Bytes: map[string]int64{"outbox": sizes.Log, "held": sizes.Held, "inbox": sizes.Inbox},
	}, nil
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
