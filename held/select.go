package held

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// selectable are the states that Filter.States may have.
var selectable = []State{Scheduled, Due, Retrying, Running, Waiting}

// Select chooses events that match now. If limit is 0, Select chooses all. Otherwise the parameter
// limit is the largest number of events that it chooses, and it prefers events that are due
// earlier. Select changes nothing. If no event matches, it returns [ErrNoMatch].
func (s *Store) Select(ctx context.Context, f Filter, limit int) (Set, error) {
	if err := errors.Join(s.err, f.validate()); err != nil {
		return Set{}, err
	}
	if limit < 0 {
		return Set{}, fmt.Errorf("held: select: limit is %d, want 0 or more", limit)
	}
	set := Set{Filter: f, States: make(map[State]int64)}
	err := s.tables.InTx(ctx, func(tx pgx.Tx) error {
		set.IDs, set.States = nil, make(map[State]int64)
		rows, _ := tx.Query(ctx, s.sql.Choose, f.arguments(limit)...) // ForEachRow reports the error
		var id int64
		var state State
		_, err := pgx.ForEachRow(rows, []any{&id, &state}, func() error {
			set.IDs = append(set.IDs, id)
			set.States[state]++
			return nil
		})
		return err
	})
	if err != nil {
		return Set{}, fmt.Errorf("held: select: %w", s.tables.Explain(err))
	}
	if len(set.IDs) == 0 {
		return set, fmt.Errorf("held: select: %w", ErrNoMatch)
	}
	return set, nil
}

func (f Filter) validate() error {
	for _, state := range f.States {
		if !slices.Contains(selectable, state) {
			return fmt.Errorf("held: filter: States has %q, want some of %v", state, selectable)
		}
	}
	if err := f.selection().Validate(); err != nil {
		return fmt.Errorf("held: %w", err)
	}
	return nil
}

// arguments returns the parameters of choose.sql. pgx.QueryExecModeExec makes the server plan the
// query for these values.
func (f Filter) arguments(limit int) []any {
	var states []string
	for _, state := range f.States {
		states = append(states, string(state))
	}
	most := &limit
	if limit == 0 {
		most = nil
	}
	return []any{
		pgx.QueryExecModeExec, f.IDs, given(f.Handler), states, given(f.Type), given(f.Key), given(f.Class), timeOrNil(f.DueSince), timeOrNil(f.DueUntil), most,
	}
}

// given returns a pointer to s, or nil, which is NULL, if s is empty.
func given(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
