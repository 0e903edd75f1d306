package deadletter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/internal/held"
)

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

// list returns at most limit matching rows that come after a place. The events that died last, or
// were discarded last, come first. It also returns where the next page begins, or the zero place
// if this is the last page. It reads at most 50,000 rows, or 10,000 if it searches for a text. So a
// page that is not the last may have fewer rows than limit, or none. list leaves out the failures,
// and cuts texts that are too long for an event.
//
// Call list in a transaction with one snapshot.
func (s reader) list(ctx context.Context, f Filter, after place, limit int) (rows []held.Row, next place, err error) {
	sql := s.sql.List
	if f.Discarded {
		sql = s.sql.ListDiscarded
	}
	left, atOnce := listLooked, listAtOnce
	if f.Text != "" {
		left, atOnce = listTexts, textAtOnce
	}
	for end := time.Now().Add(lookFor); ; {
		room := limit - len(rows)
		found, err := held.Judge(ctx, s.db, sql, f.arguments(timeOrNil(after.at), after.id, atOnce, room+1)...)
		if err != nil {
			return nil, place{}, err
		}
		for n := range found {
			if !found[n].Wanted {
				continue
			}
			if len(rows) == limit { // there is at least one more row
				return rows, placeOf(&rows[limit-1]), nil
			}
			rows = append(rows, found[n].Row)
		}
		if len(found) == 0 || !found[len(found)-1].Last {
			return rows, place{}, nil
		}
		after = placeOf(&found[len(found)-1].Row)
		if left -= atOnce; left <= 0 || time.Now().After(end) {
			return rows, after, nil
		}
	}
}

func placeOf(r *held.Row) place {
	if r.State == held.Discarded {
		return place{r.DiscardedAt, r.ID}
	}
	return place{r.DeadAt, r.ID}
}

// count returns how many rows match, and whether there may be more. It reads the first
// 100,000 rows of the list. If an index has all properties of the filter, it reads
// 1,000,000. If it searches for a text, it reads 5,000.
func (s reader) count(ctx context.Context, f Filter) (n int64, more bool, err error) {
	sql := s.sql.Count
	if f.Discarded {
		sql = s.sql.CountDiscarded
	}
	bound := int64(f.bound())
	var looked int64
	err = s.db.QueryRow(ctx, sql, f.arguments(bound)...).Scan(&n, &looked)
	return n, looked >= bound, err
}

// bound returns the largest number of rows that a count with this filter reads.
func (f Filter) bound() int {
	switch {
	case f.Text != "":
		return countTexts
	case f.inIndex():
		return countIndexed
	}
	return countLooked
}

// ids returns the ids of matching rows. If the parameter most is not nil, it limits their number.
// The events that died first, or were discarded first, come first.
func (s reader) ids(ctx context.Context, f Filter, most *int) ([]int64, error) {
	sql := s.sql.Find
	if f.Discarded {
		sql = s.sql.FindDiscarded
	}
	rows, _ := s.db.Query(ctx, sql, f.arguments(most)...) // CollectRows reports the error
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}

// content is the rest of a row, mainly the headers and the data that the handler gets.
type content struct {
	kind        string // content type
	occurredAt  time.Time
	traceParent string
	headers     []byte // a JSON object, or nil
	data        []byte
	rawHeaders  []byte // the headers of a message that is not an event
}

// show returns the complete row with the given id, if the event is held or was discarded.
func (s reader) show(ctx context.Context, id int64) (held.Row, content, error) {
	var c content
	found, _ := s.db.Query(ctx, s.sql.Show, id) // CollectOneRow reports the error
	row, err := pgx.CollectOneRow(found, func(row pgx.CollectableRow) (held.Row, error) {
		return held.Scan(row, &c.kind, held.Time(&c.occurredAt), &c.traceParent, &c.headers, &c.data, &c.rawHeaders)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		err = fmt.Errorf("%w: it is neither held nor discarded", ErrNotFound)
	}
	return row, c, err
}
