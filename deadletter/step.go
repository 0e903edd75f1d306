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
	limits
	counts // with what this step adds

	id       int64
	state    ReplayState
	phase    ReplayPhase
	endState *ReplayState
	items    int
	atResume counts   // it was last resumed
	credit   *float64 // events that the rate lets go now; nil: no bound

	open    int
	changed bool
	added   counts // by this step
}

// limits are what a replay was asked for.
type limits struct {
	canary, attempts int
	stopAt           float64
	asNew            bool
}

// counts is what became of the events of a replay.
type counts struct{ released, succeeded, failed, passedOver int }

// remaining is how many events were not released and are to be.
func (j *replayState) remaining() int { return j.items - j.released - j.passedOver }

// replayStep is the turn at driving a replay, which is locked, for one transaction.
type replayStep struct {
	*database

	tx pgx.Tx
	j  *replayState
}

// advance notes what ended, judges, and releases what may go.
func (s *replayStep) advance(ctx context.Context) error {
	j := s.j
	if err := s.recordOutcomes(ctx); err != nil {
		return err
	}
	if j.phase != PhaseEnding && j.failsTooOften() {
		if err := s.stopReleasing(ctx, ReplayStopped); err != nil {
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
	case j.endState != nil:
		j.state = *j.endState
	default:
		j.state = ReplayDone
	}
	return nil
}

// failsTooOften reports whether so many events failed, since the replay was last
// resumed, that it has to stop.
func (j *replayState) failsTooOften() bool {
	failed, before := j.failed-j.atResume.failed, j.atResume.succeeded+j.atResume.failed
	ended := j.succeeded + j.failed - before
	if j.phase == PhaseCanary {
		// The others can only succeed: what cannot be allowed any more is enough.
		return float64(failed) > j.stopAt*float64(max(ended, min(j.canary, j.items)-before))
	}
	return ended >= min(minEnded, j.items-before) && float64(failed) > j.stopAt*float64(ended) && j.remaining() > 0
}

// lockReplay takes the turn at driving a replay. For one that has ended the error is
// ErrEnded.
func (s *database) lockReplay(ctx context.Context, tx pgx.Tx, id int64) (*replayStep, error) {
	j := &replayState{id: id}
	t := &replayStep{s, tx, j}
	err := tx.QueryRow(ctx, s.sql.ReplayLock, id).Scan(&j.state, &j.phase, &j.endState, &j.items, &j.released, &j.succeeded, &j.failed, &j.passedOver,
		&j.atResume.succeeded, &j.atResume.failed, &j.canary, &j.stopAt, &j.attempts, &j.asNew, &j.credit)
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

// save writes down how far a replay is.
func (s *replayStep) save(ctx context.Context) error {
	j := s.j
	_, err := s.tx.Exec(ctx, s.sql.ReplaySave, j.id, j.state, j.phase, j.endState, j.added.released, j.added.succeeded, j.added.failed, j.added.passedOver, j.credit)
	if err != nil {
		return fmt.Errorf("note how far it is: %w", err)
	}
	return nil
}

// recordOutcomes notes which of the released events have ended. What was released behind an
// event of its key that died is taken back: it would wait for as long as that one stays
// dead.
func (s *replayStep) recordOutcomes(ctx context.Context) error {
	j := s.j
	var good, bad, discarded int
	var chained []int64
	if err := s.tx.QueryRow(ctx, s.sql.ReplayOutcomes, j.id).Scan(&good, &bad, &discarded, &j.open, &chained); err != nil {
		return fmt.Errorf("note what ended: %w", err)
	}
	j.added.succeeded, j.succeeded = j.added.succeeded+good, j.succeeded+good
	j.added.failed, j.failed = j.added.failed+bad, j.failed+bad
	j.countTakenBack(discarded)
	j.changed = good+bad+discarded > 0
	if err := s.takeBack(ctx, s.sql.ReplayStuck); err != nil {
		return err
	}
	if len(chained) == 0 {
		return nil
	}
	if _, err := s.tx.Exec(ctx, s.sql.ReplayUnchain, j.id, chained); err != nil { // now that nothing waits behind them
		return fmt.Errorf("free failed events of their key: %w", err)
	}
	return nil
}

// countTakenBack counts events that were released as passed over.
func (j *replayState) countTakenBack(n int) {
	j.added.released, j.released = j.added.released-n, j.released-n
	j.added.passedOver, j.passedOver = j.added.passedOver+n, j.passedOver+n
}

// takeBack has released events dead again that a statement names.
func (s *replayStep) takeBack(ctx context.Context, which string) error {
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
	if err := s.tx.QueryRow(ctx, s.sql.ReplayTakeBack, j.id, ids).Scan(&n); err != nil {
		return fmt.Errorf("take back what nobody has begun: %w", err)
	}
	j.open -= n
	j.countTakenBack(n)
	j.changed = j.changed || n > 0
	return nil
}

// stopReleasing has a replay release nothing any more. What nobody has begun is as it was.
func (s *replayStep) stopReleasing(ctx context.Context, verdict ReplayState) error {
	j := s.j
	if err := s.takeBack(ctx, s.sql.ReplayUnclaimed); err != nil {
		return err
	}
	var n int
	if err := s.tx.QueryRow(ctx, s.sql.ReplaySkip, j.id).Scan(&n); err != nil {
		return fmt.Errorf("leave out what was not released: %w", err)
	}
	j.added.passedOver, j.passedOver = j.added.passedOver+n, j.passedOver+n
	j.phase, j.endState, j.changed = PhaseEnding, &verdict, true
	if j.open == 0 {
		j.state = verdict
	}
	return nil
}

// release sets events ready, as many as may go.
func (s *replayStep) release(ctx context.Context) error {
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
	rows, _ := s.tx.Query(ctx, s.sql.ReplayNext, j.id, most) // CollectRows reports the error
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return fmt.Errorf("look for what is next: %w", err)
	}
	if err := s.lockRows(ctx, s.tx, ids); err != nil {
		return err
	}
	var released, passed int
	if err := s.tx.QueryRow(ctx, s.sql.ReplayRelease, j.id, ids, j.attempts, j.asNew).Scan(&released, &passed); err != nil {
		return fmt.Errorf("release events: %w", err)
	}
	j.added.released, j.released, j.open = j.added.released+released, j.released+released, j.open+released
	j.added.passedOver, j.passedOver = j.added.passedOver+passed, j.passedOver+passed
	if j.credit != nil {
		*j.credit -= float64(released)
	}
	j.changed = j.changed || released+passed > 0
	return nil
}
