// Package sagas reads data about sagas, for packages other than package saga: which step an event
// is part of, which instances are stuck, and how many instances there are.
package sagas

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postroom/postroom/internal/sqlfile"
	"github.com/postroom/postroom/internal/text"
	"github.com/postroom/postroom/schema"
)

//go:embed sql/*.sql
var files embed.FS

// statements are the statements of this package. Each has a file in sql.
type statements struct{ StepOf, Stuck, Counts string }

var written = sqlfile.MustRead[statements](files)

// The kinds of events of a step.
const (
	Command  = "command"
	Reply    = "reply" // the reply, or another event that the command caused
	Deadline = "deadline"
	Decision = "decision" // an operator's decision
)

// Step says how an event belongs to a step of a saga, for instance as its command or its reply.
type Step struct {
	Saga, Key, Step string
	Direction       string    // do or undo
	Kind            string    // Command, Reply, Deadline or Decision
	Outcome         string    // what the saga recorded: done, failed, undone, deadline, or the decision; empty if the saga recorded nothing
	At              time.Time // for a Command, when the saga wrote it; otherwise when the saga recorded the event, or zero if it has not recorded the event
}

// String describes how the event belongs to the step.
func (s Step) String() string {
	name := fmt.Sprintf("step %s of saga %s, key %s", s.Step, s.Saga, s.Key)
	switch {
	case s.Kind == Command:
		return fmt.Sprintf("command to %s %s", s.Direction, name)
	case s.Kind == Deadline && s.Outcome == "":
		return fmt.Sprintf("deadline of %s; it has not come, or the step had ended", name)
	case s.Kind == Deadline:
		return "deadline, after which the saga gave up " + name
	case s.Kind == Decision && s.Outcome == "":
		return fmt.Sprintf("decision on %s; it has not been carried out", name)
	case s.Kind == Decision:
		return fmt.Sprintf("decision %s, carried out on %s", s.Outcome, name)
	case s.Outcome == "":
		return fmt.Sprintf("caused by the command to %s %s; it has not counted as the reply", s.Direction, name)
	}
	return fmt.Sprintf("counted as %s for %s", s.Outcome, name)
}

// StepsOf returns the steps that the events with the given id are part of. The parameter types has
// the types of these events, and causes has the ids of the events that caused them. The parameter
// name is the schema's name, which schema.Name accepted.
func StepsOf(ctx context.Context, tx pgx.Tx, name, id string, types, causes []string) ([]Step, error) {
	if causes == nil {
		causes = []string{} // an empty array, and not NULL
	}
	rows, _ := tx.Query(ctx, schema.In(name, written.StepOf), id, causes) // CollectRows reports the error
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (s Step, err error) {
		var command bool
		var at *time.Time
		err = row.Scan(&s.Saga, &s.Key, &s.Step, &s.Direction, &command, &s.Outcome, &at)
		if at != nil {
			s.At = at.UTC()
		}
		switch s.Kind = Reply; {
		case command:
			s.Kind = Command
		case slices.Contains(types, s.Saga+".deadline"):
			s.Kind = Deadline
		case slices.Contains(types, s.Saga+".decision"):
			s.Kind = Decision
		}
		return s, err
	})
	if err != nil {
		return nil, fmt.Errorf("read steps of sagas: %w", err)
	}
	return all, nil
}

// Stuck says which instances of a saga are stuck.
type Stuck struct {
	Saga      string
	Instances int64
	More      bool // StuckOf has not checked all instances, so there may be more

	// These fields describe the instance that has waited for the longest time.
	Key, Step string
	Since     time.Time
	Seconds   float64 // how long the instance has waited
}

// Finding says what is wrong, and what to do next.
func (s Stuck) Finding() (problem, remedy string) {
	switch {
	case s.Instances == 1 && !s.More:
		problem = fmt.Sprintf("1 instance of saga %s is stuck: %s", s.Saga, s.Key)
	case s.More:
		problem = fmt.Sprintf("%d instances or more of saga %s are stuck: the first, %s,", s.Instances, s.Saga, s.Key)
	default:
		problem = fmt.Sprintf("%d instances of saga %s are stuck: the first, %s,", s.Instances, s.Saga, s.Key)
	}
	problem += fmt.Sprintf(" has waited for step %s for %s", s.Step, time.Duration(s.Seconds)*time.Second)
	return problem, fmt.Sprintf("'postroom saga list --saga %s --stuck' lists them; 'postroom saga show' prints the command for which an instance waits", text.Word(s.Saga))
}

// StuckOf returns the sagas with stuck instances. The parameter name is the schema's name, which
// schema.Name accepted.
func StuckOf(ctx context.Context, tx pgx.Tx, name string) ([]Stuck, error) {
	rows, _ := tx.Query(ctx, schema.In(name, written.Stuck)) // CollectRows reports the error
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Stuck])
	if err != nil {
		return nil, fmt.Errorf("read stuck instances of sagas: %w", err)
	}
	return all, nil
}

// Count says how many instances of a saga have not ended.
type Count struct {
	Saga                         string
	Running, Compensating, Stuck int64
	OldestSeconds                float64 // the longest time that an instance has waited for its step
}

// Querier is a pool, a connection or a transaction.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// CountsOf returns the counts of all sagas. The parameter name is the schema's name, which
// schema.Name accepted. If the role may not read the tables of sagas, the result hidden is true.
func CountsOf(ctx context.Context, db Querier, name string) (all []Count, hidden bool, err error) {
	// QueryExecModeExec keeps no plan: a plan that was made when there were few instances would
	// later read all of them.
	rows, _ := db.Query(ctx, schema.In(name, written.Counts), pgx.QueryExecModeExec) // CollectRows reports the error
	all, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Count])
	var refused *pgconn.PgError
	switch {
	case errors.As(err, &refused) && refused.Code == "42501":
		return nil, true, nil
	case err != nil:
		return nil, false, fmt.Errorf("count instances of sagas: %w", err)
	}
	return all, false, nil
}
