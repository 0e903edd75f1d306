package inspect

import (
	"encoding/json"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
)

// AuditFilter says which actions to return. The zero value selects the latest 100 actions.
type AuditFilter struct {
	Actor    string // the person or program that acted
	Action   string // the kind of action
	Handler  string // the handler of the event, or of one of the events, on which an operator acted
	EventID  string // the id of the event, or of one of the events, on which an operator acted
	ReplayID int64  // the replay of the action

	// Since selects the actions at this time or later.
	Since time.Time

	// Before is the Next of the previous page. Zero selects the first page.
	Before int64

	// Limit is the largest number of actions in a page.
	//
	// Defaults to 100; at most 1,000.
	Limit int
}

// AuditPage is a page of actions, the latest first.
type AuditPage struct {
	Entries []AuditEntry `json:"entries"`

	// Next is the Before of the next page. It is zero if this is the last page. If EventID and
	// ReplayID are not set, Audit reads at most 10,000 actions for a page. So a page with a Next
	// can have fewer actions than Limit, or none.
	Next int64 `json:"next,omitzero,string"` // text, as in other lists
}

// AuditEntry is one action of an operator or a program, such as a handler that discards an event.
type AuditEntry struct {
	ID       int64     `json:"id"`
	At       time.Time `json:"at"`
	Role     string    `json:"role"`  // with which the actor's program had logged in to the database
	Actor    string    `json:"actor"` // as the program said
	Action   string    `json:"action"`
	Reason   string    `json:"reason,omitempty"`
	Events   int64     `json:"events"` // how many events the action changed
	Handler  string    `json:"handler,omitempty"`
	Source   string    `json:"source,omitempty"`
	EventID  string    `json:"event_id,omitempty"` // for an action on one event
	ReplayID int64     `json:"replay_id,omitzero"`

	// Details has the parameters of the action.
	Details json.RawMessage `json:"details,omitempty"`

	wanted, last bool
}

func scanAuditEntry(row pgx.CollectableRow, a *AuditEntry) error {
	return row.Scan(&a.ID, at(&a.At), &a.Role, &a.Actor, &a.Action, &a.Reason, &a.Events, &a.Handler, &a.Source, &a.EventID, &a.ReplayID, &a.Details,
		&a.wanted, &a.last)
}

// clockSlop is how much the order of actions by time may differ from their order by id. The time of
// an action is the start of its transaction, but the action gets its id only later.
const clockSlop = time.Hour

func readAudit(m *view, f AuditFilter) ([]AuditEntry, error) {
	before, most := f.Before, limit(f.Limit)+1
	if before <= 0 {
		before = math.MaxInt64
	}
	var since *time.Time
	if !f.Since.IsZero() {
		since = &f.Since
	}
	switch {
	case f.EventID != "":
		return rows(m, "audit", m.sql.AuditEvent, scanAuditEntry, f.EventID, f.Actor, f.Action, f.Handler, since, before, most, "", f.ReplayID)
	case f.ReplayID != 0:
		return rows(m, "audit", m.sql.AuditReplay, scanAuditEntry, f.ReplayID, f.Actor, f.Action, f.Handler, since, before, most)
	}
	return rows(m, "audit", m.sql.Audit, scanAuditEntry, f.Actor, f.Action, f.Handler, since, before, most)
}

// fill adds the found actions to the page. If there may be more, it sets Next.
func (p *AuditPage) fill(all []AuditEntry, f AuditFilter) {
	for _, a := range all {
		if len(p.Entries) == limit(f.Limit) {
			p.Next = p.Entries[len(p.Entries)-1].ID
			return
		}
		if a.wanted {
			p.Entries = append(p.Entries, a)
		}
		if a.last && (f.Since.IsZero() || a.At.After(f.Since.Add(-clockSlop))) {
			p.Next = a.ID
		}
	}
}
