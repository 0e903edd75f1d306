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

// NewReader returns a reader of a schema. schema.Name must have accepted the name.
func NewReader(schemaName string) Reader { return Reader{load(schemaName)} }

// Cursor is a place in a list. Even if rows are added or removed between two pages, List returns
// each of the unchanged rows exactly once. The zero value is the beginning of the list.
type Cursor struct {
	At time.Time // when the event died or was discarded
	ID int64
}

// The largest numbers of rows that a list or a count reads.
const (
	listLooked = 50_000 // for a page of a list
	listAtOnce = 5000   // by one statement

	// countIndexed applies if an index has all properties of the filter, countLooked otherwise.
	countIndexed = 1_000_000
	countLooked  = 100_000

	// A search for a text takes far longer, because it reads bodies and failures.
	listTexts  = 10_000
	textAtOnce = 500
	countTexts = 5000

	// lookFor is the time after which a page sends no further statement.
	lookFor = 700 * time.Millisecond
)

// inIndex reports whether an index has all properties of the filter. If so, each row that a
// statement reads matches.
func (f Filter) inIndex() bool {
	return f.Type == "" && f.Key == "" && f.Class == "" && f.Source == "" && f.Text == ""
}

// List returns at most limit matching rows that come after a place. The events that died last, or
// were discarded last, come first. It also returns where the next page begins, or the zero Cursor
// if this is the last page. It reads at most 50,000 rows, or 10,000 if it searches for a text. So a
// page that is not the last may have fewer rows than limit, or none. List leaves out the Failures,
// and cuts texts that are too long for an event.
//
// Call List in a transaction with one snapshot.
func (r Reader) List(ctx context.Context, db Queryer, f Filter, after Cursor, limit int) (rows []Row, next Cursor, err error) {
	sql := r.sql.List
	if f.Discarded {
		sql = r.sql.ListDiscarded
	}
	left, atOnce := listLooked, listAtOnce
	if f.Text != "" {
		left, atOnce = listTexts, textAtOnce
	}
	for end := time.Now().Add(lookFor); ; {
		room := limit - len(rows)
		found, err := r.judged(ctx, db, sql, f.Arguments(timeOrNil(after.At), after.ID, atOnce, room+1)...)
		if err != nil {
			return nil, Cursor{}, err
		}
		for n := range found {
			if !found[n].wanted {
				continue
			}
			if len(rows) == limit { // there is at least one more row
				return rows, rows[limit-1].cursor(), nil
			}
			rows = append(rows, found[n].Row)
		}
		if len(found) == 0 || !found[len(found)-1].last {
			return rows, Cursor{}, nil
		}
		after = found[len(found)-1].cursor()
		if left -= atOnce; left <= 0 || time.Now().After(end) {
			return rows, after, nil
		}
	}
}

func (r *Row) cursor() Cursor {
	if r.State == Discarded {
		return Cursor{At: r.Progress.DiscardedAt, ID: r.ID}
	}
	return Cursor{At: r.Progress.DeadAt, ID: r.ID}
}

// Count returns how many rows match, and whether there may be more. It reads the first
// 100,000 rows of the list. If an index has all properties of the filter, it reads
// 1,000,000. If it searches for a text, it reads 5,000.
func (r Reader) Count(ctx context.Context, db Queryer, f Filter) (n int64, more bool, err error) {
	sql := r.sql.Count
	if f.Discarded {
		sql = r.sql.CountDiscarded
	}
	bound := int64(f.Bound())
	var looked int64
	err = db.QueryRow(ctx, sql, f.Arguments(bound)...).Scan(&n, &looked)
	return n, looked >= bound, err
}

// Bound returns the largest number of rows that a count with this filter reads.
func (f Filter) Bound() int {
	switch {
	case f.Text != "":
		return countTexts
	case f.inIndex():
		return countIndexed
	}
	return countLooked
}

// IDs returns the ids of matching rows. If the parameter most is not nil, it limits their number.
// The events that died first, or were discarded first, come first.
func (r Reader) IDs(ctx context.Context, db Queryer, f Filter, most *int) ([]int64, error) {
	sql := r.sql.Find
	if f.Discarded {
		sql = r.sql.FindDiscarded
	}
	rows, _ := db.Query(ctx, sql, f.Arguments(most)...) // CollectRows reports the error
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}

// Show returns the complete row with the given id, if the event is held or was discarded.
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

// OfEvent returns the rows in which the event with the given id and source is held, and the rows in
// which it was discarded. If the parameter source is empty, it returns rows of all sources. It
// returns at most 100 held and 100 discarded rows.
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
