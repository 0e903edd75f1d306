package held

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// ErrNotFound is returned for an event that is neither held nor discarded.
var ErrNotFound = errors.New("not found")

// Reader reads the tables of one schema.
type Reader struct{ sql statements }

// NewReader returns a reader of a schema whose name schema.Name accepted.
func NewReader(schemaName string) Reader { return Reader{load(schemaName)} }

// Cursor is a place in a list. What comes and goes meanwhile moves nothing: no row is
// passed over, and none comes twice. The zero value is the beginning.
type Cursor struct {
	At time.Time // of the death, or of the discarding
	ID int64
}

// List returns the rows that match, the last to die first, limit of them at the most, from
// behind a place on; and where the next page begins, which is zero where there is none.
// They have no Failures, and their texts are cut where no event of ours has such.
func (r Reader) List(ctx context.Context, db Queryer, f Filter, after Cursor, limit int) ([]Row, Cursor, error) {
	sql := r.sql.List
	if f.Discarded {
		sql = r.sql.ListDiscarded
	}
	found, _ := db.Query(ctx, sql, f.Arguments(timeOrNil(after.At), after.ID, limit+1)...) // CollectRows reports the error
	rows, err := pgx.CollectRows(found, func(row pgx.CollectableRow) (Row, error) { return scan(row) })
	if err != nil || len(rows) <= limit {
		return rows, Cursor{}, err
	}
	rows = rows[:limit]
	return rows, rows[limit-1].cursor(), nil
}

func (r *Row) cursor() Cursor {
	if r.State == Discarded {
		return Cursor{At: r.Progress.DiscardedAt, ID: r.ID}
	}
	return Cursor{At: r.Progress.DeadAt, ID: r.ID}
}

// Count returns how many rows match.
func (r Reader) Count(ctx context.Context, db Queryer, f Filter) (n int64, err error) {
	sql := r.sql.Count
	if f.Discarded {
		sql = r.sql.CountDiscarded
	}
	return n, db.QueryRow(ctx, sql, f.Arguments()...).Scan(&n)
}

// IDs returns the ids of the rows that match, the first to die first, most of them at the
// most.
func (r Reader) IDs(ctx context.Context, db Queryer, f Filter, most int) ([]int64, error) {
	sql := r.sql.Find
	if f.Discarded {
		sql = r.sql.FindDiscarded
	}
	rows, _ := db.Query(ctx, sql, f.Arguments(most)...) // CollectRows reports the error
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}

// Show returns the event with the given id, whole, whether it is held or was discarded.
func (r Reader) Show(ctx context.Context, db Queryer, id int64) (Row, Content, error) {
	var content Content
	found, _ := db.Query(ctx, r.sql.Show, id) // CollectOneRow reports the error
	row, err := pgx.CollectOneRow(found, func(row pgx.CollectableRow) (Row, error) {
		return scan(row, &content.Type, at(&content.OccurredAt), &content.TraceParent, &content.Headers, &content.Data, &content.RawHeaders)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrNotFound
	}
	return row, content, err
}

// OfEvent returns where the event with the given id and source is held, and where it was
// discarded; of every source where that is empty. It returns 100 rows of each at the most.
func (r Reader) OfEvent(ctx context.Context, db Queryer, source, id string) (held, discarded []Row, err error) {
	for _, part := range []struct {
		sql string
		to  *[]Row
	}{{r.sql.OfEvent, &held}, {r.sql.OfEventDiscarded, &discarded}} {
		found, _ := db.Query(ctx, part.sql, source, id) // CollectRows reports the error
		if *part.to, err = pgx.CollectRows(found, func(row pgx.CollectableRow) (Row, error) { return scan(row) }); err != nil {
			return nil, nil, fmt.Errorf("read where the event is held: %w", err)
		}
	}
	return held, discarded, nil
}
