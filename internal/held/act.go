package held

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/change"
)

// Retry takes events that would be due later, and makes them due now: handlers run their events at
// once, and the relay publishes outgoing events at once. A transaction of Retry changes up to 1,000
// events. If the function progress is not nil, Retry calls it after each transaction that changed
// events, with the number of all events changed so far.
//
// Retry does not change events that are due, running or dead, or that wait behind an earlier
// event of their key.
func (s *Store) Retry(ctx context.Context, set Set, audit postroom.Audit, progress func(n int64)) (Result, error) {
	a := action{Store: s, name: "retry", set: set, by: audit, progress: progress, states: []State{Scheduled, Retrying}, moves: true}
	r, err := a.run(ctx)
	if err != nil {
		return r, fmt.Errorf("retry: %w", s.tables.Explain(err))
	}
	return r, nil
}

// Reschedule makes events due at the given time, by the database's clock. If that time has passed,
// the events are due now. Reschedule also changes events that wait for a handler and are due
// already. It calls the function progress as [Store.Retry] does.
//
// Reschedule does not change events that are running or dead, or that wait behind an earlier event
// of their key. Events that wait behind a rescheduled event wait at least until the new time of the
// rescheduled event.
func (s *Store) Reschedule(ctx context.Context, set Set, at time.Time, audit postroom.Audit, progress func(n int64)) (Result, error) {
	if y := at.UTC().Year(); at.IsZero() || y < 1 || y > 9999 {
		return Result{}, errors.New("reschedule: the time has to be in the years up to 9999")
	}
	a := action{
		Store: s, name: "reschedule", set: set, by: audit, progress: progress, states: []State{Scheduled, Retrying, Due},
		moves: true, at: &at, details: map[string]any{"at": at.UTC()},
	}
	r, err := a.run(ctx)
	if err != nil {
		return r, fmt.Errorf("reschedule: %w", s.tables.Explain(err))
	}
	return r, nil
}

// RescheduleIn is [Store.Reschedule] with a time that is the given duration from now, by
// the database's clock.
func (s *Store) RescheduleIn(ctx context.Context, set Set, in time.Duration, audit postroom.Audit, progress func(n int64)) (Result, error) {
	var now time.Time
	if err := s.db.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&now); err != nil {
		return Result{}, fmt.Errorf("reschedule: ask for the time: %w", err)
	}
	return s.Reschedule(ctx, set, now.Add(in), audit, progress)
}

// Cancel gives up events that are scheduled, retrying, due or waiting: it moves them to the
// archive, where discarded events are too. Later events of their keys go on. The reason is
// required. Cancel calls the function progress as [Store.Retry] does.
//
// A cancelled event of a handler does not run, even if the broker delivers it again. A cancelled
// outgoing event is not published. Package deadletter lists cancelled events among the discarded
// events, and can reopen them.
//
// Cancel does not change events that are running or dead. It does not change outgoing events that
// wait behind an earlier event of their key. It does not change outgoing events that are due
// either, because the relay may be publishing them.
func (s *Store) Cancel(ctx context.Context, set Set, audit postroom.Audit, progress func(n int64)) (Result, error) {
	if audit.Reason == "" {
		return Result{}, errors.New("cancel: the reason is empty: say why")
	}
	a := action{Store: s, name: "cancel", set: set, by: audit, progress: progress, states: []State{Scheduled, Retrying, Due, Waiting}}
	r, err := a.run(ctx)
	if err != nil {
		return r, fmt.Errorf("cancel: %w", s.tables.Explain(err))
	}
	return r, nil
}

// An action is one action on a set of events, such as a retry.
type action struct {
	*Store

	name     string
	set      Set
	by       postroom.Audit
	progress func(n int64) // may be nil
	states   []State       // the states in which the action changes an event
	details  map[string]any

	moves bool       // the action gives events another time
	at    *time.Time // the new time; nil: now
}

// run acts on the events of the set, on at most change.BulkSize of them in each transaction.
func (a *action) run(ctx context.Context) (all Result, err error) {
	if err := change.Valid(a.by); err != nil {
		return Result{}, err
	}
	err = a.tables.Portions(ctx, a.set.IDs, func(ids []int64) error {
		var some Result
		err := a.tables.InTx(ctx, func(tx pgx.Tx) (err error) {
			some, err = a.step(ctx, tx, ids)
			return err
		})
		if err != nil {
			return err
		}
		all.add(some)
		if a.progress != nil && some.Events > 0 {
			a.progress(all.Events)
		}
		return nil
	})
	return all, err
}

// step acts on the events with the given ids, in one transaction.
func (a *action) step(ctx context.Context, tx pgx.Tx, ids []int64) (r Result, err error) {
	free, err := a.lock(ctx, tx, ids, &r)
	if err != nil || len(free) == 0 {
		return r, err
	}
	r.Events = int64(len(free))
	audit, err := a.audit(ctx, tx, free)
	if err != nil {
		return r, err
	}
	if a.moves {
		if _, err := tx.Exec(ctx, a.sql.Move, free, a.at); err != nil {
			return r, fmt.Errorf("set the time: %w", err)
		}
		return r, nil
	}
	return r, a.archive(ctx, tx, free, audit)
}

// lock locks the events that the action changes, and returns their ids. It counts the other events
// in the result r.
func (a *action) lock(ctx context.Context, tx pgx.Tx, ids []int64, r *Result) (free []int64, err error) {
	rows, _ := tx.Query(ctx, a.sql.LockOutgoing, ids) // CollectRows reports the error
	busy, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, fmt.Errorf("lock outgoing events: %w", err)
	}
	if len(busy) > 0 {
		r.leave(Running, int64(len(busy)))
		ids = slices.DeleteFunc(slices.Clone(ids), func(id int64) bool { return slices.Contains(busy, id) })
	}
	if !a.moves { // lock the keys too, because the action lets later events of these keys go on
		if err := a.tables.Lock(ctx, tx, ids); err != nil {
			return nil, err
		}
	}
	rows, _ = tx.Query(ctx, a.sql.Lock, ids) // ForEachRow reports the error
	var id int64
	var state State
	var outgoing bool
	_, err = pgx.ForEachRow(rows, []any{&id, &state, &outgoing}, func() error {
		if !slices.Contains(a.states, state) || outgoing && state == Waiting {
			r.leave(state, 1)
			return nil
		}
		free = append(free, id)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("lock events: %w", err)
	}
	return free, nil
}

// archive moves locked events to the archive, and makes the next events of their keys
// due.
func (a *action) archive(ctx context.Context, tx pgx.Tx, ids []int64, audit int64) error {
	rows, _ := tx.Query(ctx, a.sql.Archive, ids, audit) // ForEachRow reports the error
	var handlers, keys []string
	var handler string
	var key *string
	_, err := pgx.ForEachRow(rows, []any{&handler, &key}, func() error {
		if key != nil {
			handlers, keys = append(handlers, handler), append(keys, *key)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("move to the archive: %w", err)
	}
	return a.tables.Wake(ctx, tx, handlers, keys)
}

// audit writes a row of the table audit. If there is only one event, the row names it.
func (a *action) audit(ctx context.Context, tx pgx.Tx, ids []int64) (int64, error) {
	details := map[string]any{"filter": a.set.Filter}
	for name, v := range a.details {
		details[name] = v
	}
	row := change.Action{Name: a.name, By: a.by, Events: int64(len(ids)), IDs: ids, Details: details}
	if len(ids) == 1 {
		if err := tx.QueryRow(ctx, a.sql.Name, ids[0]).Scan(&row.Handler, &row.Source, &row.Event); err != nil {
			return 0, fmt.Errorf("read the event: %w", err)
		}
	}
	return a.tables.Audit(ctx, tx, row)
}
