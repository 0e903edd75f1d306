package deadletter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// window is how many events of a replay are open at the most: so many fail at the
	// most before it stops.
	window = 500

	// judgedFrom is from how many events on the share of failures counts, without a
	// canary.
	judgedFrom = 10

	// How long whoever drives a replay rests between two steps.
	busyRest = 20 * time.Millisecond
	idleRest = 250 * time.Millisecond
)

// Drive drives a replay until it has ended, and returns it. It releases events as the
// options say, and notes what became of them. Any number may drive one replay: each
// step is a transaction of its own that locks it. Where nobody does, because a process
// ended, the replay rests where it is until somebody drives it on.
//
// progress, if not nil, is called after each step. When ctx ends, Drive returns its
// error, and the replay as it was last; the replay is not cancelled.
func (s *Store) Drive(ctx context.Context, id int64, progress func(Job)) (Job, error) {
	for {
		moved, err := s.step(ctx, id)
		if err != nil {
			return Job{}, fmt.Errorf("deadletter: drive replay %d: %w", id, s.advise(err))
		}
		job, err := s.Job(ctx, id)
		if err != nil {
			return Job{}, err
		}
		if progress != nil {
			progress(job)
		}
		if job.State != JobRunning {
			return job, nil
		}
		rest := idleRest
		if moved || job.Open() > 0 {
			rest = busyRest
		}
		timer := time.NewTimer(rest)
		select {
		case <-ctx.Done():
			timer.Stop()
			return job, fmt.Errorf("deadletter: drive replay %d: %w", id, context.Cause(ctx))
		case <-timer.C:
		}
	}
}

// Cancel ends a replay: what it has not released, and what it has and nobody has
// begun, is dead as it was. What runs runs on; [Store.Drive] waits for it. It returns
// [ErrEnded] for a replay that has ended.
func (s *Store) Cancel(ctx context.Context, id int64, by By) (Job, error) {
	if err := errors.Join(s.err, by.validate()); err != nil {
		return Job{}, err
	}
	err := s.within(ctx, func(tx pgx.Tx) error {
		j, err := s.lock(ctx, tx, id)
		if err != nil {
			return err
		}
		if err := s.close(ctx, tx, j); err != nil {
			return err
		}
		if err := s.end(ctx, tx, j, JobCancelled); err != nil {
			return err
		}
		if _, err := s.audit(ctx, tx, action{name: "cancel", by: by, events: int64(j.passed), job: id}); err != nil {
			return err
		}
		return s.note(ctx, tx, j)
	})
	if err != nil {
		return Job{}, fmt.Errorf("deadletter: cancel replay %d: %w", id, s.advise(err))
	}
	return s.Job(ctx, id)
}

// Resume takes a replay up again that was stopped or cancelled: what it left out, and
// is dead still, is part of it again. [Store.Drive] drives it on; only what ends from
// now on counts for Options.StopAt. It returns [ErrRuns] for one that has not ended.
func (s *Store) Resume(ctx context.Context, id int64, by By) (Job, error) {
	if err := errors.Join(s.err, by.validate()); err != nil {
		return Job{}, err
	}
	err := s.within(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, s.sql.serial); err != nil {
			return fmt.Errorf("wait for other replays to be made: %w", err)
		}
		j, err := s.lock(ctx, tx, id)
		switch {
		case err == nil:
			return ErrRuns
		case !errors.Is(err, ErrEnded):
			return err
		}
		var again int
		if err := tx.QueryRow(ctx, s.sql.jobAgain, id).Scan(&again); err != nil {
			return fmt.Errorf("take up what it left out: %w", err)
		}
		if again == 0 {
			return fmt.Errorf("%w: nothing that it left out is dead still, and in no other replay", ErrNothing)
		}
		if _, err := tx.Exec(ctx, s.sql.jobJudge, id); err != nil {
			return fmt.Errorf("judge it anew: %w", err)
		}
		j.state, j.phase, j.verdict, j.passed = JobRunning, PhaseRest, nil, -again
		if j.canary > 0 && j.succeeded+j.failed < j.canary {
			j.phase = PhaseCanary
		}
		if _, err := s.audit(ctx, tx, action{name: "resume", by: by, events: int64(again), job: id}); err != nil {
			return err
		}
		return s.note(ctx, tx, j)
	})
	if err != nil {
		return Job{}, fmt.Errorf("deadletter: resume replay %d: %w", id, s.advise(err))
	}
	return s.Job(ctx, id)
}

// driven is a replay that is locked, and what a step adds to it.
type driven struct {
	id                          int64
	state                       JobState
	phase                       Phase
	verdict                     *JobState
	items, canary, attempts     int
	released, succeeded, failed int // with what this step adds
	passedOver                  int
	before                      struct{ succeeded, failed int } // it was last resumed
	stopAt                      float64
	asNew                       bool
	credit                      *float64 // events that the rate lets go now; nil: no bound

	open                   int
	moved                  bool
	out, good, bad, passed int // what this step adds
}

// left is how many events were not released and are to be.
func (j *driven) left() int { return j.items - j.released - j.passedOver }

// step drives a replay by one step. moved says that something was done.
func (s *Store) step(ctx context.Context, id int64) (moved bool, err error) {
	if s.err != nil {
		return false, s.err
	}
	err = s.within(ctx, func(tx pgx.Tx) error {
		moved = false
		j, err := s.lock(ctx, tx, id)
		if errors.Is(err, ErrEnded) {
			return nil
		}
		if err == nil {
			err = s.advance(ctx, tx, j)
		}
		if err == nil {
			err = s.note(ctx, tx, j)
		}
		if err == nil {
			moved = j.moved
		}
		return err
	})
	return moved, err
}

// advance notes what ended, judges, and releases what may go.
func (s *Store) advance(ctx context.Context, tx pgx.Tx, j *driven) error {
	if err := s.close(ctx, tx, j); err != nil {
		return err
	}
	if j.phase != PhaseEnding && j.failsTooOften() {
		if err := s.end(ctx, tx, j, JobStopped); err != nil {
			return err
		}
	}
	if j.phase == PhaseCanary && j.open == 0 && j.succeeded+j.failed+j.passedOver >= min(j.canary, j.items) {
		j.phase = PhaseRest
	}
	if j.phase != PhaseEnding {
		if err := s.release(ctx, tx, j); err != nil {
			return err
		}
	}
	switch {
	case j.open > 0 || j.phase != PhaseEnding && j.left() > 0:
	case j.verdict != nil:
		j.state = *j.verdict
	default:
		j.state = JobDone
	}
	return nil
}

// failsTooOften reports whether so many events failed, since the replay was last
// resumed, that it has to stop.
func (j *driven) failsTooOften() bool {
	failed, before := j.failed-j.before.failed, j.before.succeeded+j.before.failed
	ended := j.succeeded + j.failed - before
	if j.phase == PhaseCanary {
		// The others can only succeed: what cannot be allowed any more is enough.
		return float64(failed) > j.stopAt*float64(max(ended, min(j.canary, j.items)-before))
	}
	return ended >= min(judgedFrom, j.items-before) && float64(failed) > j.stopAt*float64(ended) && j.left() > 0
}

// lock takes the turn at driving a replay. For one that has ended the error is
// ErrEnded.
func (s *Store) lock(ctx context.Context, tx pgx.Tx, id int64) (*driven, error) {
	j := &driven{id: id}
	err := tx.QueryRow(ctx, s.sql.jobLock, id).Scan(&j.state, &j.phase, &j.verdict, &j.items, &j.released, &j.succeeded, &j.failed, &j.passedOver,
		&j.before.succeeded, &j.before.failed, &j.canary, &j.stopAt, &j.attempts, &j.asNew, &j.credit)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, ErrNotFound
	case err != nil:
		return nil, fmt.Errorf("lock the replay: %w", err)
	case j.state != JobRunning:
		return j, fmt.Errorf("%w: it is %s", ErrEnded, j.state)
	}
	return j, nil
}

// note writes down how far a replay is.
func (s *Store) note(ctx context.Context, tx pgx.Tx, j *driven) error {
	_, err := tx.Exec(ctx, s.sql.jobNote, j.id, j.state, j.phase, j.verdict, j.out, j.good, j.bad, j.passed, j.credit)
	if err != nil {
		return fmt.Errorf("note how far it is: %w", err)
	}
	return nil
}

// close notes which of the released events have ended. What was released behind an
// event of its key that died is taken back: it would wait for as long as that one stays
// dead.
func (s *Store) close(ctx context.Context, tx pgx.Tx, j *driven) error {
	var good, bad, discarded int
	var chained []int64
	if err := tx.QueryRow(ctx, s.sql.jobClose, j.id).Scan(&good, &bad, &discarded, &j.open, &chained); err != nil {
		return fmt.Errorf("note what ended: %w", err)
	}
	j.good, j.succeeded = j.good+good, j.succeeded+good
	j.bad, j.failed = j.bad+bad, j.failed+bad
	j.unrelease(discarded)
	j.moved = good+bad+discarded > 0
	if err := s.withdraw(ctx, tx, j, s.sql.jobStuck); err != nil {
		return err
	}
	if len(chained) == 0 {
		return nil
	}
	if _, err := tx.Exec(ctx, s.sql.jobUnchain, j.id, chained); err != nil { // now that nothing waits behind them
		return fmt.Errorf("free failed events of their key: %w", err)
	}
	return nil
}

// unrelease counts events that were released as passed over.
func (j *driven) unrelease(n int) {
	j.out, j.released = j.out-n, j.released-n
	j.passed, j.passedOver = j.passed+n, j.passedOver+n
}

// withdraw has released events dead again that a statement names.
func (s *Store) withdraw(ctx context.Context, tx pgx.Tx, j *driven, which string) error {
	rows, _ := tx.Query(ctx, which, j.id) // CollectRows reports the error
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return fmt.Errorf("look for what is to be taken back: %w", err)
	}
	if len(ids) == 0 {
		return nil
	}
	if err := s.lockRows(ctx, tx, ids); err != nil {
		return err
	}
	var n int
	if err := tx.QueryRow(ctx, s.sql.jobWithdraw, j.id, ids).Scan(&n); err != nil {
		return fmt.Errorf("take back what nobody has begun: %w", err)
	}
	j.open -= n
	j.unrelease(n)
	j.moved = j.moved || n > 0
	return nil
}

// end has a replay release nothing any more. What nobody has begun is as it was.
func (s *Store) end(ctx context.Context, tx pgx.Tx, j *driven, verdict JobState) error {
	if err := s.withdraw(ctx, tx, j, s.sql.jobUnclaimed); err != nil {
		return err
	}
	var n int
	if err := tx.QueryRow(ctx, s.sql.jobLeave, j.id).Scan(&n); err != nil {
		return fmt.Errorf("leave out what was not released: %w", err)
	}
	j.passed, j.passedOver = j.passed+n, j.passedOver+n
	j.phase, j.verdict, j.moved = PhaseEnding, &verdict, true
	if j.open == 0 {
		j.state = verdict
	}
	return nil
}

// release sets events ready, as many as may go.
func (s *Store) release(ctx context.Context, tx pgx.Tx, j *driven) error {
	most := min(window-j.open, j.left())
	if j.phase == PhaseCanary {
		most = min(most, j.canary-j.released-j.passedOver)
	}
	if j.credit != nil {
		most = int(min(float64(most), *j.credit)) // which may be more than an int holds
	}
	if most <= 0 {
		return nil
	}
	rows, _ := tx.Query(ctx, s.sql.jobNext, j.id, most) // CollectRows reports the error
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return fmt.Errorf("look for what is next: %w", err)
	}
	if err := s.lockRows(ctx, tx, ids); err != nil {
		return err
	}
	var released, passed int
	if err := tx.QueryRow(ctx, s.sql.jobRelease, j.id, ids, j.attempts, j.asNew).Scan(&released, &passed); err != nil {
		return fmt.Errorf("release events: %w", err)
	}
	j.out, j.released, j.open = j.out+released, j.released+released, j.open+released
	j.passed, j.passedOver = j.passed+passed, j.passedOver+passed
	if j.credit != nil {
		*j.credit -= float64(released)
	}
	j.moved = j.moved || released+passed > 0
	return nil
}

// lockRows locks what has to be locked before the rows of held with these ids change:
// the leading relay's row, which comes first wherever both are taken, and the keys.
func (s *Store) lockRows(ctx context.Context, tx pgx.Tx, ids []int64) error {
	var batch pgx.Batch
	batch.Queue(s.sql.relayLock, ids)
	batch.Queue(s.sql.keysLock, ids)
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return fmt.Errorf("lock keys: %w", err)
	}
	return nil
}
