package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/postroom/postroom"
)

// Sizes says how large a log and the tables beside it are.
type Sizes struct {
	// Bytes on disk, with indexes and large values.
	Log, Held, Inbox int64

	// First and Last are the lowest and the highest seq in the log, and Oldest
	// is how long ago the first was written. Zero where the log is empty.
	First, Last int64
	Oldest      time.Duration
}

// sizesRow is what sizes.sql returns.
type sizesRow struct {
	Log, Held, Inbox int64
	First, Last      int64
	Age              int64 // in microseconds
}

// Sizes returns how large the log is, held and inbox, and how far back the log
// reaches. It counts no rows.
func (l *Log) Sizes(ctx context.Context) (Sizes, error) {
	if l.err != nil {
		return Sizes{}, fmt.Errorf("outbox: %w", postroom.Refuse(l.err))
	}
	// No plan is kept: one that was made while the log was empty would scan and
	// sort it later.
	row, err := oneRow[sizesRow](ctx, l.pool, l.sql.sizes, unplanned)
	if err != nil {
		return Sizes{}, fmt.Errorf("outbox: read sizes: %w", l.advise(err))
	}
	return Sizes{
		Log: row.Log, Held: row.Held, Inbox: row.Inbox,
		First: row.First, Last: row.Last, Oldest: time.Duration(row.Age) * time.Microsecond,
	}, nil
}
