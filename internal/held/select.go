package held

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/internal/change"
	"github.com/postroom/postroom/schema"
)

// ErrNoMatch says that no event matches the filter.
var ErrNoMatch = errors.New("no event matches")

// Store changes events that are held and not dead. With a *pgxpool.Pool it is safe for concurrent use,
// with a *pgx.Conn it is not. Any number of stores, in any number of processes, may work on one
// database.
type Store struct {
	db     DB
	schema string
	tables change.Tables
	sql    statements
}

// DB is the connection that a [Store] uses: a *pgxpool.Pool or a *pgx.Conn.
type DB interface {
	Queryer
	Begin(ctx context.Context) (pgx.Tx, error)
}

// NewStore returns a store of a schema. schema.Name must have accepted the name.
func NewStore(db DB, schemaName string) *Store {
	return &Store{db: db, schema: schemaName, tables: change.New(db, schemaName), sql: load(schemaName)}
}

// Check reports whether the database has the tables that a store needs.
func (s *Store) Check(ctx context.Context) error {
	return s.tables.Explain(schema.Require(ctx, s.db, s.schema))
}

// selectable are the states that Select may find.
var selectable = []State{Scheduled, Due, Retrying, Running, Waiting}

// Select chooses events that match now and are not dead. If the filter has IDs, it chooses dead events
// too, so that the [Result] of an act can say that they are dead. If limit is 0, Select chooses all. Otherwise the parameter
// limit is the largest number of events that it chooses, and it prefers events that are due
// earlier. Select changes nothing. If no event matches, it returns [ErrNoMatch].
func (s *Store) Select(ctx context.Context, f Filter, limit int) (Set, error) {
	if err := f.Validate(); err != nil {
		return Set{}, fmt.Errorf("select: %w", err)
	}
	for _, state := range f.States {
		if !slices.Contains(selectable, state) {
			return Set{}, fmt.Errorf("select: filter: States has %q, want some of %v", state, selectable)
		}
	}
	if limit < 0 {
		return Set{}, fmt.Errorf("select: limit is %d, want 0 or more", limit)
	}
	set := Set{Filter: f, States: make(map[State]int64)}
	err := s.tables.InTx(ctx, func(tx pgx.Tx) error {
		set.IDs, set.States = nil, make(map[State]int64)
		rows, _ := tx.Query(ctx, s.sql.Choose, pgx.QueryExecModeExec, f.IDs, given(f.Handler), f.words(), given(f.Type), given(f.Key), given(f.Class),
			given(f.DueSince), given(f.DueUntil), given(limit)) // ForEachRow reports the error; the mode makes the server plan the query for these values
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
		return Set{}, fmt.Errorf("select: %w", s.tables.Explain(err))
	}
	if len(set.IDs) == 0 {
		return set, fmt.Errorf("select: %w", ErrNoMatch)
	}
	return set, nil
}

// Set has the events for an action. Get a Set from [Store.Select], or set IDs yourself.
type Set struct {
	IDs    []int64         `json:"ids"`
	Filter Filter          `json:"filter"` // the filter that selected the events, for the audit
	States map[State]int64 `json:"states"` // the number of events in each state
}

// Result says what an action did.
type Result struct {
	Events int64 `json:"events"` // the number of changed events

	// Unchanged is the number of events that the action did not change, by the state that they had.
	Unchanged map[State]int64 `json:"unchanged,omitempty"`
}

// add adds another result to r.
func (r *Result) add(more Result) {
	r.Events += more.Events
	for state, n := range more.Unchanged {
		r.leave(state, n)
	}
}

func (r *Result) leave(state State, n int64) {
	if r.Unchanged == nil {
		r.Unchanged = make(map[State]int64)
	}
	r.Unchanged[state] += n
}
