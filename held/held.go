// Package held lets operators act on events that are held and not dead: events that are
// scheduled, that wait for their next attempt, or that wait behind an earlier event of their
// key. Operators can make such events due now or at another time, or cancel them. Package
// deadletter is for dead events. Package inspect lists all held events.
//
// An action has two steps. First, [Store.Select] chooses the events. Then [Store.Retry],
// [Store.Reschedule] or [Store.Cancel] acts on exactly these events. An action does not change an
// event that runs or is being published, and the [Result] counts such events. If two transactions
// want to change the same event, the first to lock its row changes it. Each transaction that
// changes events also writes a row of the audit: who did what, why, and to how many events.
package held

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postroom/postroom/internal/change"
	"github.com/postroom/postroom/internal/held"
	"github.com/postroom/postroom/schema"
)

// ErrNoMatch says that no event matches the filter.
var ErrNoMatch = errors.New("no event matches")

// Outgoing is the name that outgoing events have in the table held instead of a handler's name.
// Outgoing events are on their way to the broker.
const Outgoing = held.Outgoing

// DB is the connection that a [Store] uses: a *pgxpool.Pool or a *pgx.Conn.
type DB interface {
	Begin(ctx context.Context) (pgx.Tx, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// Config tunes a [Store]. The zero value is ready to use.
type Config struct {
	// Schema is the database schema that holds Postroom's tables.
	//
	// Defaults to "postroom".
	Schema string
}

// Store acts on held events. With a *pgxpool.Pool it is safe for concurrent use, with a
// *pgx.Conn it is not. Any number of stores, in any number of processes, may work on one
// database.
type Store struct {
	db     DB
	schema string
	err    error // the fault of the Config, or nil
	tables change.Tables
	sql    statements
}

// New returns a store. It does no I/O and returns no error: if the Config is wrong,
// [Store.Check] and all other methods return the error.
func New(db DB, cfg Config) *Store {
	name, err := schema.Name(cfg.Schema)
	if err != nil {
		return &Store{db: db, err: fmt.Errorf("held: config: Schema: %w", err)}
	}
	return &Store{db: db, schema: name, tables: change.New(db, name), sql: load(name)}
}

// Check reports whether the database has the tables that a store needs.
func (s *Store) Check(ctx context.Context) error {
	if s.err != nil {
		return s.err
	}
	return s.tables.Explain(schema.Require(ctx, s.db, s.schema))
}

// Audit says who changes something, and why. Each action stores its Audit in the table audit.
type Audit struct {
	Actor  string // required, 255 bytes at most
	Reason string // 4,096 bytes at most; Cancel needs a reason
}

// State is the state of a held event.
type State string

// The states.
const (
	Scheduled State = "scheduled" // it will be published later
	Due       State = "due"       // its time has come, and no process has claimed it
	Retrying  State = "retrying"  // an attempt failed, and the next attempt is later
	Running   State = "running"   // a process has claimed it, or the relay may be publishing it
	Waiting   State = "waiting"   // it waits behind an earlier event of its key
	Dead      State = "dead"      // an operator has to decide
	Gone      State = "gone"      // it is no longer held
)

// Filter selects held events that are not dead. An event matches if it has every property
// that is set in the Filter. The zero value selects all events that are held and not
// dead.
type Filter struct {
	// IDs are the ids that the events have in the table held. If IDs is set, dead events match
	// too, so that the [Result] can say that they are dead.
	IDs []int64 `json:"ids,omitempty"`

	Handler string  `json:"handler,omitempty"` // [Outgoing] for events on their way to the broker
	States  []State `json:"states,omitempty"`  // the event has one of these states
	Type    string  `json:"type,omitempty"`
	Key     string  `json:"key,omitempty"`   // the key that its producer gave it
	Class   string  `json:"class,omitempty"` // the class of its last failure

	// DueSince and DueUntil select events that are due at DueSince or later, and before
	// DueUntil. Events that wait behind an earlier event of their key have no due time
	// and do not match.
	DueSince time.Time `json:"due_since,omitzero"`
	DueUntil time.Time `json:"due_until,omitzero"`
}

// IsZero reports whether the filter selects all events.
func (f Filter) IsZero() bool {
	return f.IDs == nil && f.Handler == "" && f.States == nil && f.Type == "" && f.Key == "" && f.Class == "" && f.DueSince.IsZero() && f.DueUntil.IsZero()
}

// selection converts the filter to the type of internal/held.
func (f Filter) selection() held.Selection {
	s := held.Selection{IDs: f.IDs, Handler: f.Handler, Type: f.Type, Key: f.Key, Class: f.Class, DueSince: f.DueSince, DueUntil: f.DueUntil}
	for _, state := range f.States {
		s.States = append(s.States, held.State(state))
	}
	return s
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
