// Package held has the events that are held: rows of the table held. It lists them, and makes those
// that are not dead due now or at another time, or cancels them. An event that was discarded or
// cancelled is a row of the table archive, which has the same form.
//
// Packages deadletter and inspect read rows with it, so that they show the same data.
//
// An act has two steps. First, [Store.Select] chooses the events. Then [Store.Retry],
// [Store.Reschedule] or [Store.Cancel] acts on exactly these events. An act does not change an event
// that runs or is being published, and the [Result] counts such events. If two transactions want to
// change the same event, the first to lock its row changes it. Each act writes a row of the audit in its
// own transaction.
package held

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// Outgoing is the value of the column handler for events that the relay has to publish, or had to.
const Outgoing = "outbox"

// Queryer is a database or a transaction.
type Queryer interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Row is a row of the table held or archive: an event that is held for a handler, or on its way to
// the broker, or was discarded. A value that the table does not have is zero. Times are in UTC, and
// zero if they are outside the years 1 to 9999.
type Row struct {
	ID            int64     `json:"id"`
	Handler       string    `json:"handler"`
	DedupeKey     string    `json:"dedupe_key,omitempty"` // its key in the table inbox
	Source        string    `json:"source"`
	EventID       string    `json:"event_id"`
	Type          string    `json:"type"`
	Subject       string    `json:"subject"`
	Key           string    `json:"key,omitempty"`
	BlockedKey    string    `json:"blocked_key,omitempty"` // the key, if the event blocks this key or waits behind an earlier event of it
	Position      int64     `json:"position,omitzero"`     // its place in the order of that key
	State         State     `json:"state"`
	Attempts      int       `json:"attempts"`
	Class         string    `json:"class,omitempty"` // of the last failure
	Cause         string    `json:"cause,omitempty"` // failures with the same cause have the same value
	Error         string    `json:"error,omitempty"` // text of the last failure
	Failures      []Failure `json:"failures"`        // the last ten; lists leave them out
	HeldAt        time.Time `json:"held_at"`
	FirstFailedAt time.Time `json:"first_failed_at,omitzero"`
	NextAt        time.Time `json:"next_at,omitzero"` // when it is due, or when its claim ends
	DeadAt        time.Time `json:"dead_at,omitzero"`
	ClaimedBy     string    `json:"claimed_by,omitempty"`
	Isolated      bool      `json:"isolated"` // it is solitary: it may have ended the process that ran it
	Revision      int       `json:"revision"`
	ReplayID      int64     `json:"replay_id,omitzero"` // the last replay that contained the event
	Replays       int64     `json:"replays"`
	LoggedAt      time.Time `json:"logged_at"`
	CausationID   string    `json:"causation_id,omitempty"`
	CorrelationID string    `json:"correlation_id,omitempty"`
	Size          int       `json:"size"` // of the body, in bytes

	DiscardedAt time.Time `json:"discarded_at,omitzero"`
	AuditID     int64     `json:"audit_id,omitzero"` // the action that discarded the event
}

// Failure is an attempt that failed.
type Failure struct {
	At    time.Time `json:"at"`
	Class string    `json:"class"`
	Text  string    `json:"text"`
	Frame string    `json:"frame,omitempty"` // for a panic, the place in the program
	Stack string    `json:"stack,omitempty"`
}

// State is the state of a held or discarded event.
type State string

// The states.
const (
	Scheduled State = "scheduled" // it has not failed yet, and is due later
	Due       State = "due"
	Retrying  State = "retrying"  // it failed, and is due later
	Running   State = "running"   // a process has claimed it, or the relay may be publishing it
	Abandoned State = "abandoned" // a process had claimed it, and the claim expired
	Waiting   State = "waiting"   // it waits behind an earlier event of its key
	Dead      State = "dead"
	Discarded State = "discarded"
	Gone      State = "gone" // it is no longer held; only for the result of an act
)

// Scan reads a row. All statements for rows have the same first columns. The rest goes into more.
func Scan(row pgx.CollectableRow, more ...any) (r Row, err error) {
	var failures []byte
	err = row.Scan(append([]any{
		&r.ID, &r.Handler, &r.DedupeKey, &r.BlockedKey, &r.Position, &r.State, &r.Revision, &r.ReplayID, &r.Replays, &r.AuditID,
		&r.Source, &r.EventID, &r.Type, &r.Subject, &r.Key, &r.CorrelationID, &r.CausationID, Time(&r.LoggedAt), &r.Size,
		Time(&r.HeldAt), Time(&r.FirstFailedAt), Time(&r.NextAt), Time(&r.DeadAt), Time(&r.DiscardedAt), &r.ClaimedBy, &r.Isolated, &r.Attempts,
		&r.Class, &r.Cause, &r.Error, &failures,
	}, more...)...)
	r.Failures = Failures(failures)
	return r, err
}

// Failures reads stored failures. A role that may write a row may write anything there. So what
// cannot be read becomes the text of a failure: one row must not take lists and changes of all events
// from operators.
func Failures(document []byte) []Failure {
	if document == nil {
		return []Failure{} // not null in JSON
	}
	parts := []json.RawMessage{}
	if json.Unmarshal(document, &parts) != nil {
		parts = []json.RawMessage{document}
	}
	all := make([]Failure, len(parts))
	for n, part := range parts {
		if json.Unmarshal(part, &all[n]) != nil {
			all[n] = Failure{Class: "unknown", Text: "the row has a failure that cannot be read: " + string(part)}
		}
		if all[n].At = all[n].At.UTC(); all[n].At.Year() > 9999 { // JSON cannot represent it
			all[n].At = time.Time{}
		}
	}
	return all
}

// timeScanner scans a time. NULL, infinity and times outside the years 1 to 9999 become the zero time,
// because JSON cannot represent them.
type timeScanner struct{ to *time.Time }

// Time returns what scans a time as [Scan] does, into to.
func Time(to *time.Time) any { return &timeScanner{to} }

// ScanTimestamptz implements pgtype.TimestamptzScanner.
func (i *timeScanner) ScanTimestamptz(v pgtype.Timestamptz) error {
	*i.to = time.Time{}
	//guard:odd-times-of-held-events-are-left-out 3 true
	if y := v.Time.UTC().Year(); v.Valid && v.InfinityModifier == pgtype.Finite && y >= 1 && y <= 9999 {
		*i.to = v.Time.UTC()
	}
	return nil
}
