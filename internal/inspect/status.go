package inspect

import (
	"time"

	"github.com/jackc/pgx/v5"
)

// Status is the state of the system, with findings.
type Status struct {
	Relay         RelayStatus       `json:"relay"`
	Held          []HeldSummary     `json:"held"`
	Discarded     int64             `json:"discarded"`      // counted up to 100,000
	MoreDiscarded bool              `json:"more_discarded"` // counting stopped, so there may be more
	Replays       []ReplayStatus    `json:"replays"`
	Republishes   []RepublishStatus `json:"republishes"`
	Processes     []Process         `json:"processes"`
	Broker        Broker            `json:"broker"`

	// Pauses are the pauses that operators made, by the handler's name. The name Outgoing means the
	// relays.
	Pauses map[string]*Pause `json:"pauses"`

	// Findings says what is wrong, and what to do about it. It is empty if Status found no fault.
	Findings []Finding `json:"findings"`

	// Notes are facts that are not faults: types without events, types in a stream that no handler
	// of this database reads, operators' pauses, risks of streams, and webhook endpoints that fail or
	// are disabled.
	Notes []string `json:"notes"`

	schema       string
	overdueTypes map[string]string // for each handler with an overdue event, the type of this event
}

// RelayStatus says which relay leads, and how far behind it is.
type RelayStatus struct {
	// Owner is the relay that leads, or the last leader if it did not release its lease.
	Owner string `json:"owner,omitempty"`
	Leads bool   `json:"leads"`
	Epoch int64  `json:"epoch"` // how many times a relay has taken the lead

	// Until is when the lease ends if the relay does not renew it, or when the lease ended.
	// RemainingSeconds is the time from now to Until. It is negative if the lease has ended.
	Until            time.Time `json:"until,omitzero"`
	RemainingSeconds float64   `json:"remaining_seconds"`

	// Pause is the operator's pause of all relays. It is nil if there is none.
	Pause *Pause `json:"pause,omitempty"`

	// EstimatedUnpublished estimates how many committed events are not published. It also counts
	// seqs that no event has.
	EstimatedUnpublished int64 `json:"estimated_unpublished"`

	// OldestUnpublishedAt is when the oldest unpublished event was written.
	OldestUnpublishedAt         time.Time `json:"oldest_unpublished_at,omitzero"`
	OldestUnpublishedAgeSeconds float64   `json:"oldest_unpublished_age_seconds"`

	restored bool // the row is from another cluster
	ahead    bool // the log has transaction ids that this server has not reached

	timeline, serverTimeline int64 // on which timeline of the server a relay led last, and the server's timeline now
}

// ReplayStatus is a running replay of dead events.
type ReplayStatus struct {
	ID        int64     `json:"id"`
	Actor     string    `json:"actor"`
	CreatedAt time.Time `json:"created_at"`
	Phase     string    `json:"phase"`
	Events    int64     `json:"events"`
	Released  int64     `json:"released"`
	Succeeded int64     `json:"succeeded"`
	Failed    int64     `json:"failed"`
	Skipped   int64     `json:"skipped"`

	// LastStepAt is when a process last made a step of the replay. Zero means never.
	LastStepAt  time.Time `json:"last_step_at,omitzero"`
	IdleSeconds float64   `json:"idle_seconds"`
}

// RepublishStatus is a running republish, which publishes events of the log again.
type RepublishStatus struct {
	ID        int64     `json:"id"`
	Kind      string    `json:"kind"`
	Actor     string    `json:"actor"`
	CreatedAt time.Time `json:"created_at"`
	Rate      float64   `json:"rate"`
	Events    int64     `json:"events"`
	Published int64     `json:"published"`
	Skipped   int64     `json:"skipped"`
	Held      int64     `json:"held"`
}

func scanRelay(row pgx.CollectableRow, r *RelayStatus) error {
	return row.Scan(&r.Owner, &r.Leads, &r.Epoch, at(&r.Until), &r.RemainingSeconds, &r.EstimatedUnpublished, at(&r.OldestUnpublishedAt), &r.OldestUnpublishedAgeSeconds,
		&r.restored, &r.ahead, &r.timeline, &r.serverTimeline)
}

// readRelay reads the part of the status for which the rights of a relay suffice.
func (s *Status) readRelay(m *view) (err error) {
	s.schema = m.schema
	if s.Pauses, err = readPauses(m); err != nil {
		return err
	}
	if s.Relay, err = one(m, "the relay's row", m.sql.Relay, scanRelay); err != nil {
		return err
	}
	s.Relay.Pause = s.Pauses[Outgoing]
	if s.Held, err = readHeld(m); err != nil {
		return err
	}
	return s.readOverdueTypes(m)
}

func (s *Status) readOverdueTypes(m *view) error {
	s.overdueTypes = make(map[string]string)
	for _, h := range s.Held {
		if h.overdue() <= overdueFor.Seconds() {
			continue
		}
		types, err := rows(m, "types of overdue events", m.sql.OverdueType, func(row pgx.CollectableRow, s *string) error { return row.Scan(s) }, h.Handler)
		if err != nil {
			return err
		}
		if len(types) > 0 {
			s.overdueTypes[h.Handler] = types[0]
		}
	}
	return nil
}

func scanReplayStatus(row pgx.CollectableRow, r *ReplayStatus) error {
	return row.Scan(&r.ID, &r.Actor, at(&r.CreatedAt), &r.Phase, &r.Events, &r.Released, &r.Succeeded, &r.Failed, &r.Skipped,
		at(&r.LastStepAt), &r.IdleSeconds)
}

func scanRepublishStatus(row pgx.CollectableRow, r *RepublishStatus) error {
	return row.Scan(&r.ID, &r.Kind, &r.Actor, at(&r.CreatedAt), &r.Rate, &r.Events, &r.Published, &r.Skipped, &r.Held)
}
