package pglog

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/internal/seqset"
)

// A row is late if its transaction committed after the relay had read higher seqs. In each pass the
// relay finds late rows with one statement (pass.sql). After an outage, there may be millions of
// transactions between two passes. One statement for all of them can exceed the caller's time
// limit, and so can each repetition. So if much was committed since the last pass, a search
// first finds late rows in several steps. The search takes a snapshot at its beginning, and finds
// the late rows that are visible in this snapshot. The next pass continues from that snapshot.
const (
	// A search begins only if this term has made no pass yet, or if its last pass is at least
	// searchAfter ago. So a search begins only in the first read of a term, or in the first read
	// after a pause.
	searchAfter = time.Second

	// A search begins only if at least searchAbove seqs are assigned after the last seq that the
	// relay has read.
	searchAbove = 100_000

	// After searchTime, one call of Read begins no further step of a search. The caller's time
	// limit is longer.
	searchTime = time.Second

	// Reading one row takes as long as reading searchRatio entries of the index (xid, seq).
	searchRatio = 16

	// One step of a search returns at most searchRows rows. In a search by seq it also reads no more.
	searchRows = 50_000
)

// stepSize is the number of transaction ids in a step of a search. If the search examines seqs (see
// search), a step has stepSize/searchRatio seqs. The size depends on how long earlier steps took.
// The Log keeps it, so that after a failed step the next term goes on with smaller steps.
type stepSize struct{ n atomic.Int64 }

const (
	minStep   = 1_000
	firstStep = 200_000
	maxStep   = 5_000_000
)

func (s *stepSize) get() int64 {
	if n := s.n.Load(); n > 0 {
		return n
	}
	return firstStep
}

// adapt changes the size after a step that took the given time or failed.
func (s *stepSize) adapt(took time.Duration, err error) {
	n := s.get()
	switch {
	case err != nil:
		//guard:a-search-tries-less-after-a-timeout = 1
		n /= 4
	case took > searchTime:
		n /= 2
	case took < searchTime/10:
		n *= 2
	}
	s.n.Store(min(max(n, minStep), maxStep))
}

// A search finds the rows with seqs up to high that are visible in the later snapshot (now), but
// not in the earlier one (snap). It examines the transactions between the two snapshots. If there
// are few rows up to high, it examines these rows by seq instead.
type search struct {
	sql         *statements
	high, floor int64
	snap, now   string
	most        int64 // searchRows

	bySeq   bool
	at, end int64      // the field at is the first transaction id of the next step; if bySeq is set, at is the last seq before the next step. When at reaches the field end, the search is done
	part    [2]int64   // if the last step did not return all of its rows: the transaction id and the seq of the last row that it returned
	late    seqset.Set // the parts that the steps found: see seqset.Set.Union
}

// searchBoundsRow is a row of search_bounds.sql.
type searchBoundsRow struct {
	Snap, PID         string
	Above, Bottom     int64
	XIDFrom, XIDUntil int64
}

// lateRow is a row of late_by_xid.sql and late_by_seq.sql.
type lateRow struct {
	Late             string
	Rows             int64
	LastXID, LastSeq int64
}

// newSearch returns the search for rows that became visible since the snapshot of a state.
func newSearch(sql *statements, from state, row searchBoundsRow) *search {
	s := &search{sql: sql, high: from.high, floor: from.floor, snap: from.snap, now: row.Snap, most: searchRows}
	if below := from.high - row.Bottom; below <= max(row.Above, 0)/searchRatio {
		s.bySeq, s.at, s.end = true, row.Bottom, from.high
	} else {
		//guard:late-rows-of-open-transactions-in-a-search 2 = @1
		s.at, s.end = row.XIDFrom, max(row.XIDUntil, row.XIDFrom+1) // at least one step, because the first step also examines the transactions that were open in snap
	}
	return s
}

func (s *search) done() bool { return s.at >= s.end }

// step examines the next n transaction ids, or in a search by seq n/searchRatio seqs. If these have
// more than searchRows late rows, the next step goes on behind the last row.
func (s *search) step(ctx context.Context, db querier, n int64) error {
	var row lateRow
	var to int64
	var err error
	if s.bySeq {
		to = min(s.at+min(max(n/searchRatio, 1), searchRows), s.end)
		row, err = oneRow[lateRow](ctx, db, s.sql.LateBySeq, s.at, to, s.snap, s.now)
	} else {
		to = min(s.at+n, s.end)
		row, err = oneRow[lateRow](ctx, db, s.sql.LateByXID, s.high, s.floor, s.snap, s.now, s.at, to, s.part[0], s.part[1], s.most)
	}
	if err != nil {
		return fmt.Errorf("search for late rows: %w", err)
	}
	found, err := seqset.Parse(row.Late)
	if err != nil {
		return err
	}
	s.late = append(s.late, found...)
	//guard:a-search-goes-on-behind-its-last-row 2 false
	if !s.bySeq && row.Rows >= s.most {
		s.part = [2]int64{row.LastXID, row.LastSeq}
		return nil
	}
	s.at, s.part = to, [2]int64{}
	return nil
}

// steps makes steps until the search is done or they have taken the time of the budget.
func (s *search) steps(ctx context.Context, db querier, width *stepSize, budget time.Duration) error {
	for began := time.Now(); !s.done(); {
		last := time.Now()
		err := s.step(ctx, db, width.get())
		width.adapt(time.Since(last), err)
		if err != nil {
			return err
		}
		if time.Since(began) >= budget {
			return nil
		}
	}
	return nil
}

// catchUp searches for late rows if the last pass was long ago and much was committed since then, or
// if an earlier term had begun to catch up with late rows. If more is true, the search is not done,
// and the next call continues it.
func (r *reader) catchUp(ctx context.Context) (late int64, more bool, err error) {
	//guard:a-search-keeps-what-it-found true
	if r.search == nil {
		catchesUp, rest := r.memory.catchingUp()
		switch {
		case rest != nil:
			//guard:a-catch-up-goes-on-where-it-was = @1
			rest.floor = max(rest.floor, rest.passed)
			if _, err := r.beginSearch(ctx, *rest, &rest.to); err != nil {
				return 0, false, err
			}
		case catchesUp, time.Since(r.lastPass) < r.searchAfter:
			return 0, false, nil
		default:
			above, err := r.beginSearch(ctx, r.memory.position(), nil)
			if err != nil || above < r.searchAbove {
				r.search = nil
				return 0, false, err
			}
		}
	}
	return r.continueSearch(ctx)
}

// beginSearch begins to search for rows that became visible since a state: until the given snapshot,
// or until now. It returns how many seqs are assigned after the last seq that the relay has read.
func (r *reader) beginSearch(ctx context.Context, from state, until *string) (above int64, err error) {
	row, err := oneRow[searchBoundsRow](ctx, r.conn, r.log.sql.SearchBounds, from.high, from.floor, from.snap, until)
	if err == nil {
		err = r.samePID(row.PID)
	}
	if err != nil {
		return 0, fmt.Errorf("look how much was committed: %w", err)
	}
	r.search = newSearch(&r.log.sql, from, row)
	return row.Above, nil
}

// continueSearch makes the next steps of the search. If more is true, the search is not done.
func (r *reader) continueSearch(ctx context.Context) (late int64, more bool, err error) {
	if err := r.search.steps(ctx, r.conn, &r.log.stepSize, r.searchTime); err != nil {
		return 0, false, err
	}
	if !r.search.done() {
		return 0, true, nil
	}
	found := r.search.late.Union(nil)
	r.memory.addLate(found, r.search.now)
	r.search = nil
	return found.Size(), false, nil
}

// searchAll makes a complete search for rows that became visible since the snapshot of a state.
func searchAll(ctx context.Context, l *Log, from state) (late seqset.Set, err error) {
	err = pgx.BeginFunc(ctx, l.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, l.sql.Search); err != nil {
			return err
		}
		row, err := oneRow[searchBoundsRow](ctx, tx, l.sql.SearchBounds, from.high, from.floor, from.snap, nil)
		if err != nil {
			return err
		}
		s := newSearch(&l.sql, from, row)
		err = s.steps(ctx, tx, &l.stepSize, math.MaxInt64)
		late = s.late.Union(nil)
		return err
	})
	return late, err
}
