// Package eventsearch finds events by a key, a type, a correlation id or a trace. It reads the log,
// and it reads held or discarded events that the log does not have. It changes nothing, and it
// limits how many rows it reads for each answer.
package eventsearch

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/postroom/postroom/internal/identity"
	"github.com/postroom/postroom/internal/text"
)

// Queryer is a database or a transaction.
type Queryer interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Reader reads the tables of one schema.
type Reader struct{ sql statements }

// NewReader returns a reader of a schema. schema.Name must have accepted the name.
func NewReader(schemaName string) Reader { return Reader{load(schemaName)} }

// Event is an event that was found, without its data.
type Event struct {
	Seq           int64 // its seq in the log (the table outbox); 0 if the log does not have it
	Source        string
	ID            string
	Type          string
	Key           string
	CorrelationID string
	CausationID   string
	TraceID       string
	LoggedAt      time.Time
	State         string // its state in the log; empty if the log does not have it
	Handlers      []Handler

	at int64 // its seq in the log, or its id in the table held or archive
}

// Handler says what a handler did with an event.
type Handler struct {
	Name, State string

	Database int // in a tree: the index of the database in the list that Grow got
}

// Selection selects events. An event must match every field that is set. The zero value selects all
// events.
type Selection struct {
	Key, Type, Source, CorrelationID, CausationID string

	TraceID string // 32 hexadecimal digits in lower case

	// Any selects events with this value as their id, key, correlation id, causation id or trace
	// id.
	Any string

	// Since and Until select events that were written at Since or later, and before
	// Until.
	Since, Until time.Time
}

var traceID = regexp.MustCompile(`^[0-9a-f]{32}$`)

// TraceIDOf returns the trace id in s, in lower case. s may be a trace id or a W3C traceparent. For
// any other text, TraceIDOf returns false.
func TraceIDOf(s string) (string, bool) {
	id := strings.ToLower(s)
	if parts := strings.Split(id, "-"); len(parts) == 4 && len(parts[0]) == 2 && len(parts[2]) == 16 && len(parts[3]) == 2 {
		id = parts[1]
	}
	return id, traceID.MatchString(id)
}

// Validate says what is wrong with the selection.
func (s *Selection) Validate() error {
	var faults []error
	for _, p := range []struct{ name, value string }{
		{"Key", s.Key}, {"Type", s.Type}, {"Source", s.Source}, {"CorrelationID", s.CorrelationID}, {"CausationID", s.CausationID}, {"Any", s.Any},
	} {
		if !text.Valid(p.value) {
			faults = append(faults, fmt.Errorf("filter: %s is no UTF-8", p.name))
		}
	}
	if s.TraceID != "" && !traceID.MatchString(s.TraceID) {
		faults = append(faults, errors.New("filter: TraceID has to be a trace id, 32 hexadecimal digits, or a traceparent"))
	}
	if !s.Since.IsZero() && !s.Until.IsZero() && !s.Since.Before(s.Until) {
		faults = append(faults, errors.New("filter: Since has to be before Until"))
	}
	return errors.Join(faults...)
}

// given returns a property. If it is not set, given returns nil, NULL in SQL.
func given(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// timeScanner scans a time. NULL and infinity become the zero time.
type timeScanner struct{ to *time.Time }

func at(to *time.Time) *timeScanner { return &timeScanner{to} }

// ScanTimestamptz implements pgtype.TimestamptzScanner.
func (t *timeScanner) ScanTimestamptz(v pgtype.Timestamptz) error {
	*t.to = time.Time{}
	if v.Valid && v.InfinityModifier == pgtype.Finite {
		*t.to = v.Time.UTC()
	}
	return nil
}

// columns returns the targets for a scan of an event's columns.
func (e *Event) columns() []any {
	return []any{&e.at, &e.Seq, &e.Source, &e.ID, &e.Type, &e.Key, &e.CorrelationID, &e.CausationID, &e.TraceID, at(&e.LoggedAt), &e.State}
}

// Handlers sets, for each event, what the handlers did with it.
func (r Reader) Handlers(ctx context.Context, db Queryer, events []Event) error {
	if len(events) == 0 {
		return nil
	}
	sources, ids, keys := make([]string, len(events)), make([]string, len(events)), make([]string, len(events))
	for n := range events {
		//guard:a-list-finds-a-source-with-spaces 3 = @1+" "+identity.Bounded(@2)
		sources[n], ids[n], keys[n] = events[n].Source, events[n].ID, identity.DedupeKey(events[n].Source, events[n].ID)
	}
	rows, _ := db.Query(ctx, r.sql.Handlers, pgx.QueryExecModeExec, sources, ids, keys) // ForEachRow reports the error
	var n int64
	var h Handler
	var place int
	_, err := pgx.ForEachRow(rows, []any{&n, &h.Name, &h.State, &place}, func() error {
		all := &events[n].Handlers
		if h.State == doneState || h.State == discardedState { // an event that is held or discarded also has its row in the table inbox
			for _, known := range *all {
				if known.Name == h.Name {
					return nil
				}
			}
		}
		*all = append(*all, h)
		return nil
	})
	if err != nil {
		return fmt.Errorf("read what handlers did with events: %w", err)
	}
	return nil
}

// In these states, a handler is done with an event.
const (
	doneState      = "done"
	discardedState = "discarded"
)
