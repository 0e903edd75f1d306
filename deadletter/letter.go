package deadletter

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/postroom/postroom/internal/change"
	"github.com/postroom/postroom/internal/held"
)

// Letter is a held or discarded event in a list.
type Letter struct {
	ID          int64     `json:"id"`
	Handler     string    `json:"handler"`
	State       State     `json:"state"`
	DeadAt      time.Time `json:"dead_at,omitzero"`
	DiscardedAt time.Time `json:"discarded_at,omitzero"`
	HeldAt      time.Time `json:"held_at"`
	Attempts    int       `json:"attempts"`
	Class       string    `json:"class,omitempty"`     // class of the last failure
	Cause       string    `json:"cause,omitempty"`     // failures with the same cause have the same value
	Error       string    `json:"error,omitempty"`     // text of the last failure
	Revision    int       `json:"revision"`            // how many times it was edited
	ReplayID    int64     `json:"replay_id,omitempty"` // the last replay that contained it
	LoggedAt    time.Time `json:"logged_at"`
	Source      string    `json:"source"`
	EventID     string    `json:"event_id"`
	Type        string    `json:"type"`
	Subject     string    `json:"subject"`
	Key         string    `json:"key,omitempty"`
	Size        int       `json:"size"` // size of the body in bytes
}

// State is the state of a held or discarded event.
type State string

// The states.
const (
	Dead      State = "dead"      // it has no further attempt until an operator decides
	Retrying  State = "retrying"  // its next attempt is due now or later
	Running   State = "running"   // a process has claimed it
	Waiting   State = "waiting"   // an earlier event of its key is held
	Scheduled State = "scheduled" // it will be published at a time, and has not failed
	Discarded State = "discarded" // it was discarded or cancelled
)

// newLetter returns a row as a Letter.
func newLetter(r *held.Row) Letter {
	l := Letter{
		ID: r.ID, Handler: r.Handler, State: stateOf(r), DeadAt: r.DeadAt, DiscardedAt: r.DiscardedAt, HeldAt: r.HeldAt,
		Attempts: r.Attempts, Class: r.Class, Cause: r.Cause, Error: r.Error, Revision: r.Revision, ReplayID: r.ReplayID,
		LoggedAt: r.LoggedAt, Source: r.Source, EventID: r.EventID, Type: r.Type, Subject: r.Subject, Key: r.Key, Size: r.Size,
	}
	if l.LoggedAt.IsZero() {
		l.LoggedAt = r.HeldAt
	}
	return l
}

// stateOf maps the states of package held to fewer states. A due event counts as scheduled or
// retrying. An event whose claim has run out (held.Abandoned) counts as running.
func stateOf(r *held.Row) State {
	switch r.State {
	case held.Due, held.Retrying, held.Scheduled:
		if r.Class == "" && r.Handler == Outgoing {
			return Scheduled
		}
		return Retrying
	case held.Running, held.Abandoned:
		return Running
	}
	return State(r.State)
}

// place is a place in a list of events: behind this one. If events are added or removed between two
// pages, a list still has each event exactly once that was neither added nor removed.
type place struct {
	at time.Time
	id int64
}

// String returns the place as the text for [postroom.Page]. The zero place is the empty text.
func (p place) String() string {
	if p == (place{}) {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%s %d", p.at.UTC().Format(time.RFC3339Nano), p.id))
}

func parsePlace(text string) (p place, err error) {
	if text == "" {
		return place{}, nil
	}
	plain, err := base64.RawURLEncoding.DecodeString(text)
	at, id, _ := strings.Cut(string(plain), " ")
	if err == nil {
		p.at, err = time.Parse(time.RFC3339Nano, at)
	}
	if err == nil {
		p.id, err = strconv.ParseInt(id, 10, 64)
	}
	if err != nil || p.id < 1 {
		return place{}, change.ErrPlace
	}
	return p, nil
}

// Group has the dead events with one cause.
type Group struct {
	Cause       string    `json:"cause"`
	Handler     string    `json:"handler"`
	Class       string    `json:"class"`
	Events      int64     `json:"events"`
	More        bool      `json:"more"`          // there may be more events than Events
	FirstDeadAt time.Time `json:"first_dead_at"` // when the first of the counted events died
	LastDeadAt  time.Time `json:"last_dead_at"`
	ExampleID   int64     `json:"example_id"` // the id of the event that died last
	Types       []string  `json:"types"`      // types of the events that died last; if there are many events, Groups does not read the types of all
	Keys        int64     `json:"keys"`       // how many different keys there are among the events whose types Groups read
	Error       string    `json:"error"`      // text of the example's last failure
}

// GroupList has dead events, grouped by cause.
type GroupList struct {
	Groups []Group `json:"groups"` // the largest first, at most 200
	All    int     `json:"all"`    // how many groups were found

	// More says that Groups did not count all dead events. Then there may be more groups, and more
	// events in these groups.
	More bool `json:"more"`
}
