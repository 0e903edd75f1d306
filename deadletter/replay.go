package deadletter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/change"
	"github.com/postroom/postroom/internal/held"
)

// The pauses of RunReplay between two steps. After a step that changed something the pause is
// leastPause. Each further step that changes nothing doubles it, up to mostPause.
const (
	leastPause = 20 * time.Millisecond
	mostPause  = time.Second
)

// Preview counts the events that a replay would release, by handler and type. It runs no event; to
// run events, use [Store.DryRun]. Preview also returns a filter that selects these events, and no
// event that dies only later. If a person agreed to the preview, call [Store.CreateReplay] with this
// filter.
func (s *Store) Preview(ctx context.Context, f Filter, o ReplayOptions) (groups []PreviewGroup, these Filter, err error) {
	o = o.defaults()
	if err := errors.Join(s.err, f.replayable(), o.validate()); err != nil {
		return nil, Filter{}, err
	}
	var all []int64
	rows, _ := s.db.Query(ctx, s.sql.Preview, f.arguments(given(o.Limit))...) // CollectRows reports the error
	groups, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (g PreviewGroup, err error) {
		var ids []int64
		err = row.Scan(&g.Handler, &g.Type, &g.Events, &g.InReplay, &g.KeysWaiting, &g.Isolated, &g.StepsDone, &g.StepsOpen, &g.Committed, &g.TooOld, &g.HasProcess, &ids)
		all = append(all, ids...)
		return g, err
	})
	if err != nil {
		return nil, Filter{}, fmt.Errorf("deadletter: preview: %w", s.explain(err))
	}
	//guard:a-preview-is-fixed 2 = @0.1
	return groups, f.only(all), nil
}

// DryRun tries events that a replay would release. A process that has the handler runs it in a
// transaction, checks deferred constraints, and rolls back. A rollback does not undo everything: for
// instance, numbers that the handler took from a sequence stay used. DryRun does not run handlers
// that call other systems, and no event whose handler ended its transaction itself.
func (s *Store) DryRun(ctx context.Context, f Filter, o DryRunOptions) (trials []DryRun, err error) {
	o = o.defaults()
	if err := errors.Join(s.err, f.replayable(), o.validate()); err != nil {
		return nil, err
	}
	run := dryRunner{&s.database, nil}
	if trials, err = run.choose(ctx, f, o); err != nil || len(trials) == 0 {
		return trials, err
	}
	var handlers []string
	var held []int64
	byHeld := make(map[int64]*DryRun, len(trials))
	for i := range trials {
		t := &trials[i]
		//guard:a-dry-run-leaves-out-what-commits false
		if t.PreviousClass == classTransaction {
			t.Verdict = DryRunCommits
			continue
		}
		handlers, held, byHeld[t.ID] = append(handlers, t.Handler), append(held, t.ID), t
	}
	if len(held) == 0 {
		return trials, nil
	}
	rows, _ := s.db.Query(ctx, s.sql.DryRunRequest, handlers, held) // ForEachRow reports the error
	run.asked = make(map[int64]*DryRun, len(trials))
	var id, of int64
	if _, err := pgx.ForEachRow(rows, []any{&id, &of}, func() error {
		run.asked[id] = byHeld[of]
		return nil
	}); err != nil {
		return nil, fmt.Errorf("deadletter: ask for dry runs: %w", s.explain(err))
	}
	defer func() { err = errors.Join(err, run.remove(ctx)) }()
	return trials, run.wait(ctx, o.Wait)
}

// Replay replays the dead events that match now, and returns when the replay has ended: it calls
// [Store.CreateReplay] and [Store.RunReplay]. If it returns an error and a replay with an id, the
// replay goes on when RunReplay is called with this id.
func (s *Store) Replay(ctx context.Context, f Filter, o ReplayOptions, audit postroom.Audit) (Replay, error) {
	created, err := s.CreateReplay(ctx, f, o, audit)
	if err != nil {
		return created, err
	}
	ended, err := s.RunReplay(ctx, created.ID, RunOptions{})
	if err != nil {
		return created, err
	}
	return ended, nil
}

// CreateReplay creates a replay of the dead events that match now. It releases none of them:
// [Store.RunReplay] releases events. CreateReplay skips events that are in another running replay.
// So if several operators replay an event at the same time, it is replayed once. If it returns an error
// and a replay with an id, that replay was created.
func (s *Store) CreateReplay(ctx context.Context, f Filter, o ReplayOptions, audit postroom.Audit) (Replay, error) {
	o = o.defaults()
	if err := errors.Join(s.err, f.replayable(), f.changes(), o.validate(), validAudit(audit)); err != nil {
		return Replay{}, err
	}
	var id int64
	err := s.inTx(ctx, func(tx pgx.Tx) (err error) {
		id, err = s.create(ctx, tx, f, o, audit)
		return err
	})
	if err != nil {
		return Replay{}, fmt.Errorf("deadletter: replay: %w", s.explain(err))
	}
	created, err := s.GetReplay(ctx, id)
	//guard:a-created-replay-is-never-without-its-id remove
	created.ID = id // also with an error
	return created, err
}

// GetReplay returns a replay.
func (s *Store) GetReplay(ctx context.Context, id int64) (Replay, error) {
	jobs, err := s.jobs(ctx, &id, 1, nil, false)
	if err != nil {
		return Replay{}, err
	}
	if len(jobs) == 0 {
		return Replay{}, fmt.Errorf("deadletter: replay %d: %w", id, ErrNotFound)
	}
	return jobs[0], nil
}

// ReplayFilter selects replays. The zero value selects all.
type ReplayFilter struct {
	Running bool // only replays that run
}

// Replays returns a page of the replays that match f, the newest first, and where the next page
// begins. With the last page, next is empty.
func (s *Store) Replays(ctx context.Context, f ReplayFilter, p postroom.Page) (replays []Replay, next string, err error) {
	limit, errLimit := change.Limit(p)
	behind, errAfter := change.Before(p)
	if err := errors.Join(errLimit, errAfter); err != nil {
		return nil, "", fmt.Errorf("deadletter: replays: %w", err)
	}
	if replays, err = s.jobs(ctx, nil, limit+1, behind, f.Running); err != nil {
		return nil, "", err
	}
	replays, next = change.Next(replays, limit, func(r Replay) int64 { return r.ID })
	return replays, next, nil
}

// RunReplay runs a replay until it has ended, and returns it. It releases events as the options
// say, and records their outcomes. Several processes may run one replay: each step is a transaction
// that locks the replay. If no process runs the replay any longer, it makes no progress until
// RunReplay is called again.
//
// When ctx ends, RunReplay returns an error, and does not cancel the replay. If ctx ends in the pause
// between two steps, RunReplay also returns the last state of the replay.
func (s *Store) RunReplay(ctx context.Context, id int64, o RunOptions) (Replay, error) {
	for rest := leastPause; ; rest = min(2*rest, mostPause) {
		moved, err := s.step(ctx, id)
		if err != nil {
			return Replay{}, fmt.Errorf("deadletter: run replay %d: %w", id, s.explain(err))
		}
		job, err := s.GetReplay(ctx, id)
		if err != nil {
			return Replay{}, err
		}
		if o.Progress != nil {
			o.Progress(job)
		}
		if job.State != ReplayRunning {
			return job, nil
		}
		if moved {
			rest = leastPause
		}
		if !s.pause(ctx, rest) {
			return job, fmt.Errorf("deadletter: run replay %d: %w", id, context.Cause(ctx))
		}
	}
}

// sleep waits for the time d and returns true. If ctx ends, it returns false at once.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// CancelReplay cancels a replay. Events that the replay has not released stay dead. Released events
// that no process has begun are dead again. Events that are running go on, and [Store.RunReplay]
// waits for them. If a process gives back such an event, or if the process ends and its claim runs
// out, RunReplay makes the event dead again. CancelReplay does not take back released outgoing
// events, because the relay may be publishing them. CancelReplay returns [ErrReplayEnded] if the
// replay has ended.
func (s *Store) CancelReplay(ctx context.Context, id int64, audit postroom.Audit) (Replay, error) {
	if err := errors.Join(s.err, validAudit(audit)); err != nil {
		return Replay{}, err
	}
	err := s.inTx(ctx, func(tx pgx.Tx) error {
		t, err := s.lockReplay(ctx, tx, id)
		if err != nil {
			return err
		}
		if err := t.recordOutcomes(ctx); err != nil {
			return err
		}
		if err := t.stopReleasing(ctx, ReplayCancelled); err != nil {
			return err
		}
		if _, err := s.tables.Audit(ctx, tx, change.Action{Name: "cancel", By: audit, Events: int64(t.j.added.skipped), Replay: id}); err != nil {
			return err
		}
		return t.save(ctx)
	})
	if err != nil {
		return Replay{}, fmt.Errorf("deadletter: cancel replay %d: %w", id, s.explain(err))
	}
	return s.GetReplay(ctx, id)
}

// ResumeReplay resumes a replay that was stopped or cancelled. Skipped events that are still dead
// are part of the replay again. To run the replay, call [Store.RunReplay]. It begins with another
// canary, if the options have one. When it compares the share of failures with StopAt, it counts only
// events that end after the call of ResumeReplay. If the replay has not ended, ResumeReplay only
// records in the audit who goes on with it, and returns [ErrReplayRunning].
func (s *Store) ResumeReplay(ctx context.Context, id int64, audit postroom.Audit) (Replay, error) {
	if err := errors.Join(s.err, validAudit(audit)); err != nil {
		return Replay{}, err
	}
	running := false
	err := s.inTx(ctx, func(tx pgx.Tx) error {
		t, err := s.lockReplay(ctx, tx, id)
		if running = err == nil; running {
			//guard:who-goes-on-with-a-replay-is-recorded do return nil
			return t.resumed(ctx, audit, t.j.remaining())
		}
		if !errors.Is(err, ErrReplayEnded) {
			return err
		}
		if _, err := tx.Exec(ctx, s.sql.ReplaySerialize); err != nil {
			return fmt.Errorf("wait for another transaction that chooses events for a replay: %w", err)
		}
		var again int
		if err := tx.QueryRow(ctx, s.sql.ReplayResume, id).Scan(&again); err != nil {
			return fmt.Errorf("take back the events that it skipped: %w", err)
		}
		if again == 0 {
			return fmt.Errorf("%w: all events that it skipped are no longer dead, or are in another running replay", ErrNoMatch)
		}
		if _, err := tx.Exec(ctx, s.sql.ReplayRestartCounts, id, again); err != nil {
			return fmt.Errorf("restart its counts of failures: %w", err)
		}
		j := t.j
		j.state, j.phase, j.endState, j.added.skipped = ReplayRunning, PhaseRest, nil, -again
		//guard:a-resumed-replay-has-a-canary false
		if j.canary > 0 {
			j.phase = PhaseCanary
		}
		if err := t.resumed(ctx, audit, again); err != nil {
			return err
		}
		return t.save(ctx)
	})
	if running && err == nil {
		err = ErrReplayRunning
	}
	if err != nil {
		return Replay{}, fmt.Errorf("deadletter: resume replay %d: %w", id, s.explain(err))
	}
	return s.GetReplay(ctx, id)
}

// resumed records who goes on with the replay.
func (s *replayStep) resumed(ctx context.Context, audit postroom.Audit, events int) error {
	_, err := s.tables.Audit(ctx, s.tx, change.Action{Name: "resume", By: audit, Events: int64(events), Replay: s.j.id})
	return err
}

func (s *Store) create(ctx context.Context, tx pgx.Tx, f Filter, o ReplayOptions, audit postroom.Audit) (id int64, err error) {
	if _, err := tx.Exec(ctx, s.sql.ReplaySerialize); err != nil {
		return 0, fmt.Errorf("wait for another transaction that chooses events for a replay: %w", err)
	}
	filter, err := jsonText(f)
	if err != nil {
		return 0, err
	}
	var rate *float64
	if o.Rate > 0 {
		rate = &o.Rate
	}
	err = tx.QueryRow(ctx, s.sql.ReplayCreate, audit.Actor, audit.Reason, filter, o.Attempts, rate, o.Canary, *o.StopAt, o.AsNew).Scan(&id)
	if err != nil {
		return 0, fmt.Errorf("create the replay: %w", err)
	}
	var items, old int64
	if err := tx.QueryRow(ctx, s.sql.ReplayItems, f.arguments(id, given(o.Limit))...).Scan(&items, &old); err != nil {
		return 0, fmt.Errorf("select its events: %w", err)
	}
	switch {
	case items == 0:
		return 0, fmt.Errorf("%w, or all that match are in another running replay", ErrNoMatch)
	case old > 0 && !o.AsNew:
		return 0, fmt.Errorf("%w: %d outgoing events; replay them as new only if their consumers have not handled them already", ErrTooOld, old)
	}
	_, err = s.tables.Audit(ctx, tx, change.Action{Name: "replay", By: audit, Events: items, Replay: id, Details: struct {
		Filter  Filter        `json:"filter"`
		Options ReplayOptions `json:"options"`
	}{f.audited(), o}})
	return id, err
}

func (s *Store) jobs(ctx context.Context, id *int64, limit int, behind *int64, running bool) ([]Replay, error) {
	if s.err != nil {
		return nil, s.err
	}
	rows, _ := s.db.Query(ctx, s.sql.Replays, id, limit, behind, running) // CollectRows reports the error
	jobs, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (j Replay, err error) {
		var filter []byte
		var rate *float64
		var rests, stopAt float64
		err = row.Scan(&j.ID, &j.CreatedAt, &j.Actor, &j.Reason, &filter, &j.Options.Attempts, &rate, &j.Options.Canary, &stopAt,
			&j.Options.AsNew, &j.State, &j.Phase, &j.Events, &j.Released, &j.Succeeded, &j.Failed, &j.Skipped, held.Time(&j.LastStepAt), held.Time(&j.EndedAt), &rests)
		if err == nil {
			err = json.Unmarshal(filter, &j.Filter)
		}
		j.Options.Rate, j.Options.StopAt, j.Idle = value(rate), &stopAt, time.Duration(rests*float64(time.Second))
		return j, err
	})
	if err != nil {
		return nil, fmt.Errorf("deadletter: read replays: %w", s.explain(err))
	}
	return jobs, nil
}

// step advances a replay by one step, and reports whether the step changed anything.
func (s *Store) step(ctx context.Context, id int64) (moved bool, err error) {
	if s.err != nil {
		return false, s.err
	}
	err = s.inTx(ctx, func(tx pgx.Tx) error {
		moved = false
		t, err := s.lockReplay(ctx, tx, id)
		if errors.Is(err, ErrReplayEnded) {
			return nil
		}
		if err != nil {
			return err
		}
		state, phase := t.j.state, t.j.phase
		if err := t.advance(ctx); err != nil {
			return err
		}
		moved = t.j.changed || t.j.state != state || t.j.phase != phase
		//guard:a-step-without-a-change-is-not-stored 2 true
		if moved || t.j.due {
			return t.save(ctx)
		}
		return nil
	})
	return moved, err
}
