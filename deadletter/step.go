package deadletter

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

const (
	// While maxOpen released events have not ended, a replay releases no more events. This limits
	// how many events can still fail after the failure that stops the replay.
	maxOpen = 500

	// minEnded is how many events must have ended before a replay compares the share of failures
	// with StopAt. It does not apply during a canary.
	minEnded = 10
)

// replayState is a replay whose row is locked, with the counts that a step adds to it.
type replayState struct {
	limits
	counts // including the counts that this step adds

	id       int64
	state    ReplayState
	phase    ReplayPhase
	endState *ReplayState
	items    int
	atResume counts   // the counts when the replay was last resumed; then no released event was open
	credit   *float64 // how many events the rate lets it release now; nil: no limit

	open    int
	changed bool
	due     bool   // the last step that was stored is long ago: store this one, so that the replay does not seem idle
	added   counts // counts that this step adds
}

// limits has the options of a replay.
type limits struct {
	canary, attempts int
	stopAt           float64
	asNew            bool
}

// counts has numbers of events of a replay.
type counts struct{ released, succeeded, failed, skipped int }

// remaining returns how many events the replay has neither released nor skipped yet.
func (j *replayState) remaining() int { return j.items - j.released - j.skipped }

// replayStep is one step of a replay: a transaction in which the replay's row is locked.
type replayStep struct {
	*database

	tx pgx.Tx
	j  *replayState
}

// advance records outcomes, stops a replay with too many failures, and releases events.
func (s *replayStep) advance(ctx context.Context) error {
	j := s.j
	if err := s.recordOutcomes(ctx); err != nil {
		return err
	}
	//guard:what-is-given-back-after-a-cancel-stays-dead false
	if j.phase == PhaseEnding {
		// A process may have given back events that it had claimed, because it stopped or its
		// handler was paused.
		if err := s.takeBack(ctx, s.sql.ReplayUnclaimed); err != nil {
			return err
		}
	}
	//guard:a-replay-that-fails-stops false
	if j.phase != PhaseEnding && j.failsTooOften() {
		if err := s.stopReleasing(ctx, ReplayStopped); err != nil {
			return err
		}
	}
	//guard:a-canary-has-events-that-ended 3.1 = @1+since.skipped >= @2
	if _, since := j.sinceResume(); j.phase == PhaseCanary && j.open == 0 && (since.released >= j.canary || j.remaining() == 0) {
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

// sinceResume returns how many events the replay had left when it was last resumed, and what became
// of them. If the replay was never resumed, these are all its events.
func (j *replayState) sinceResume() (items int, since counts) {
	was := j.atResume
	return j.items - was.released - was.skipped,
		counts{j.released - was.released, j.succeeded - was.succeeded, j.failed - was.failed, j.skipped - was.skipped}
}

// failsTooOften reports whether the replay must stop, because too many events have failed since the
// replay was last resumed.
func (j *replayState) failsTooOften() bool {
	items, since := j.sinceResume()
	ended := since.succeeded + since.failed
	if j.phase == PhaseCanary {
		// Compare the share of failures that results if all other events of the canary succeed. Others
		// take the place of skipped events, as long as there are some.
		//guard:what-was-left-out-proves-nothing 1 = j.canary - since.released
		unreleased := max(min(j.canary-since.released, j.remaining()), 0)
		return float64(since.failed) > j.stopAt*float64(ended+j.open+unreleased)
	}
	least := min(minEnded, items)
	if j.stopAt == 0 {
		//guard:the-first-failure-stops remove
		least = 1
	}
	//guard:a-replay-of-which-all-is-released-stops 3.1 false
	return ended >= least && float64(since.failed) > j.stopAt*float64(ended) && (j.open > 0 || j.remaining() > 0)
}

// lockReplay locks a replay for a step. For an ended replay, it also returns ErrReplayEnded.
func (s *database) lockReplay(ctx context.Context, tx pgx.Tx, id int64) (*replayStep, error) {
	j := &replayState{id: id}
	t := &replayStep{s, tx, j}
	err := tx.QueryRow(ctx, s.sql.ReplayLock, id).Scan(&j.state, &j.phase, &j.endState, &j.items, &j.released, &j.succeeded, &j.failed, &j.skipped,
		&j.atResume.succeeded, &j.atResume.failed, &j.atResume.skipped, &j.canary, &j.stopAt, &j.attempts, &j.asNew, &j.credit, &j.due)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, ErrNotFound
	case err != nil:
		return nil, fmt.Errorf("lock the replay: %w", err)
	case j.state != ReplayRunning:
		err = fmt.Errorf("%w: it is %s", ErrReplayEnded, j.state)
	}
	j.atResume.released = j.atResume.succeeded + j.atResume.failed // all had ended
	return t, err
}

// save stores the progress of the replay.
func (s *replayStep) save(ctx context.Context) error {
	j := s.j
	_, err := s.tx.Exec(ctx, s.sql.ReplaySave, j.id, j.state, j.phase, j.endState, j.added.released, j.added.succeeded, j.added.failed, j.added.skipped, j.credit)
	if err != nil {
		return fmt.Errorf("store how far it is: %w", err)
	}
	return nil
}

// recordOutcomes records which of the released events have ended. If an event died, recordOutcomes
// takes back the released events that wait behind the dead event: they would wait for as long as it
// is dead.
func (s *replayStep) recordOutcomes(ctx context.Context) error {
	j := s.j
	var good, bad, discarded int
	var chained []int64
	if err := s.tx.QueryRow(ctx, s.sql.ReplayOutcomes, j.id).Scan(&good, &bad, &discarded, &j.open, &chained); err != nil {
		return fmt.Errorf("record outcomes: %w", err)
	}
	j.added.succeeded, j.succeeded = j.added.succeeded+good, j.succeeded+good
	j.added.failed, j.failed = j.added.failed+bad, j.failed+bad
	j.countTakenBack(discarded)
	j.changed = good+bad+discarded > 0
	//guard:what-waits-behind-the-dead-is-taken-back remove
	if err := s.takeBack(ctx, s.sql.ReplayStuck); err != nil {
		return err
	}
	if len(chained) == 0 {
		return nil
	}
	if _, err := s.tx.Exec(ctx, s.sql.ReplayUnchain, j.id, chained); err != nil { // no event waits behind these events any longer
		return fmt.Errorf("remove the key from failed events: %w", err)
	}
	return nil
}

// countTakenBack counts n released events as skipped.
func (j *replayState) countTakenBack(n int) {
	j.added.released, j.released = j.added.released-n, j.released-n
	j.added.skipped, j.skipped = j.added.skipped+n, j.skipped+n
}

// takeBack takes back the released events that a statement selects: these events are dead again.
func (s *replayStep) takeBack(ctx context.Context, which string) error {
	j := s.j
	rows, _ := s.tx.Query(ctx, which, j.id) // CollectRows reports the error
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return fmt.Errorf("select events to take back: %w", err)
	}
	if len(ids) == 0 {
		return nil
	}
	if err := s.tables.Lock(ctx, s.tx, ids); err != nil {
		return err
	}
	var n int
	if err := s.tx.QueryRow(ctx, s.sql.ReplayTakeBack, j.id, ids).Scan(&n); err != nil {
		return fmt.Errorf("take back events that no process has begun: %w", err)
	}
	j.open -= n
	j.countTakenBack(n)
	j.changed = j.changed || n > 0
	return nil
}

// stopReleasing ends the release of events. Released events that no process runs are dead again,
// except outgoing events.
func (s *replayStep) stopReleasing(ctx context.Context, verdict ReplayState) error {
	j := s.j
	if err := s.takeBack(ctx, s.sql.ReplayUnclaimed); err != nil {
		return err
	}
	var n int
	if err := s.tx.QueryRow(ctx, s.sql.ReplaySkip, j.id).Scan(&n); err != nil {
		return fmt.Errorf("skip events that were not released: %w", err)
	}
	j.added.skipped, j.skipped = j.added.skipped+n, j.skipped+n
	j.phase, j.endState, j.changed = PhaseEnding, &verdict, true
	if j.open == 0 {
		j.state = verdict
	}
	return nil
}

// release releases as many events as the replay's limits allow.
func (s *replayStep) release(ctx context.Context) error {
	j := s.j
	most := min(maxOpen-j.open, j.remaining())
	if j.phase == PhaseCanary {
		_, since := j.sinceResume()
		most = min(most, j.canary-since.released) // other events take the place of skipped events
	}
	if j.credit != nil {
		//guard:a-replay-keeps-to-its-rate remove
		most = int(min(float64(most), *j.credit)) // the credit may be more than an int can hold
	}
	if most <= 0 {
		return nil
	}
	rows, _ := s.tx.Query(ctx, s.sql.ReplayNext, j.id, most) // CollectRows reports the error
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return fmt.Errorf("select the next events: %w", err)
	}
	if err := s.tables.Lock(ctx, s.tx, ids); err != nil {
		return err
	}
	var released, passed int
	if err := s.tx.QueryRow(ctx, s.sql.ReplayRelease, j.id, ids, j.attempts, j.asNew).Scan(&released, &passed); err != nil {
		return fmt.Errorf("release events: %w", err)
	}
	j.added.released, j.released, j.open = j.added.released+released, j.released+released, j.open+released
	j.added.skipped, j.skipped = j.added.skipped+passed, j.skipped+passed
	if j.credit != nil {
		*j.credit -= float64(released)
	}
	j.changed = j.changed || released+passed > 0
	return nil
}
