package inspect

import (
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/internal/held"
)

// EventTrace is everything that is known about an event.
type EventTrace struct {
	EventID string `json:"event_id"`

	// Sources are the sources that have an event with this id. An id is unique within a source.
	Sources []string `json:"sources"`

	LogEntries []LogEntry     `json:"log_entries"` // from this database's log (table outbox)
	Streams    []StreamSearch `json:"streams"`     // from the broker
	Decisions  []Decision     `json:"decisions"`   // the decisions of handlers in this database
	Held       []held.Row     `json:"held"`
	Discarded  []held.Row     `json:"discarded"`
	Steps      []Step         `json:"steps"` // the steps of external handlers
	Revisions  []Revision     `json:"revisions"`
	Replays    []ReplayItem   `json:"replays"`
	Audit      []AuditEntry   `json:"audit"`

	// Republishes are the republishes that cover this event, oldest first. They are at most 100,
	// from the last 1,000 republishes.
	Republishes []RepublishItem `json:"republishes"`

	// Undecided are the handlers that read the event's subject and for which no decision was found.
	Undecided []string `json:"undecided"`

	// CausedBy is the event that caused this event, if the log has it. Caused are events that this
	// event caused, at most 100.
	CausedBy []LogEntry     `json:"caused_by"`
	Caused   []RelatedEvent `json:"caused"`

	// Sagas are the steps of sagas in which the event has a role.
	Sagas []SagaStep `json:"sagas"`

	// Notes tell an operator what could not be found out about the event, and other facts.
	Notes []string `json:"notes"`

	Broker Broker `json:"broker"`
}

// PublishState is the state of an event in the log.
type PublishState string

// The states of an event in the log.
const (
	Published        PublishState = "published"   // the broker has it
	Unpublished      PublishState = "unpublished" // no relay has read it yet
	Pending          PublishState = "pending"     // a relay has read it, and has not recorded the broker's acknowledgement
	PublishHeld      PublishState = "held"        // it is held on its way to the broker
	PublishDiscarded PublishState = "discarded"   // it was discarded or cancelled
)

// LogEntry is an event in the log.
type LogEntry struct {
	Seq           int64        `json:"seq"`
	Source        string       `json:"source"`
	EventID       string       `json:"event_id"`
	Type          string       `json:"type"`
	Subject       string       `json:"subject"`
	Key           string       `json:"key,omitempty"`
	CorrelationID string       `json:"correlation_id,omitempty"`
	CausationID   string       `json:"causation_id,omitempty"`
	Bytes         int64        `json:"bytes"` // size of its data
	CreatedAt     time.Time    `json:"created_at"`
	NotBefore     time.Time    `json:"not_before,omitzero"`
	LoggedAt      time.Time    `json:"logged_at"` // the later of CreatedAt and NotBefore
	OccurredAt    time.Time    `json:"occurred_at,omitzero"`
	State         PublishState `json:"state"`

	// Failures are the last ten failures of an event that was held before the relay published it.
	Failures []held.Failure `json:"failures"`
}

// StreamSearch is the result of the search for an event in a stream.
type StreamSearch struct {
	Stream  string `json:"stream"`
	Subject string `json:"subject,omitempty"`
	Source  string `json:"source,omitempty"`

	// Found says whether the search found the event. The search read the messages that the stream
	// stored between From and Through. If Complete is true, it read the stream to its end.
	Found    bool      `json:"found"`
	From     time.Time `json:"from"`
	Through  time.Time `json:"through,omitzero"`
	Complete bool      `json:"complete"`
	Examined int       `json:"examined"` // how many messages were read

	Seq       uint64    `json:"seq,omitzero"`
	StoredAt  time.Time `json:"stored_at,omitzero"`
	MessageID string    `json:"message_id,omitempty"`

	CausationID string `json:"causation_id,omitempty"`
}

// Decision says that a handler decided the event: it took effect, or is held, or was discarded.
type Decision struct {
	Handler   string `json:"handler"`
	DedupeKey string `json:"dedupe_key"`

	// At is when the event was decided. If the event was held then, and later took effect or was
	// discarded, At is that later time.
	At time.Time `json:"at"`

	// State is the state of an event that is held or was discarded, even if it was purged since then.
	// It is empty if the event took effect.
	State held.State `json:"state,omitempty"`

	// Failures are the last ten failures before the event took effect, without stacks and with only
	// the beginning of each text.
	Failures []held.Failure `json:"failures"`

	// Result is the handler's own description of what it did: the text of postroom.SetResult.
	Result string `json:"result,omitempty"`
}

// Step is one call of an external handler to another system.
type Step struct {
	Handler    string    `json:"handler"`
	Step       string    `json:"step"`
	Revision   int64     `json:"revision"`
	Key        string    `json:"key"`        // the key that the vendor got
	Unanswered int64     `json:"unanswered"` // calls whose outcome is unknown
	StartedAt  time.Time `json:"started_at"`
	DoneAt     time.Time `json:"done_at,omitzero"`
}

// Revision is the event as it was before an edit.
type Revision struct {
	HeldID     int64     `json:"held_id"`
	Revision   int64     `json:"revision"`
	ReplacedAt time.Time `json:"replaced_at"`
	AuditID    int64     `json:"audit_id"`
	Bytes      int64     `json:"bytes"`
}

// ReplayItem is a replay that contained the event.
type ReplayItem struct {
	ReplayID   int64     `json:"replay_id"`
	HeldID     int64     `json:"held_id"`
	Handler    string    `json:"handler"`
	Source     string    `json:"source"`
	Actor      string    `json:"actor"`
	Reason     string    `json:"reason,omitempty"`
	State      string    `json:"state"` // state of the replay
	CreatedAt  time.Time `json:"created_at"`
	ReleasedAt time.Time `json:"released_at,omitzero"`
	Outcome    string    `json:"outcome,omitempty"` // outcome of the event
	EndedAt    time.Time `json:"ended_at,omitzero"`

	// Failures are the last ten failures that the event had before the replay released it.
	Failures []held.Failure `json:"failures"`
}

// RepublishItem is a republish that covers this event.
type RepublishItem struct {
	RequestID int64     `json:"request_id"`
	Seq       int64     `json:"seq"`  // seq of the event in the log
	Kind      string    `json:"kind"` // range: events of a range of the log; reconcile: events that the streams lacked
	Actor     string    `json:"actor"`
	Reason    string    `json:"reason,omitempty"`
	CreatedAt time.Time `json:"created_at"`
	State     string    `json:"state"` // state of the request: running, done or cancelled
	EndedAt   time.Time `json:"ended_at,omitzero"`

	// Passed says that the relay is done with the event: it published the event again, skipped it,
	// or held it. If Passed is false and the request has ended, the event was not published again.
	Passed bool `json:"passed"`
}

// RelatedEvent is an event of the log that this event caused.
type RelatedEvent struct {
	Seq       int64     `json:"seq"`
	Source    string    `json:"source"`
	EventID   string    `json:"event_id"`
	Type      string    `json:"type"`
	CreatedAt time.Time `json:"created_at"`
}

func scanLogEntry(row pgx.CollectableRow, l *LogEntry) error {
	var failures []byte
	err := row.Scan(&l.Seq, &l.Source, &l.EventID, &l.Type, &l.Subject, &l.Key, &l.CorrelationID, &l.CausationID, &l.Bytes,
		at(&l.CreatedAt), at(&l.NotBefore), at(&l.LoggedAt), at(&l.OccurredAt), &l.State, &failures)
	return readFailures(&l.Failures, failures, err)
}

// readFailures parses the stored failures. If the row could not be read, readFailures returns err.
func readFailures(to *[]held.Failure, document []byte, err error) error {
	*to = held.Failures(document)
	return err
}

func scanDecision(row pgx.CollectableRow, d *Decision) error {
	var failures []byte
	err := row.Scan(&d.Handler, &d.DedupeKey, at(&d.At), &d.State, &failures, &d.Result)
	return readFailures(&d.Failures, failures, err)
}

func scanStep(row pgx.CollectableRow, s *Step) error {
	return row.Scan(&s.Handler, &s.Step, &s.Revision, &s.Key, &s.Unanswered, at(&s.StartedAt), at(&s.DoneAt))
}

func scanRevision(row pgx.CollectableRow, r *Revision) error {
	return row.Scan(&r.HeldID, &r.Revision, at(&r.ReplacedAt), &r.AuditID, &r.Bytes)
}

func scanReplayItem(row pgx.CollectableRow, r *ReplayItem) error {
	var failures []byte
	err := row.Scan(&r.ReplayID, &r.HeldID, &r.Handler, &r.Source, &r.Actor, &r.Reason, &r.State, at(&r.CreatedAt), at(&r.ReleasedAt), &r.Outcome, at(&r.EndedAt), &failures)
	return readFailures(&r.Failures, failures, err)
}

func scanRepublishItem(row pgx.CollectableRow, r *RepublishItem) error {
	return row.Scan(&r.RequestID, &r.Seq, &r.Kind, &r.Actor, &r.Reason, at(&r.CreatedAt), &r.State, at(&r.EndedAt), &r.Passed)
}

func scanRelatedEvent(row pgx.CollectableRow, r *RelatedEvent) error {
	return row.Scan(&r.Seq, &r.Source, &r.EventID, &r.Type, at(&r.CreatedAt))
}
