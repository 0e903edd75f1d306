// Package held reads held and discarded events: rows of the tables held and archive. It returns the
// rows of both tables in the same form. It changes nothing.
//
// Packages deadletter and inspect both use it, so that they show the same data.
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

// Row is a row of the table held or archive. A value that the table does not have is zero.
type Row struct {
	ID         int64
	Handler    string
	DedupeKey  string // its dedupe key in the table inbox
	BlockedKey string // the key, if the event blocks this key or waits behind an earlier event of this key
	Position   int64  // its place in the order of that key
	State      State
	Revision   int
	ReplayID   int64 // the last replay that included it
	Replays    int64
	AuditID    int64 // the audit row of the action that discarded it

	Event    Event
	Progress Progress
}

// Event is the event of a row, without its data.
type Event struct {
	Source      string
	ID          string
	Type        string
	Subject     string
	Key         string
	Correlation string
	Causation   string
	LoggedAt    time.Time // zero if the time is outside the years 1 to 9999
	Size        int       // the size of the body, in bytes
}

// Progress says what happened to an event so far.
type Progress struct {
	HeldAt        time.Time
	FirstFailedAt time.Time
	NextAt        time.Time // when it is due, or when its claim ends
	DeadAt        time.Time
	DiscardedAt   time.Time
	ClaimedBy     string
	Isolated      bool // it is solitary: it may have ended the process that ran it
	Attempts      int
	Class         string // of the last failure
	Cause         string // failures with the same cause have the same value
	Error         string // the last failure's text
	Failures      []Failure
}

// Failure is an attempt that failed.
type Failure struct {
	At    time.Time `json:"at"`
	Class string    `json:"class"`
	Text  string    `json:"text"`
	Frame string    `json:"frame"` // for a panic, the place in the program
	Stack string    `json:"stack"`
}

// Content is the rest of a row, mainly the headers and the data that the handler gets.
type Content struct {
	Type        string
	OccurredAt  time.Time
	TraceParent string
	Headers     []byte // a JSON object, or nil
	Data        []byte
	RawHeaders  []byte // the headers of a message that is not an event
}

// State is the state of a held or discarded event.
type State string

// The states.
const (
	Scheduled State = "scheduled" // it has not failed yet, and is due later
	Due       State = "due"
	Retrying  State = "retrying"  // it failed, and is due later
	Running   State = "running"   // a process has claimed it
	Abandoned State = "abandoned" // a process had claimed it, and the claim expired
	Waiting   State = "waiting"   // it waits behind an earlier event of its key
	Dead      State = "dead"
	Discarded State = "discarded"
)

// scan reads a row. All statements for rows have the same first columns. The rest goes into more.
func scan(row pgx.CollectableRow, more ...any) (r Row, err error) {
	e, c := &r.Event, &r.Progress
	var failures []byte
	err = row.Scan(append([]any{
		&r.ID, &r.Handler, &r.DedupeKey, &r.BlockedKey, &r.Position, &r.State, &r.Revision, &r.ReplayID, &r.Replays, &r.AuditID,
		&e.Source, &e.ID, &e.Type, &e.Subject, &e.Key, &e.Correlation, &e.Causation, at(&e.LoggedAt), &e.Size,
		at(&c.HeldAt), at(&c.FirstFailedAt), at(&c.NextAt), at(&c.DeadAt), at(&c.DiscardedAt), &c.ClaimedBy, &c.Isolated, &c.Attempts,
		&c.Class, &c.Cause, &c.Error, &failures,
	}, more...)...)
	if err == nil && failures != nil {
		err = json.Unmarshal(failures, &c.Failures)
	}
	return r, err
}

// timeScanner scans a time. NULL and infinity become the zero time.
type timeScanner struct{ to *time.Time }

func at(to *time.Time) *timeScanner { return &timeScanner{to} }

// ScanTimestamptz implements pgtype.TimestamptzScanner.
func (i *timeScanner) ScanTimestamptz(v pgtype.Timestamptz) error {
	*i.to = time.Time{}
	if v.Valid && v.InfinityModifier == pgtype.Finite {
		*i.to = v.Time
	}
	return nil
}
