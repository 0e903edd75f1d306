package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
)

const (
	// The log is about in the order of the times at which its events were written: a
	// seq is taken just before the time is, unless somebody set the clock. So much more
	// is looked at; each event's own time decides.
	timeSlack = time.Minute

	// Events are counted so many seqs at a time.
	countStep = 50_000
)

// reachRow is what reach.sql returns.
type reachRow struct {
	First    int64
	Begins   *time.Time
	Last     int64
	Appended int64
	High     int64
	Led      bool
}

// Led reports whether a relay leads the log now.
func (l *Log) Led(ctx context.Context) (bool, error) {
	if l.err != nil {
		return false, fmt.Errorf("outbox: %w", postroom.Refuse(l.err))
	}
	row, err := l.reach(ctx)
	if err != nil {
		return false, fmt.Errorf("outbox: %w", l.advise(err))
	}
	return row.Led, nil
}

func (l *Log) reach(ctx context.Context) (reachRow, error) {
	row, err := oneRow[reachRow](ctx, l.pool, l.sql.reach, unplanned)
	if err != nil {
		return row, fmt.Errorf("read reach of the log: %w", err)
	}
	return row, nil
}

// preview finds the events of an order.
func (l *Log) preview(ctx context.Context, o RewindOrder) (p RewindPreview, err error) {
	wish := o.wish()
	running, err := l.list(ctx, nil, &wish, nil, 1)
	if err != nil {
		return p, err
	}
	if len(running) == 1 {
		running[0].RanAlready = true
		p.Running = &running[0]
	}
	reach, err := l.reach(ctx)
	if err != nil {
		return p, err
	}
	p.Log = reach.covers(o.Since)
	if reach.First == 0 {
		return p, nil
	}
	lo, hi := reach.First, min(reach.Last, reach.High)
	if !o.Since.IsZero() {
		if lo, err = l.firstFrom(ctx, o.Since.Add(-timeSlack), reach.First, hi); err != nil {
			return p, err
		}
	}
	if !o.Until.IsZero() {
		end, err := l.firstFrom(ctx, o.Until.Add(timeSlack), lo, hi)
		if err != nil {
			return p, err
		}
		hi = end - 1
	}
	return p, l.count(ctx, o, lo, hi, &p)
}

// covers says how far back the log reaches for events since a time.
func (r reachRow) covers(since time.Time) LogReach {
	reach := LogReach{FirstSeq: r.First}
	if r.Begins == nil {
		reach.Gone = r.Appended > 0
		return reach
	}
	reach.BeginsAt = *r.Begins
	reach.Gone = r.First > 1 && since.Before(*r.Begins)
	return reach
}

// firstSince returns about the first seq of the log from which on events were written
// at the given time or later.
func (l *Log) firstSince(ctx context.Context, at time.Time) (int64, error) {
	reach, err := l.reach(ctx)
	if err != nil {
		return 0, err
	}
	return l.firstFrom(ctx, at.Add(-timeSlack), reach.First, reach.Last)
}

// firstFrom returns about the first seq, of those from lo through hi, from which on
// events were written at the given time or later; hi + 1 where there is none. created_at
// has no index, which producers would pay for, so it is searched by halves through the
// primary key.
func (l *Log) firstFrom(ctx context.Context, at time.Time, lo, hi int64) (int64, error) {
	type row struct {
		Seq       int64
		CreatedAt time.Time
	}
	end := hi + 1
	for above := end; lo < above; {
		middle := lo + (above-lo)/2
		found, err := oneRow[row](ctx, l.pool, l.sql.probe, unplanned, middle)
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

// countRow is what count.sql returns.
type countRow struct {
	N, First, Last   int64
	Earliest, Latest *time.Time
}

// count counts the events of an order from lo through hi.
func (l *Log) count(ctx context.Context, o RewindOrder, lo, hi int64, p *RewindPreview) error {
	for ; lo <= hi; lo += countStep {
		row, err := oneRow[countRow](ctx, l.pool, l.sql.count, unplanned,
			lo, min(lo+countStep-1, hi), texts(o.Types), texts(o.Keys), when(o.Since), when(o.Until))
		if err != nil {
			return fmt.Errorf("count events: %w", err)
		}
		if row.N == 0 {
			continue
		}
		if p.Events == 0 {
			p.First, p.Earliest, p.Latest = row.First, *row.Earliest, *row.Latest
		}
		p.Events, p.Last = p.Events+row.N, row.Last
		if row.Earliest.Before(p.Earliest) {
			p.Earliest = *row.Earliest
		}
		if row.Latest.After(p.Latest) {
			p.Latest = *row.Latest
		}
	}
	return nil
}
