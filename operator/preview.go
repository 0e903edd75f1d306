package operator

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/internal/pglog"
)

// countStep is the length of a range of seqs. Each statement counts the events of one range.
const countStep = 50_000

// HasLeader reports whether a relay is leading now.
func (s *Store) HasLeader(ctx context.Context) (bool, error) {
	if s.err != nil {
		return false, s.err
	}
	extent, err := s.log.Extent(ctx)
	if err != nil {
		return false, fmt.Errorf("operator: %w", s.tables.Explain(err))
	}
	return extent.HasLeader, nil
}

// preview finds out what a request would publish.
func (s *Store) preview(ctx context.Context, r RepublishRequest) (p RepublishPreview, err error) {
	digest := r.digest()
	running, err := s.list(ctx, nil, &digest, nil, 1)
	if err != nil {
		return p, err
	}
	if len(running) == 1 {
		running[0].AlreadyRunning = true
		p.Running = &running[0]
	}
	extent, err := s.log.Extent(ctx)
	if err != nil {
		return p, err
	}
	p.Log = extentOf(extent, r.Since)
	if extent.First == 0 {
		return p, nil
	}
	lo, hi := extent.First, min(extent.Last, extent.High)
	if !r.Since.IsZero() {
		if lo, err = s.log.FirstFrom(ctx, r.Since, extent.First, hi); err != nil {
			return p, err
		}
	}
	if !r.Until.IsZero() {
		end, err := s.log.FirstAfter(ctx, r.Until, lo, hi)
		if err != nil {
			return p, err
		}
		hi = end - 1
	}
	return p, s.count(ctx, r, lo, hi, &p)
}

// extentOf returns how far back the log reaches, for a request that begins at the given time.
func extentOf(e pglog.Extent, since time.Time) LogExtent {
	extent := LogExtent{FirstSeq: e.First}
	if e.Begins == nil {
		extent.Gone = e.Appended > 0 && e.First != 1
		return extent
	}
	extent.BeginsAt = *e.Begins
	extent.Gone = e.First > 1 && since.Before(*e.Begins)
	return extent
}

// countRow is what count.sql returns.
type countRow struct {
	N, First, Last   int64
	Earliest, Latest *time.Time
}

// count adds to p the events with seqs from lo through hi that a request selects.
func (s *Store) count(ctx context.Context, r RepublishRequest, lo, hi int64, p *RepublishPreview) error {
	for ; lo <= hi; lo += countStep {
		rows, _ := s.db.Query(ctx, s.sql.Count, unplanned, // CollectOneRow reports the error
			lo, min(lo+countStep-1, hi), texts(r.Types), texts(r.Keys), given(r.Since), given(r.Until))
		row, err := pgx.CollectOneRow(rows, pgx.RowToStructByPos[countRow])
		if err != nil {
			return fmt.Errorf("count events: %w", err)
		}
		if row.N == 0 {
			continue
		}
		if p.Events == 0 {
			p.First = row.First
		}
		p.Events, p.Last = p.Events+row.N, row.Last
		//guard:events-without-a-time-are-previewed false
		if row.Earliest == nil { // all times are outside the years 1 to 9999
			continue
		}
		if p.Earliest.IsZero() || row.Earliest.Before(p.Earliest) {
			p.Earliest = *row.Earliest
		}
		if row.Latest.After(p.Latest) {
			p.Latest = *row.Latest
		}
	}
	return nil
}
