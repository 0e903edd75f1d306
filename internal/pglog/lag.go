package pglog

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/internal/sagas"
)

// lagRow is the row that lag.sql returns. Ages are in seconds.
type lagRow struct {
	Age                                float64
	Events, Appended                   int64
	Scheduled, Retrying, Waiting, Dead int64
	Keys                               int64
	RetryingAge, WaitingAge, DeadAge   float64
	Overdue                            float64
	WriterAge                          float64
	HiddenWriters                      int64
}

// Lag returns how far the relay is behind the log, and the sizes of the tables. It counts the
// outgoing events in the table held, and the instances of sagas that have not ended. It reads a few
// rows of the log, at most 30,000 of the table held, and at most 31,000 instances of each saga.
func (l *Log) Lag(ctx context.Context) (eventlog.Lag, error) {
	if l.err != nil {
		return eventlog.Lag{}, fmt.Errorf("outbox: %w", postroom.Unrecoverable(l.err))
	}
	// Use noPlan, because a plan that was kept from an empty log would later scan the whole log.
	row, err := oneRow[lagRow](ctx, l.pool, l.sql.Lag, noPlan)
	if err != nil {
		return eventlog.Lag{}, fmt.Errorf("outbox: read lag: %w", l.advise(err))
	}
	sizes, err := l.Sizes(ctx)
	if err != nil {
		return eventlog.Lag{}, err
	}
	counts, hidden, err := sagas.CountsOf(ctx, l.pool, l.schema)
	if err != nil {
		return eventlog.Lag{}, fmt.Errorf("outbox: %w", l.advise(err))
	}
	lag := eventlog.Lag{
		Age: seconds(row.Age), Events: row.Events, Appended: row.Appended,
		Held: map[eventlog.HeldReason]eventlog.HeldCount{
			eventlog.HeldScheduled: {Events: row.Scheduled},
			eventlog.HeldRetry:     {Events: row.Retrying, Age: seconds(row.RetryingAge)},
			eventlog.HeldKey:       {Events: row.Waiting, Age: seconds(row.WaitingAge)},
			eventlog.HeldDead:      {Events: row.Dead, Age: seconds(row.DeadAge)},
		},
		HeldKeys: row.Keys, Overdue: seconds(row.Overdue),
		OldestEventAge:  sizes.Oldest,
		OldestWriterAge: seconds(row.WriterAge), HiddenWriters: row.HiddenWriters,
		Bytes:       map[string]int64{"outbox": sizes.Log, "held": sizes.Held, "inbox": sizes.Inbox},
		SagasHidden: hidden,
	}
	for _, c := range counts {
		lag.Sagas = append(lag.Sagas, eventlog.SagaCount{
			Saga: c.Saga, Running: c.Running, Compensating: c.Compensating, Stuck: c.Stuck, Oldest: seconds(c.OldestSeconds),
		})
	}
	return lag, nil
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// Sizes has the sizes of the log and of the tables held and inbox.
type Sizes struct {
	// Log, Held and Inbox are sizes on disk in bytes, including indexes and large values (TOAST).
	Log, Held, Inbox int64

	// First and Last are the lowest and the highest seq in the log. Oldest is the age of the first
	// event whose time is not in the future. All three are zero if the log is empty.
	First, Last int64
	Oldest      time.Duration
}

// sizesRow is the row of sizes.sql.
type sizesRow struct {
	Log, Held, Inbox int64
	First, Last      int64
	Age              int64 // in microseconds
}

// Sizes returns the sizes of the log and of the tables held and inbox, and the age of the oldest
// event in the log. It counts no rows: the sizes are those of the files.
func (l *Log) Sizes(ctx context.Context) (Sizes, error) {
	if l.err != nil {
		return Sizes{}, fmt.Errorf("outbox: %w", postroom.Unrecoverable(l.err))
	}
	// Use noPlan, as in Lag: a kept plan would later scan and sort the whole log.
	row, err := oneRow[sizesRow](ctx, l.pool, l.sql.Sizes, noPlan)
	if err != nil {
		return Sizes{}, fmt.Errorf("outbox: read sizes: %w", l.advise(err))
	}
	return Sizes{
		Log: row.Log, Held: row.Held, Inbox: row.Inbox,
		First: row.First, Last: row.Last, Oldest: time.Duration(row.Age) * time.Microsecond,
	}, nil
}

// Subjects returns the subjects in use, without duplicates: those of the 1,000 newest events and of
// the next 1,000 events to publish. It reads only these events, even if the log is long.
func (l *Log) Subjects(ctx context.Context) ([]string, error) {
	if l.err != nil {
		return nil, fmt.Errorf("outbox: %w", postroom.Unrecoverable(l.err))
	}
	rows, _ := l.pool.Query(ctx, l.sql.Subjects) // CollectRows reports the error
	subjects, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("outbox: read subjects: %w", l.advise(err))
	}
	return subjects, nil
}
