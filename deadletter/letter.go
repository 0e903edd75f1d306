package deadletter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Letter is a held event, as a list has it.
type Letter struct {
	ID          int64      `json:"id"`
	Handler     string     `json:"handler"`
	State       State      `json:"state"`
	DeadAt      *time.Time `json:"dead_at,omitempty"`
	DiscardedAt *time.Time `json:"discarded_at,omitempty"`
	HeldAt      time.Time  `json:"held_at"`
	Attempts    int        `json:"attempts"`
	Class       string     `json:"class,omitempty"` // of the last failure
	Cause       string     `json:"cause,omitempty"` // the same for failures that have one cause
	Error       string     `json:"error,omitempty"` // the last failure's text
	Revision    int        `json:"revision"`        // how often it was edited
	Job         int64      `json:"job,omitempty"`   // the last replay that it was part of
	LoggedAt    time.Time  `json:"logged_at"`
	Source      string     `json:"source"`
	EventID     string     `json:"event_id"`
	Type        string     `json:"type"`
	Subject     string     `json:"subject"`
	Key         string     `json:"key,omitempty"`
	Size        int        `json:"size"` // of the body, in bytes
}

// State is where a held event stands.
type State string

// States.
const (
	Dead      State = "dead"      // its attempts are spent: an operator decides
	Retrying  State = "retrying"  // it is due at a time
	Running   State = "running"   // a process has claimed it
	Waiting   State = "waiting"   // an earlier event of its key is held
	Scheduled State = "scheduled" // it is to be published at a time
	Discarded State = "discarded" // an operator discarded it
)

// scan reads the columns that all lists begin with.
func (l *Letter) scan(row pgx.CollectableRow, more ...any) error {
	var class, cause, text, key *string
	var job *int64
	err := row.Scan(append([]any{
		&l.ID, &l.Handler, &l.State, &l.DeadAt, &l.DiscardedAt, &l.HeldAt, &l.Attempts, &class, &cause, &text, &l.Revision, &job,
		&l.LoggedAt, &l.Source, &l.EventID, &l.Type, &l.Subject, &key, &l.Size,
	}, more...)...)
	l.Class, l.Cause, l.Error, l.Key, l.Job = value(class), value(cause), value(text), value(key), value(job)
	return err
}

func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// Page says which part of a list is wanted. The zero value is its beginning.
type Page struct {
	// Limit is how many events the page has at the most, up to 1,000.
	//
	// Defaults to 50.
	Limit int

	// After is where the page before ended.
	After Cursor
}

// Cursor is a place in a list. What comes and goes meanwhile moves nothing: no event is
// passed over, and none comes twice.
type Cursor struct {
	At time.Time `json:"at"`
	ID int64     `json:"id"`
}

const (
	defaultLimit = 50
	maxLimit     = 1000
)

// List returns the events that match, the last to die first, and where the next page
// begins; the cursor is zero where there is none.
func (s *Store) List(ctx context.Context, f Filter, p Page) ([]Letter, Cursor, error) {
	if err := errors.Join(s.err, f.validate()); err != nil {
		return nil, Cursor{}, err
	}
	limit := p.Limit
	if limit == 0 {
		limit = defaultLimit
	}
	if limit < 0 || limit > maxLimit {
		return nil, Cursor{}, fmt.Errorf("deadletter: page: Limit is %d, want 1 to %d", limit, maxLimit)
	}
	sql := s.sql.list
	if f.Discarded {
		sql = s.sql.listDiscarded
	}
	rows, _ := s.db.Query(ctx, sql, f.arguments(moment(p.After.At), p.After.ID, limit+1)...) // CollectRows reports the error
	letters, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (l Letter, err error) {
		err = l.scan(row)
		return l, err
	})
	if err != nil {
		return nil, Cursor{}, fmt.Errorf("deadletter: list: %w", s.advise(err))
	}
	if len(letters) <= limit {
		return letters, Cursor{}, nil
	}
	letters = letters[:limit]
	return letters, letters[limit-1].cursor(), nil
}

func (l *Letter) cursor() Cursor {
	at := value(l.DeadAt)
	if l.DiscardedAt != nil {
		at = *l.DiscardedAt
	}
	return Cursor{At: at, ID: l.ID}
}

// Count returns how many events match.
func (s *Store) Count(ctx context.Context, f Filter) (n int64, err error) {
	if err := errors.Join(s.err, f.validate()); err != nil {
		return 0, err
	}
	sql := s.sql.count
	if f.Discarded {
		sql = s.sql.countDiscarded
	}
	if err := s.db.QueryRow(ctx, sql, f.arguments()...).Scan(&n); err != nil {
		return 0, fmt.Errorf("deadletter: count: %w", s.advise(err))
	}
	return n, nil
}

// Group is dead events that one cause killed.
type Group struct {
	Cause   string    `json:"cause"`
	Handler string    `json:"handler"`
	Class   string    `json:"class"`
	Events  int64     `json:"events"`
	First   time.Time `json:"first"` // when the first of them died
	Last    time.Time `json:"last"`
	Example int64     `json:"example"` // the id of one of them
	Types   []string  `json:"types"`
	Keys    int64     `json:"keys"`
	Error   string    `json:"error"` // of the example
}

// mostGroups is how many groups are told.
const mostGroups = 200

// Groups returns what killed the dead events that match, the largest groups first, 200
// of them at the most, and how many groups there are.
func (s *Store) Groups(ctx context.Context, f Filter) (groups []Group, all int, err error) {
	if err := errors.Join(s.err, f.validate()); err != nil {
		return nil, 0, err
	}
	if f.Discarded {
		return nil, 0, errors.New("deadletter: groups are of dead events, not of discarded ones")
	}
	rows, _ := s.db.Query(ctx, s.sql.groups, f.arguments(mostGroups)...) // CollectRows reports the error
	groups, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (g Group, err error) {
		var cause, text *string
		err = row.Scan(&cause, &g.Handler, &g.Class, &g.Events, &g.First, &g.Last, &g.Example, &g.Types, &g.Keys, &text, &all)
		g.Cause, g.Error = value(cause), value(text)
		return g, err
	})
	if err != nil {
		return nil, 0, fmt.Errorf("deadletter: groups: %w", s.advise(err))
	}
	return groups, all, nil
}
