package inspect

import (
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/internal/held"
)

// Outgoing is the name under which events are held on their way to the broker.
const Outgoing = held.Outgoing

// State is what becomes of an event that is held.
type State string

// The states.
const (
	Scheduled State = "scheduled" // it is to be published later
	Due       State = "due"       // its next attempt is due
	Retrying  State = "retrying"  // it failed, and its next attempt is later
	Running   State = "running"   // a process has claimed it
	Abandoned State = "abandoned" // a process had claimed it, and the claim ran out
	Waiting   State = "waiting"   // it waits behind an earlier event of its key
	Dead      State = "dead"      // an operator has to decide
	Discarded State = "discarded" // an operator has decided
)

// StateCount is how many events are held in one state.
type StateCount struct {
	State  State `json:"state"`
	Events int64 `json:"events"`

	// OldestAgeSeconds is for how long the oldest has been held; dead, for a dead one.
	OldestAgeSeconds float64 `json:"oldest_age_seconds"`

	// OverdueSeconds is for how long the first of them has been due.
	OverdueSeconds float64 `json:"overdue_seconds"`
}

// HeldSummary is what is held of one handler, or of outgoing events.
type HeldSummary struct {
	Handler string       `json:"handler"`
	States  []StateCount `json:"states"`

	// Keys is how many keys wait for one of them, or are blocked by it.
	Keys int64 `json:"keys"`

	// More says that 100,000 events were counted, and there may be others.
	More bool `json:"more"`
}

// Events returns how many events are held in some states, or in all if none is
// given.
func (h HeldSummary) Events(states ...State) int64 {
	var n int64
	for _, c := range h.States {
		if len(states) == 0 || slices.Contains(states, c.State) {
			n += c.Events
		}
	}
	return n
}

// overdue returns for how long one of the events has been due that nobody has taken.
func (h HeldSummary) overdue() float64 {
	var seconds float64
	for _, c := range h.States {
		if c.State == Due || c.State == Abandoned {
			seconds = max(seconds, c.OverdueSeconds)
		}
	}
	return seconds
}

func readHeld(m *snapshot) ([]HeldSummary, error) {
	type counted struct {
		StateCount

		handler string
		keys    int64
		more    bool
	}
	counts, err := rows(m, "what is held", m.sql.HeldCounts, func(row pgx.CollectableRow, c *counted) error {
		return row.Scan(&c.handler, &c.State, &c.Events, &c.OldestAgeSeconds, &c.OverdueSeconds, &c.more, &c.keys)
	})
	all := []HeldSummary{} // not null
	for _, c := range counts {
		if len(all) == 0 || all[len(all)-1].Handler != c.handler {
			all = append(all, HeldSummary{Handler: c.handler, Keys: c.keys, More: c.more})
		}
		last := &all[len(all)-1]
		last.States = append(last.States, c.StateCount)
	}
	return all, err
}

// heldOf returns what is held of a handler.
func heldOf(all []HeldSummary, handler string) HeldSummary {
	for _, h := range all {
		if h.Handler == handler {
			return h
		}
	}
	return HeldSummary{Handler: handler, States: []StateCount{}}
}
