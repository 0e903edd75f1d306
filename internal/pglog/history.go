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
	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/internal/seqset"
	"github.com/postroom/postroom/relay/broker"
)

const (
	// publishedPage is the number of rows of published events that are read at once.
	publishedPage = 5000

	// readAhead is the number of seqs above the recorded high that Entries also reads, because a
	// relay may be publishing their events. By default, no relay reads ahead more seqs than these.
	readAhead = 100_000
)

// storedPosition is the position of a stream, in the form of the column relay.streams.
type storedPosition struct {
	Created   time.Time `json:"created,omitzero"`
	Seq       uint64    `json:"seq"`
	MessageID string    `json:"id"`
	NextSeq   uint64    `json:"next_seq,omitzero"`
	NextID    string    `json:"next_id,omitzero"`
}

// parseStreams parses the column relay.streams.
func parseStreams(text []byte) (map[string]broker.StreamPosition, error) {
	var stored map[string]storedPosition
	if err := json.Unmarshal(text, &stored); err != nil {
		return nil, fmt.Errorf("read streams: %w", err)
	}
	positions := make(map[string]broker.StreamPosition, len(stored))
	for name, at := range stored {
		positions[name] = broker.StreamPosition{Stream: name, Created: at.Created, Seq: at.Seq, MessageID: at.MessageID, NextSeq: at.NextSeq, NextID: at.NextID}
	}
	return positions, nil
}

// streamsOf returns the value for the column relay.streams.
func streamsOf(positions map[string]broker.StreamPosition) string {
	stored := make(map[string]storedPosition, len(positions))
	for name, at := range positions {
		stored[name] = storedPosition{Created: at.Created, Seq: at.Seq, MessageID: at.MessageID, NextSeq: at.NextSeq, NextID: at.NextID}
	}
	text, _ := json.Marshal(stored) // cannot fail for texts, numbers and times
	return string(text)
}

// Positions returns the positions of the streams, as a relay last recorded them.
func (l *Log) Positions(ctx context.Context) ([]broker.StreamPosition, error) {
	if l.err != nil {
		return nil, fmt.Errorf("outbox: %w", postroom.Unrecoverable(l.err))
	}
	var text []byte
	if err := l.pool.QueryRow(ctx, l.sql.Positions).Scan(&text); err != nil {
		return nil, fmt.Errorf("outbox: read streams: %w", l.advise(err))
	}
	positions, err := parseStreams(text)
	if err != nil {
		return nil, fmt.Errorf("outbox: %w", l.advise(err))
	}
	return slices.Collect(maps.Values(positions)), nil
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

// Checkpoints returns the checkpoints of a stream that are still stored, the newest first. A relay
// that makes a checkpoint deletes all that are older than an hour.
func (l *Log) Checkpoints(ctx context.Context, stream string) ([]eventlog.Checkpoint, error) {
	if l.err != nil {
		return nil, fmt.Errorf("outbox: %w", postroom.Unrecoverable(l.err))
	}
	rows, _ := l.pool.Query(ctx, l.sql.Checkpoints, stream) // CollectRows reports the error
	checkpoints, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (eventlog.Checkpoint, error) {
		var at eventlog.Checkpoint
		var text []byte
		if err := row.Scan(&at.ID, &text); err != nil {
			return at, err
		}
		positions, err := parseStreams([]byte(`{"at":` + string(text) + `}`))
		at.Position = positions["at"]
		at.Position.Stream = stream
		return at, err
	})
	if err != nil {
		return nil, fmt.Errorf("outbox: read checkpoints: %w", l.advise(err))
	}
	return checkpoints, nil
}

// stateRow is a row of published_bounds.sql.
type stateRow struct {
	High, Floor   int64
	Snap, Pending string
	CaughtUpSnap  string
	CaughtUp      int64 // see published_bounds.sql
	Above         int64 // the high of the checkpoint; AboveFloor and AboveSnap are the floor and snap of the checkpoint
	AboveFloor    int64
	AboveSnap     *string
	Others        string
	Late          string

	underway
}

// underway says which republished or held events a relay may publish: see published.sql.
type underway struct {
	Running, Passed []int64 // the republishes that run, and how far they are
	RunningPending  []string
	Newest          int64  // the newest republish
	Mark            int64  // the newest checkpoint
	Noted           string // the events that were published from the table held after checkpoint Mark, so far
}

// publishedReader reads the published events, page by page.
type publishedReader struct {
	log    *Log
	state  stateRow
	from   int64      // when the field others is empty, the next page begins after this seq
	others seqset.Set // earlier seqs, which are read first
	late   seqset.Set // seqs of events that were ordered because a comparison found that a stream lacks them
	repair bool       // see Entries
}

// Entries returns a function that reads, page by page, the events that the relay has published
// since a checkpoint (after), and events that it may be publishing now. With the zero Checkpoint it
// reads all events that the log still has. If a time is given (since), it begins at about that
// time. It leaves out events that republishes will publish; if repair is true, only those of the
// relay's own republishes: an operator may cancel the others, and ordered handlers hold their copies as
// late. It keeps no transaction and no connection open.
func (l *Log) Entries(ctx context.Context, after eventlog.Checkpoint, since time.Time, repair bool) (next func(ctx context.Context) ([]eventlog.HistoryEntry, error), err error) {
	if l.err != nil {
		return nil, fmt.Errorf("outbox: %w", postroom.Unrecoverable(l.err))
	}
	r := &publishedReader{log: l, repair: repair}
	if r.state, err = oneRow[stateRow](ctx, l.pool, l.sql.PublishedBounds, after.ID); err != nil {
		return nil, fmt.Errorf("outbox: read what is published: %w", l.advise(err))
	}
	if r.others, err = seqset.Parse(r.state.Others); err != nil {
		return nil, fmt.Errorf("outbox: read what is published: %w", l.advise(err))
	}
	if r.late, err = seqset.Parse(r.state.Late); err != nil {
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

// next returns the next non-empty page, or nil at the end.
func (r *publishedReader) next(ctx context.Context) ([]eventlog.HistoryEntry, error) {
	for {
		from, to := r.from, r.state.High+readAhead
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

// page reads the rows from the seq from + 1 through the seq to. It returns the events that are
// relevant according to published.sql, and the seq of the last row (0 if there is no row).
func (r *publishedReader) page(ctx context.Context, from, to int64) (page []eventlog.HistoryEntry, last int64, err error) {
	s := &r.state
	rows, _ := r.log.pool.Query(ctx, r.log.sql.Published, from, to, s.Snap, s.Floor, s.Pending, publishedPage, s.High,
		s.Running, s.Passed, s.RunningPending, s.Newest, s.Mark, s.Noted, s.CaughtUpSnap, s.CaughtUp, r.repair) // rows.Err reports the error
	defer rows.Close()
	for rows.Next() {
		var e eventlog.HistoryEntry
		var relevant bool
		var key *string
		if err := rows.Scan(&e.Seq, &e.Source, &e.ID, &e.Subject, &key, &e.CreatedAt, &e.LoggedAt, &e.Digest, &e.Published, &relevant); err != nil {
			return nil, 0, err
		}
		if key != nil {
			e.Key = *key
		}
		//guard:what-came-late-once-is-late-again do e.Late = false
		e.Late = r.late.Has(e.Seq)
		if last = e.Seq; relevant {
			page = append(page, e)
		}
	}
	return page, last, rows.Err()
}

// timeSlack is subtracted from the time in FirstFrom, and added to the time in FirstAfter. It is
// needed because the events' times are not exactly in the order of their seqs: an event gets its
// seq just before its time, and the clock may be set back.
const timeSlack = time.Minute

// Extent says which seqs and times a log has, up to which seq it is published, and
// whether a relay leads.
type Extent struct {
	First     int64      // the lowest seq; zero if the log is empty
	Begins    *time.Time // when the first event was written
	Last      int64      // the highest seq; zero if the log is empty
	Appended  int64      // the number of seqs that events have got so far
	High      int64      // the recorded high
	HasLeader bool       // a relay is leading now
}

// extentRow is what extent.sql returns.
type extentRow struct {
	First                int64
	Begins               *int64 // microseconds
	Last, Appended, High int64
	HasLeader            bool
}

// Reach finds out how far a log reaches.
type Reach struct {
	db  querier
	sql statements
}

// ReachOf returns the Reach of the log in a schema, whose name schema.Name must have accepted.
func ReachOf(db querier, name string) Reach { return Reach{db, load(name)} }

// Extent returns how far the log reaches.
func (l *Reach) Extent(ctx context.Context) (Extent, error) {
	row, err := oneRow[extentRow](ctx, l.db, l.sql.Extent, noPlan)
	if err != nil {
		return Extent{}, fmt.Errorf("read extent of the log: %w", err)
	}
	extent := Extent{First: row.First, Last: row.Last, Appended: row.Appended, High: row.High, HasLeader: row.HasLeader}
	if row.Begins != nil {
		begins := time.UnixMicro(*row.Begins)
		extent.Begins = &begins
	}
	return extent, nil
}

// firstSince returns what FirstFrom finds in the whole log.
func (l *Log) firstSince(ctx context.Context, at time.Time) (int64, error) {
	reach := Reach{l.pool, l.sql}
	extent, err := reach.Extent(ctx)
	if err != nil {
		return 0, err
	}
	return reach.FirstFrom(ctx, at, extent.First, extent.Last)
}

// FirstFrom returns the first seq from lo through hi whose event was written at the given time or
// later, or hi + 1 if there is none. It may return the seq of an event that was written up to a
// minute earlier. created_at has no index, because an index would make each insert slower. So
// FirstFrom makes a binary search in the primary key.
func (l *Reach) FirstFrom(ctx context.Context, at time.Time, lo, hi int64) (int64, error) {
	return l.firstFrom(ctx, at.Add(-timeSlack), lo, hi)
}

// FirstAfter is like FirstFrom, but skips all events up to a minute after the given time.
func (l *Reach) FirstAfter(ctx context.Context, at time.Time, lo, hi int64) (int64, error) {
	return l.firstFrom(ctx, at.Add(timeSlack), lo, hi)
}

func (l *Reach) firstFrom(ctx context.Context, at time.Time, lo, hi int64) (int64, error) {
	type row struct {
		Seq       int64
		CreatedAt time.Time
	}
	end := hi + 1
	for above := end; lo < above; {
		middle := lo + (above-lo)/2
		found, err := oneRow[row](ctx, l.db, l.sql.FirstEvent, noPlan, middle)
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
