package deadletter

import (
	"encoding/json"
	"time"
)

// Details is everything that the database has about one held or discarded event.
type Details struct {
	Letter

	DedupeKey     string            `json:"dedupe_key,omitempty"`  // its key in the table inbox
	BlockedKey    string            `json:"blocked_key,omitempty"` // the event's key, if the event blocks the key or waits behind an earlier event of the key
	Position      int64             `json:"position,omitempty"`    // the event's position among the events of that key
	NextAt        time.Time         `json:"next_at,omitzero"`
	ClaimedBy     string            `json:"claimed_by,omitempty"`
	Isolated      bool              `json:"isolated,omitempty"` // the event may crash its process, so it runs alone
	FirstFailedAt time.Time         `json:"first_failed_at,omitzero"`
	Failures      []Failure         `json:"failures,omitempty"` // the last ten, the oldest first
	ContentType   string            `json:"content_type"`
	CorrelationID string            `json:"correlation_id,omitempty"`
	CausationID   string            `json:"causation_id,omitempty"`
	OccurredAt    time.Time         `json:"occurred_at,omitzero"`
	TraceParent   string            `json:"trace_parent,omitempty"`
	Headers       map[string]string `json:"headers,omitempty"`
	Data          []byte            `json:"data"`                  // base64 in JSON
	RawHeaders    []byte            `json:"raw_headers,omitempty"` // headers of a message that is not an event
	Steps         []Step            `json:"steps,omitempty"`       // for an external handler
	Revisions     []Revision        `json:"revisions,omitempty"`
	History       []AuditEntry      `json:"history,omitempty"`
}

// Failure is an attempt that failed.
type Failure struct {
	At    time.Time `json:"at"`
	Class string    `json:"class"`
	Text  string    `json:"text"`
	Frame string    `json:"frame,omitempty"` // for a panic, the place in the program
	Stack string    `json:"stack,omitempty"`
}

// Step is a call of an external handler to another system.
type Step struct {
	Name       string    `json:"name"`
	Revision   int       `json:"revision"`
	Key        string    `json:"key"`        // the key that the vendor got
	Unanswered int       `json:"unanswered"` // calls whose outcome is unknown
	StartedAt  time.Time `json:"started_at"`
	DoneAt     time.Time `json:"done_at,omitzero"`

	// Result is the recorded result. It is empty if the step is not done.
	Result json.RawMessage `json:"result,omitempty"`
}

// Revision is an event as it was before an edit.
type Revision struct {
	Revision    int               `json:"revision"`
	ReplacedAt  time.Time         `json:"replaced_at"`
	Actor       string            `json:"actor"`
	Reason      string            `json:"reason,omitempty"`
	ContentType string            `json:"content_type"`
	Headers     map[string]string `json:"headers,omitempty"`
	Data        []byte            `json:"data"`
}

// AuditEntry is one action of an operator on an event.
type AuditEntry struct {
	At       time.Time `json:"at"`
	Actor    string    `json:"actor"`
	Action   string    `json:"action"`
	Reason   string    `json:"reason,omitempty"`
	ReplayID int64     `json:"replay_id,omitempty"`
	Outcome  string    `json:"outcome,omitempty"` // the event's outcome in the replay
}
