package republish

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/pglog"
)

// countStep is how many seqs are looked at at a time, to count events.
const countStep = 50_000

// Led reports whether a relay leads the log now.
func (rs *Rewinds) Led(ctx context.Context) (bool, error) {
	if rs.err != nil {
		return false, fmt.Errorf("outbox: %w", postroom.Unrecoverable(rs.err))
	}
	extent, err := rs.log.Extent(ctx)
	if err != nil {
		return false, fmt.Errorf("outbox: %w", rs.advise("relay", err))
	}
	return extent.Led, nil
}

// preview finds the events of an order.
func (rs *Rewinds) preview(ctx context.Context, o Order) (p Preview, err error) {
	wish := o.wish()
	running, err := rs.list(ctx, nil, &wish, nil, 1)
	if err != nil {
		return p, err
	}
	if len(running) == 1 {
		running[0].RanAlready = true
		p.Running = &running[0]
	}
	extent, err := rs.log.Extent(ctx)
	if err != nil {
		return p, err
	}
	p.Log = reachOf(extent, o.Since)
	if extent.First == 0 {
		return p, nil
	}
	lo, hi := extent.First, min(extent.Last, extent.High)
	if !o.Since.IsZero() {
		if lo, err = rs.log.FirstFrom(ctx, o.Since, extent.First, hi); err != nil {
			return p, err
		}
	}
	if !o.Until.IsZero() {
		end, err := rs.log.FirstAfter(ctx, o.Until, lo, hi)
		if err != nil {
			return p, err
		}
		hi = end - 1
	}
	return p, rs.count(ctx, o, lo, hi, &p)
}

// reachOf says how far back the log reaches for events since a time.
func reachOf(e pglog.Extent, since time.Time) Reach {
	reach := Reach{FirstSeq: e.First}
	if e.Begins == nil {
		reach.Gone = e.Appended > 0
		return reach
	}
	reach.BeginsAt = *e.Begins
	reach.Gone = e.First > 1 && since.Before(*e.Begins)
	return reach
}

// countRow is what count.sql returns.
type countRow struct {
	N, First, Last   int64
	Earliest, Latest *time.Time
}

// count counts the events of an order from lo through hi.
func (rs *Rewinds) count(ctx context.Context, o Order, lo, hi int64, p *Preview) error {
	for ; lo <= hi; lo += countStep {
		rows, _ := rs.pool.Query(ctx, rs.sql.Count, unplanned, // CollectOneRow reports the error
			lo, min(lo+countStep-1, hi), texts(o.Types), texts(o.Keys), when(o.Since), when(o.Until))
		row, err := pgx.CollectOneRow(rows, pgx.RowToStructByPos[countRow])
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
