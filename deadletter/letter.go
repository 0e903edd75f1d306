package deadletter

import (
	"time"

	"github.com/postroom/postroom/internal/held"
)

// Letter is a held event, as a list has it.
//
// Wide because it is a line of JSON, as programs read it.
type Letter struct {
	ID          int64      `json:"id"`
	Handler     string     `json:"handler"`
	State       State      `json:"state"`
	DeadAt      *time.Time `json:"dead_at,omitempty"`
	DiscardedAt *time.Time `json:"discarded_at,omitempty"`
	HeldAt      time.Time  `json:"held_at"`
	Attempts    int        `json:"attempts"`
	Class       string     `json:"class,omitempty"`     // of the last failure
	Cause       string     `json:"cause,omitempty"`     // the same for failures that have one cause
	Error       string     `json:"error,omitempty"`     // the last failure's text
	Revision    int        `json:"revision"`            // how often it was edited
	ReplayID    int64      `json:"replay_id,omitempty"` // the last replay that it was part of
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

// newLetter returns a row as a list has it.
func newLetter(r *held.Row) Letter {
	e, c := &r.Event, &r.Progress
	l := Letter{
		ID: r.ID, Handler: r.Handler, State: stateOf(r), DeadAt: timeOrNil(c.DeadAt), DiscardedAt: timeOrNil(c.DiscardedAt), HeldAt: c.HeldAt,
		Attempts: c.Attempts, Class: c.Class, Cause: c.Cause, Error: c.Error, Revision: r.Revision, ReplayID: r.ReplayID,
		LoggedAt: e.LoggedAt, Source: e.Source, EventID: e.ID, Type: e.Type, Subject: e.Subject, Key: e.Key, Size: e.Size,
	}
	if l.LoggedAt.IsZero() {
		l.LoggedAt = c.HeldAt
	}
	return l
}

// stateOf tells fewer states apart than held does: what is due, and what was abandoned,
// is a matter of moments.
func stateOf(r *held.Row) State {
	switch r.State {
	case held.Due, held.Retrying, held.Scheduled:
		if r.Progress.Class == "" && r.Handler == Outgoing {
			return Scheduled
		}
		return Retrying
	case held.Running, held.Abandoned:
		return Running
	}
	return State(r.State)
}

func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
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

// Group is dead events that one cause killed.
type Group struct {
	Cause       string    `json:"cause"`
	Handler     string    `json:"handler"`
	Class       string    `json:"class"`
	Events      int64     `json:"events"`
	FirstDeadAt time.Time `json:"first_dead_at"` // when the first of them died
	LastDeadAt  time.Time `json:"last_dead_at"`
	ExampleID   int64     `json:"example_id"` // the id of one of them
	Types       []string  `json:"types"`
	Keys        int64     `json:"keys"`
	Error       string    `json:"error"` // of the example
}
