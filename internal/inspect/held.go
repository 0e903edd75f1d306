package inspect

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/internal/held"
)

// Outgoing is the handler name of events that are held on their way to the broker.
const Outgoing = held.Outgoing

// StateCount counts the held events in one state.
type StateCount struct {
	State  held.State `json:"state"`
	Events int64      `json:"events"`

	// OldestAgeSeconds is how long the oldest event has been held. If the state is dead, it is how long
	// the event that died first has been dead.
	OldestAgeSeconds float64 `json:"oldest_age_seconds"`

	// OverdueSeconds is how long the first of these events has been due.
	OverdueSeconds float64 `json:"overdue_seconds"`

	// More says that counting stopped, so there may be more events in this state. It stops at 10,000
	// dead events of a handler, at 10,000 waiting ones, and at 10,000 in the other states together.
	More bool `json:"more"`
}

// HeldSummary says how many events are held for one handler, or on their way to the broker.
type HeldSummary struct {
	Handler string       `json:"handler"`
	States  []StateCount `json:"states"`

	// Keys is how many keys these events block.
	Keys int64 `json:"keys"`
}

// Events returns how many events are held in the given states, or in all states if none is given.
func (h HeldSummary) Events(states ...held.State) int64 {
	var n int64
	for _, c := range h.States {
		if len(states) == 0 || slices.Contains(states, c.State) {
			n += c.Events
		}
	}
	return n
}

// More reports whether counting stopped in one of the given states, or in any state if none is given.
// Then there may be more events than [HeldSummary.Events] returns, and more keys.
func (h HeldSummary) More(states ...held.State) bool {
	return slices.ContainsFunc(h.States, func(c StateCount) bool {
		return c.More && (len(states) == 0 || slices.Contains(states, c.State))
	})
}

// overdue returns how long the first due event has been due. Either no process has a claim on this
// event, or the relay tries to publish it and the broker does not accept it.
func (h HeldSummary) overdue() float64 {
	var seconds float64
	for _, c := range h.States {
		if c.State == held.Due || c.State == held.Abandoned || c.State == held.Running { // a handler's Running adds 0, because the claim ends in the future
			seconds = max(seconds, c.OverdueSeconds)
		}
	}
	return seconds
}

func readHeld(m *view) ([]HeldSummary, error) {
	type row struct {
		StateCount

		handler string
		keys    int64
	}
	counts, err := rows(m, "what is held", m.sql.HeldCounts, func(found pgx.CollectableRow, c *row) error {
		return found.Scan(&c.handler, &c.State, &c.Events, &c.OldestAgeSeconds, &c.OverdueSeconds, &c.More, &c.keys)
	})
	all := []HeldSummary{} // not null in JSON
	for _, c := range counts {
		if len(all) == 0 || all[len(all)-1].Handler != c.handler {
			all = append(all, HeldSummary{Handler: c.handler, Keys: c.keys})
		}
		last := &all[len(all)-1]
		last.States = append(last.States, c.StateCount)
	}
	return all, err
}

// heldOf returns the summary of a handler.
func heldOf(all []HeldSummary, handler string) HeldSummary {
	for _, h := range all {
		if h.Handler == handler {
			return h
		}
	}
	return HeldSummary{Handler: handler, States: []StateCount{}}
}

// HeldPage is a page of held events.
type HeldPage struct {
	Events []held.Row `json:"events"`

	// Next is the After of the next page. It is empty if this is the last page. For a page,
	// HeldEvents reads at most about 50,000 events. So a page with a Next can have fewer events
	// than Limit, or none.
	Next string `json:"next,omitempty"`
}

// HeldEvents returns held events, sorted by handler. For each handler, events with a due time come
// first, sorted by this time. Then come events that wait behind an earlier event of their key. Dead
// events come last, the latest death first. If Key is set, and this key has at most 5,000 held
// events, they come in the order in which they were held.
//
// The parameter after is the Next of the previous page, or empty for the first page. A page has at most
// most events; 0 is 100, and at most 1,000.
func (i *Inspector) HeldEvents(ctx context.Context, f held.Filter, after string, most int) (*HeldPage, error) {
	if err := f.Validate(); err != nil {
		return nil, fmt.Errorf("inspect: held events: %w", err)
	}
	page := &HeldPage{}
	err := i.inTx(ctx, func(m *view) error {
		rows, next, err := m.held.Page(m.ctx, m.tx, f, after, limit(most))
		page.Events, page.Next = append([]held.Row{}, rows...), next
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("inspect: held events: %w", i.explain(err))
	}
	return page, nil
}
