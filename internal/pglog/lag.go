package pglog

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/eventlog"
	"github.com/postroom/postroom/internal/sagas"
)

// lagRow is a row of lag.sql. Ages are in seconds.
//
// Wide because each column is a field.
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

// Lag returns how far behind the relay is, how many events are held, how many instances of
// sagas have not ended, and how large the tables are. It reads a few rows of the log, at most
// 100,000 held events, and at most 31,000 instances of each saga.
func (l *Log) Lag(ctx context.Context) (eventlog.Lag, error) {
	if l.err != nil {
		return eventlog.Lag{}, fmt.Errorf("outbox: %w", postroom.Unrecoverable(l.err))
	}
	// Keep no plan, because a plan that was made for an empty log would later scan the whole log.
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

// Sizes says how large the log, held and inbox are.
type Sizes struct {
	// Log, Held and Inbox are bytes on disk, including indexes and large values.
	Log, Held, Inbox int64

	// First and Last are the lowest and the highest seq in the log. Oldest is how long ago
	// the event First was written. They are zero if the log is empty.
	First, Last int64
	Oldest      time.Duration
}

// sizesRow is the row of sizes.sql.
type sizesRow struct {
	Log, Held, Inbox int64
	First, Last      int64
	Age              int64 // in microseconds
}

// Sizes returns how large the log, held and inbox are, and how far back the log reaches. It
// counts no rows.
func (l *Log) Sizes(ctx context.Context) (Sizes, error) {
	if l.err != nil {
		return Sizes{}, fmt.Errorf("outbox: %w", postroom.Unrecoverable(l.err))
	}
	// The driver keeps no plan, because a plan that was made for an empty log would later scan and
	// sort the complete log.
	row, err := oneRow[sizesRow](ctx, l.pool, l.sql.Sizes, noPlan)
	if err != nil {
		return Sizes{}, fmt.Errorf("outbox: read sizes: %w", l.advise(err))
	}
	return Sizes{
		Log: row.Log, Held: row.Held, Inbox: row.Inbox,
		First: row.First, Last: row.Last, Oldest: time.Duration(row.Age) * time.Microsecond,
	}, nil
}

// Subjects returns the subjects in use, each once: the subjects of the 1,000 newest events and of
// the 1,000 events that are published next. It reads only these events, even if the log is long.
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
