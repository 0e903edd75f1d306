package deadletter

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

const (
	// maxOpen is how many events of a replay are open at the most: so many fail at the
	// most before it stops.
	maxOpen = 500

	// minEnded is from how many events on the share of failures counts, without a
	// canary.
	minEnded = 10
)

// replayState is a replay that is locked, and what a step adds to it.
type replayState struct {
	rules
	tally // with what this step adds

	id      int64
	state   ReplayState
	phase   ReplayPhase
	verdict *ReplayState
	items   int
	before  tally    // it was last resumed
	credit  *float64 // events that the rate lets go now; nil: no bound

	open  int
	moved bool
	added tally // by this step
}

// rules are what a replay was asked for.
type rules struct {
	canary, attempts int
	stopAt           float64
	asNew            bool
}

// tally is what became of the events of a replay.
type tally struct{ released, succeeded, failed, passedOver int }

// remaining is how many events were not released and are to be.
func (j *replayState) remaining() int { return j.items - j.released - j.passedOver }

// replayTurn is the turn at driving a replay, which is locked, for one transaction.
type replayTurn struct {
	*database

	tx pgx.Tx
	j  *replayState
}

// advance notes what ended, judges, and releases what may go.
func (s *replayTurn) advance(ctx context.Context) error {
	j := s.j
	if err := s.close(ctx); err != nil {
		return err
	}
	if j.phase != PhaseEnding && j.failsTooOften() {
		if err := s.end(ctx, ReplayStopped); err != nil {
			return err
		}
	}
	if j.phase == PhaseCanary && j.open == 0 && j.succeeded+j.failed+j.passedOver >= min(j.canary, j.items) {
		j.phase = PhaseRest
	}
	if j.phase != PhaseEnding {
		if err := s.release(ctx); err != nil {
			return err
		}
	}
	switch {
	case j.open > 0 || j.phase != PhaseEnding && j.remaining() > 0:
	case j.verdict != nil:
		j.state = *j.verdict
	default:
		j.state = ReplayDone
	}
	return nil
}

// failsTooOften reports whether so many events failed, since the replay was last
// resumed, that it has to stop.
func (j *replayState) failsTooOften() bool {
	failed, before := j.failed-j.before.failed, j.before.succeeded+j.before.failed
	ended := j.succeeded + j.failed - before
	if j.phase == PhaseCanary {
		// The others can only succeed: what cannot be allowed any more is enough.
		return float64(failed) > j.stopAt*float64(max(ended, min(j.canary, j.items)-before))
	}
	return ended >= min(minEnded, j.items-before) && float64(failed) > j.stopAt*float64(ended) && j.remaining() > 0
}

// lockReplay takes the turn at driving a replay. For one that has ended the error is
// ErrEnded.
func (s *database) lockReplay(ctx context.Context, tx pgx.Tx, id int64) (*replayTurn, error) {
	j := &replayState{id: id}
	t := &replayTurn{s, tx, j}
	err := tx.QueryRow(ctx, s.sql.JobLock, id).Scan(&j.state, &j.phase, &j.verdict, &j.items, &j.released, &j.succeeded, &j.failed, &j.passedOver,
		&j.before.succeeded, &j.before.failed, &j.canary, &j.stopAt, &j.attempts, &j.asNew, &j.credit)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, ErrNotFound
	case err != nil:
		return nil, fmt.Errorf("lock the replay: %w", err)
	case j.state != ReplayRunning:
		return t, fmt.Errorf("%w: it is %s", ErrReplayEnded, j.state)
	}
	return t, nil
}

// note writes down how far a replay is.
func (s *replayTurn) note(ctx context.Context) error {
	j := s.j
	_, err := s.tx.Exec(ctx, s.sql.JobNote, j.id, j.state, j.phase, j.verdict, j.added.released, j.added.succeeded, j.added.failed, j.added.passedOver, j.credit)
	if err != nil {
		return fmt.Errorf("note how far it is: %w", err)
	}
	return nil
}

// close notes which of the released events have ended. What was released behind an
// event of its key that died is taken back: it would wait for as long as that one stays
// dead.
func (s *replayTurn) close(ctx context.Context) error {
	j := s.j
	var good, bad, discarded int
	var chained []int64
	if err := s.tx.QueryRow(ctx, s.sql.JobClose, j.id).Scan(&good, &bad, &discarded, &j.open, &chained); err != nil {
		return fmt.Errorf("note what ended: %w", err)
	}
	j.added.succeeded, j.succeeded = j.added.succeeded+good, j.succeeded+good
	j.added.failed, j.failed = j.added.failed+bad, j.failed+bad
	j.unrelease(discarded)
	j.moved = good+bad+discarded > 0
	if err := s.withdraw(ctx, s.sql.JobStuck); err != nil {
		return err
	}
	if len(chained) == 0 {
		return nil
	}
	if _, err := s.tx.Exec(ctx, s.sql.JobUnchain, j.id, chained); err != nil { // now that nothing waits behind them
		return fmt.Errorf("free failed events of their key: %w", err)
	}
	return nil
}

// unrelease counts events that were released as passed over.
func (j *replayState) unrelease(n int) {
	j.added.released, j.released = j.added.released-n, j.released-n
	j.added.passedOver, j.passedOver = j.added.passedOver+n, j.passedOver+n
}

// withdraw has released events dead again that a statement names.
func (s *replayTurn) withdraw(ctx context.Context, which string) error {
	j := s.j
	rows, _ := s.tx.Query(ctx, which, j.id) // CollectRows reports the error
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return fmt.Errorf("look for what is to be taken back: %w", err)
	}
	if len(ids) == 0 {
		return nil
	}
	if err := s.lockRows(ctx, s.tx, ids); err != nil {
		return err
	}
	var n int
	if err := s.tx.QueryRow(ctx, s.sql.JobWithdraw, j.id, ids).Scan(&n); err != nil {
		return fmt.Errorf("take back what nobody has begun: %w", err)
	}
	j.open -= n
	j.unrelease(n)
	j.moved = j.moved || n > 0
	return nil
}

// end has a replay release nothing any more. What nobody has begun is as it was.
func (s *replayTurn) end(ctx context.Context, verdict ReplayState) error {
	j := s.j
	if err := s.withdraw(ctx, s.sql.JobUnclaimed); err != nil {
		return err
	}
	var n int
	if err := s.tx.QueryRow(ctx, s.sql.JobLeave, j.id).Scan(&n); err != nil {
		return fmt.Errorf("leave out what was not released: %w", err)
	}
	j.added.passedOver, j.passedOver = j.added.passedOver+n, j.passedOver+n
	j.phase, j.verdict, j.moved = PhaseEnding, &verdict, true
	if j.open == 0 {
		j.state = verdict
	}
	return nil
}

// release sets events ready, as many as may go.
func (s *replayTurn) release(ctx context.Context) error {
	j := s.j
	most := min(maxOpen-j.open, j.remaining())
	if j.phase == PhaseCanary {
		most = min(most, j.canary-j.released-j.passedOver)
	}
	if j.credit != nil {
		most = int(min(float64(most), *j.credit)) // which may be more than an int holds
	}
	if most <= 0 {
		return nil
	}
	rows, _ := s.tx.Query(ctx, s.sql.JobNext, j.id, most) // CollectRows reports the error
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return fmt.Errorf("look for what is next: %w", err)
	}
	if err := s.lockRows(ctx, s.tx, ids); err != nil {
		return err
	}
	var released, passed int
	if err := s.tx.QueryRow(ctx, s.sql.JobRelease, j.id, ids, j.attempts, j.asNew).Scan(&released, &passed); err != nil {
		return fmt.Errorf("release events: %w", err)
	}
	j.added.released, j.released, j.open = j.added.released+released, j.released+released, j.open+released
	j.added.passedOver, j.passedOver = j.added.passedOver+passed, j.passedOver+passed
	if j.credit != nil {
		*j.credit -= float64(released)
	}
	j.moved = j.moved || released+passed > 0
	return nil
}
