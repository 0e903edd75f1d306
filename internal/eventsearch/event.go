// Package eventsearch finds events by what people have: a key, a type, a correlation id, a
// trace. It reads the log, and what is held or was discarded and the log does not have. It
// changes nothing, and every answer stops at a bound.
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

	"github.com/postroom/postroom/internal/text"
)

// Queryer is a database, or a transaction. It is an interface so that both will do.
type Queryer interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Reader reads the tables of one schema.
type Reader struct{ sql statements }

// NewReader returns a reader of a schema whose name schema.Name accepted.
func NewReader(schemaName string) Reader { return Reader{load(schemaName)} }

// Event is an event that was found, without its data.
//
// Wide because it is an event.
type Event struct {
	Seq           int64 // in the log; 0 if the log does not have it
	Source        string
	ID            string
	Type          string
	Key           string
	CorrelationID string
	CausationID   string
	TraceID       string
	LoggedAt      time.Time
	State         string // in the log; empty if the log does not have it
	Handlers      []Handler

	at int64 // its place in the table that has it
}

// Handler says what a handler has done with an event.
type Handler struct {
	Name, State string

	Database int // of those of a tree
}

// Selection says which events are meant: those that have every property that is set. The
// zero value means all.
//
// Wide because these are the properties of an event.
type Selection struct {
	Key, Type, Source, CorrelationID, CausationID string

	TraceID string // 32 hexadecimal digits in lower case

	// Any is an event id, a key, a correlation id, a causation id or a trace id.
	Any string

	// Since and Until bound the time at which events were written: from Since on, and
	// before Until.
	Since, Until time.Time
}

var traceID = regexp.MustCompile(`^[0-9a-f]{32}$`)

// TraceIDOf returns the trace id in a trace id or a W3C traceparent, in lower case, and
// whether s is one of them.
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

// given is a property, or NULL where it is not set.
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

// timeScanner scans a time; NULL and infinity are zero.
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

// columns are where the columns of an event are scanned to.
func (e *Event) columns() []any {
	return []any{&e.at, &e.Seq, &e.Source, &e.ID, &e.Type, &e.Key, &e.CorrelationID, &e.CausationID, &e.TraceID, at(&e.LoggedAt), &e.State}
}

// Handlers sets what handlers have done with the events.
func (r Reader) Handlers(ctx context.Context, db Queryer, events []Event) error {
	if len(events) == 0 {
		return nil
	}
	sources, ids := make([]string, len(events)), make([]string, len(events))
	for n := range events {
		sources[n], ids[n] = events[n].Source, events[n].ID
	}
	rows, _ := db.Query(ctx, r.sql.Handlers, pgx.QueryExecModeExec, sources, ids) // ForEachRow reports the error
	var n int64
	var h Handler
	var place int
	_, err := pgx.ForEachRow(rows, []any{&n, &h.Name, &h.State, &place}, func() error {
		all := &events[n].Handlers
		if h.State == doneState || h.State == discardedState { // it has the event's row of inbox while it holds the event, and later
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

// States of a handler's event that is through.
const (
	doneState      = "done"
	discardedState = "discarded"
)
