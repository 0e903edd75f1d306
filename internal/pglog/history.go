package pglog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/eventlog"
	"github.com/postroom/postroom/internal/seqset"
)

const (
	// publishedPage is how many rows are read at once of what is published.
	publishedPage = 5000

	// onTheirWay is how many seqs above the recorded high are read too: a relay reads
	// so far ahead at the most, unless it is told to read further.
	onTheirWay = 100_000
)

// streamPlace is a stream in the column streams.
type streamPlace struct {
	Created   time.Time `json:"created,omitzero"`
	Seq       uint64    `json:"seq"`
	MessageID string    `json:"id"`
}

// placesOf reads the column streams.
func placesOf(text []byte) (map[string]eventlog.Place, error) {
	var stored map[string]streamPlace
	if err := json.Unmarshal(text, &stored); err != nil {
		return nil, fmt.Errorf("read streams: %w", err)
	}
	places := make(map[string]eventlog.Place, len(stored))
	for name, at := range stored {
		places[name] = eventlog.Place{Stream: name, Created: at.Created, Seq: at.Seq, MessageID: at.MessageID}
	}
	return places, nil
}

// streamsOf writes the column streams.
func streamsOf(places map[string]eventlog.Place) string {
	stored := make(map[string]streamPlace, len(places))
	for name, at := range places {
		stored[name] = streamPlace{Created: at.Created, Seq: at.Seq, MessageID: at.MessageID}
	}
	text, _ := json.Marshal(stored) // texts, numbers and times have no fault
	return string(text)
}

// Places returns where streams ended when a relay last recorded that.
func (l *Log) Places(ctx context.Context) ([]eventlog.Place, error) {
	if l.err != nil {
		return nil, fmt.Errorf("outbox: %w", postroom.Unrecoverable(l.err))
	}
	var text []byte
	if err := l.pool.QueryRow(ctx, l.sql.Places).Scan(&text); err != nil {
		return nil, fmt.Errorf("outbox: read streams: %w", l.advise(err))
	}
	places, err := placesOf(text)
	if err != nil {
		return nil, fmt.Errorf("outbox: %w", l.advise(err))
	}
	return slices.Collect(maps.Values(places)), nil
}

// Sources returns the sources of the log's events, each once.
func (l *Log) Sources(ctx context.Context) ([]string, error) {
	if l.err != nil {
		return nil, fmt.Errorf("outbox: %w", postroom.Unrecoverable(l.err))
	}
	rows, _ := l.pool.Query(ctx, l.sql.Sources) // CollectRows reports the error
	sources, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("outbox: read sources: %w", l.advise(err))
	}
	return sources, nil
}

// Marks returns the marks of a stream that a relay made in the last hour, the newest
// first.
func (l *Log) Marks(ctx context.Context, stream string) ([]eventlog.Mark, error) {
	if l.err != nil {
		return nil, fmt.Errorf("outbox: %w", postroom.Unrecoverable(l.err))
	}
	rows, _ := l.pool.Query(ctx, l.sql.Marks, stream) // CollectRows reports the error
	marks, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (eventlog.Mark, error) {
		var mark eventlog.Mark
		var text []byte
		if err := row.Scan(&mark.ID, &text); err != nil {
			return mark, err
		}
		places, err := placesOf([]byte(`{"at":` + string(text) + `}`))
		mark.Place = places["at"]
		mark.Place.Stream = stream
		return mark, err
	})
	if err != nil {
		return nil, fmt.Errorf("outbox: read marks: %w", l.advise(err))
	}
	return marks, nil
}

// stateRow is what published_by.sql returns.
type stateRow struct {
	High, Floor   int64
	Snap, Pending string
	Above         int64 // the high of the mark, and so on
	AboveFloor    int64
	AboveSnap     *string
	Others        string
}

// publishedReader reads what is published, page by page.
type publishedReader struct {
	log    *Log
	state  stateRow
	from   int64      // the seq that the next page begins behind
	others seqset.Set // below from, and read before it
}

// Published begins to read the events that the relay has published by now: those that
// may not have been when the mark was made or, with the zero Mark, all that the log
// still has, from about the given time on where that is not zero. Those that may be on
// their way come with them. next returns the next of them, none at the end. It holds no
// transaction open and no connection.
func (l *Log) Published(ctx context.Context, after eventlog.Mark, since time.Time) (next func(ctx context.Context) ([]eventlog.Entry, error), err error) {
	if l.err != nil {
		return nil, fmt.Errorf("outbox: %w", postroom.Unrecoverable(l.err))
	}
	r := &publishedReader{log: l}
	if r.state, err = oneRow[stateRow](ctx, l.pool, l.sql.PublishedBy, after.ID); err != nil {
		return nil, fmt.Errorf("outbox: read what is published: %w", l.advise(err))
	}
	if r.others, err = seqset.Parse(r.state.Others); err != nil {
		return nil, fmt.Errorf("outbox: read what is published: %w", l.advise(err))
	}
	if r.state.AboveSnap != nil {
		late, err := searchAll(ctx, l, state{high: r.state.Above, floor: r.state.AboveFloor, snap: *r.state.AboveSnap})
		if err != nil {
			return nil, fmt.Errorf("outbox: read what is published: %w", err)
		}
		r.others = r.others.Union(late)
	}
	r.others = r.others.UpTo(r.state.Above)
	r.from = r.state.Above
	if !since.IsZero() {
		first, err := l.firstSince(ctx, since)
		if err != nil {
			return nil, fmt.Errorf("outbox: read what is published: %w", l.advise(err))
		}
		r.from = max(r.from, first-1)
	}
	return r.next, nil
}

// next returns the next page that has anything in it.
func (r *publishedReader) next(ctx context.Context) ([]eventlog.Entry, error) {
	for {
		from, to := r.from, r.state.High+onTheirWay
		if len(r.others) > 0 {
			from, to = r.others[0].Lo-1, r.others[0].Hi
		}
		page, last, err := r.page(ctx, from, to)
		if err != nil {
			return nil, fmt.Errorf("outbox: read what is published: %w", r.log.advise(err))
		}
		switch ended := last == 0; {
		case len(r.others) > 0 && (ended || last >= to):
			r.others = r.others[1:]
		case len(r.others) > 0:
			r.others = append(seqset.Set{{Lo: last + 1, Hi: to}}, r.others[1:]...)
		case ended:
			return nil, nil
		default:
			r.from = last
		}
		if len(page) > 0 {
			return page, nil
		}
	}
}

// page reads the rows behind a seq up to another, and returns those that are published
// or on their way, and the seq of the last row, 0 where there is none.
func (r *publishedReader) page(ctx context.Context, from, to int64) (page []eventlog.Entry, last int64, err error) {
	rows, _ := r.log.pool.Query(ctx, r.log.sql.Published, from, to, r.state.Snap, r.state.Floor, r.state.Pending, publishedPage, r.state.High) // rows.Err reports the error
	defer rows.Close()
	for rows.Next() {
		var e eventlog.Entry
		var relevant bool
		var key *string
		if err := rows.Scan(&e.Seq, &e.Source, &e.ID, &e.Subject, &key, &e.LoggedAt, &e.Published, &relevant); err != nil {
			return nil, 0, err
		}
		if key != nil {
			e.Key = *key
		}
		if last = e.Seq; relevant {
			page = append(page, e)
		}
	}
	return page, last, rows.Err()
}

// timeSlack is how much more is looked at than a time says. The log is about in the
// order of the times at which its events were written: a seq is taken just before the
// time is, unless somebody set the clock. Each event's own time decides.
const timeSlack = time.Minute

// Extent is how far a log reaches, how far it is published, and whether a relay leads.
type Extent struct {
	First    int64      // the lowest seq there is, zero in an empty log
	Begins   *time.Time // when the event with that seq was written
	Last     int64      // the highest seq there is, zero in an empty log
	Appended int64      // how many places of the log were handed out so far
	High     int64      // the recorded high
	Led      bool       // a relay leads now
}

// Extent returns how far the log reaches.
func (l *Log) Extent(ctx context.Context) (Extent, error) {
	extent, err := oneRow[Extent](ctx, l.pool, l.sql.Reach, unplanned)
	if err != nil {
		return extent, fmt.Errorf("read reach of the log: %w", err)
	}
	return extent, nil
}

// firstSince returns about the first seq of the log from which on events were written
// at the given time or later.
func (l *Log) firstSince(ctx context.Context, at time.Time) (int64, error) {
	extent, err := l.Extent(ctx)
	if err != nil {
		return 0, err
	}
	return l.FirstFrom(ctx, at, extent.First, extent.Last)
}

// FirstFrom returns about the first seq, of those from lo through hi, from which on
// events were written at the given time or later; hi + 1 where there is none. It may
// return one that is a minute earlier. created_at has no index, which producers would pay
// for, so it is searched by halves through the primary key.
func (l *Log) FirstFrom(ctx context.Context, at time.Time, lo, hi int64) (int64, error) {
	return l.firstFrom(ctx, at.Add(-timeSlack), lo, hi)
}

// FirstAfter is FirstFrom, and may return one that is a minute later.
func (l *Log) FirstAfter(ctx context.Context, at time.Time, lo, hi int64) (int64, error) {
	return l.firstFrom(ctx, at.Add(timeSlack), lo, hi)
}

func (l *Log) firstFrom(ctx context.Context, at time.Time, lo, hi int64) (int64, error) {
	type row struct {
		Seq       int64
		CreatedAt time.Time
	}
	end := hi + 1
	for above := end; lo < above; {
		middle := lo + (above-lo)/2
		found, err := oneRow[row](ctx, l.pool, l.sql.Probe, unplanned, middle)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			above = middle
		case err != nil:
			return 0, fmt.Errorf("look into the log: %w", err)
		case !found.CreatedAt.Before(at):
			above = middle
		default:
			lo = found.Seq + 1
		}
	}
	return min(lo, end), nil
}
