package pglog

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/internal/sqlfile"
	"github.com/postroom/postroom/schema"
)

// Term is the type that [Log.Lead] returns.
type Term = term

// Lead is [Log.Lead] for tests that look into the term.
func Lead(ctx context.Context, log *Log, owner string, lease time.Duration) (*Term, error) {
	term, err := log.Lead(ctx, owner, lease)
	if err != nil {
		return nil, err
	}
	return term.(*Term), nil
}

// Abandon ends a term as a kill of the process does: it records nothing and does not give the
// lease back.
func (t *Term) Abandon() error { return t.close() }

// PruneFromStart makes the next step of Prune start over, as if an hour had passed.
func (t *Term) PruneFromStart() { t.since = time.Now().Add(-pruneAgain) }

// CheckpointNow makes the next recording of a published event make a checkpoint.
func (t *Term) CheckpointNow() { t.checkpointAt = time.Time{} }

// SearchAlways makes each Read search for late rows first, as after a long pause.
func (t *Term) SearchAlways() { t.searchAfter, t.searchAbove = 0, -1<<62 }

// OverrideTimeOfWholePass sets how long the last pass over all due events took. However little that is,
// the passes after it look only at events that became due lately, until its share of the time is over.
func (t *Term) OverrideTimeOfWholePass(took time.Duration) { t.slowPass, t.wholeTook = 0, took }

// Search is a search for late rows that a test takes step by step.
type Search struct {
	s    *search
	pool *pgxpool.Pool
}

// NewSearch begins the search for rows that became visible since the given state.
func NewSearch(ctx context.Context, pool *pgxpool.Pool, high, floor int64, snap string, bySeq bool) (*Search, error) {
	sql := load(schema.DefaultName)
	row, err := oneRow[searchBoundsRow](ctx, pool, sql.SearchBounds, high, floor, snap, nil)
	if err != nil {
		return nil, err
	}
	if row.Above = -1; bySeq {
		row.Above = 1 << 50
	}
	return &Search{s: newSearch(&sql, state{high: high, floor: floor, snap: snap}, row), pool: pool}, nil
}

// AtMost limits how many rows a step returns.
func (s *Search) AtMost(rows int64) { s.s.most = rows }

// Step searches the given share of the rest, and reports whether there is more.
func (s *Search) Step(ctx context.Context, share float64) (more bool, err error) {
	if s.s.done() {
		return false, nil
	}
	width := int64(share*float64(s.s.end-s.s.at)) + 1
	if s.s.bySeq {
		width *= searchRatio
	}
	err = s.s.step(ctx, s.pool, width)
	return !s.s.done(), err
}

// Now returns the snapshot up to which it searches, and Late the rows that it found.
func (s *Search) Now() string  { return s.s.now }
func (s *Search) Late() string { return s.s.late.Union(nil).String() }

// SearchFor makes each Read search for d, in steps of the given width.
func (t *Term) SearchFor(d time.Duration, width int64) {
	t.searchTime = d
	t.reader.log.stepSize.n.Store(width)
}

// SearchWidth returns how wide the next step of a search is.
func (l *Log) SearchWidth() int64 { return l.stepSize.get() }

// GiveBack runs the part of Release after the recording.
func (t *Term) GiveBack(ctx context.Context) error {
	_, err := t.lease.conn.Exec(ctx, t.lease.log.sql.Release, t.epoch)
	return err
}

// Setting returns a setting of one of the term's connections.
func (t *Term) Setting(ctx context.Context, reader bool, name string) (value string) {
	conn := t.lease.conn
	if reader {
		conn = t.reader.conn
	}
	if err := conn.QueryRow(ctx, "SELECT current_setting($1)", name).Scan(&value); err != nil {
		return err.Error()
	}
	return value
}

// SQL returns a statement of this package as it is built in: go test -overlay may have
// replaced its file.
func SQL(name string) string { return sqlfile.Names(written)[name] }

// Pool returns the pool that the log was made with.
func (l *Log) Pool() *pgxpool.Pool { return l.pool }
