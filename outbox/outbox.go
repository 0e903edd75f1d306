// Package outbox appends events to the log in the caller's transaction, and
// reads the log for the relay.
//
// [Outbox] is the producer's side: [Outbox.Write] inserts events beside the
// domain change that they announce, so that both commit or neither does. There
// is no variant that takes a pool: an event that is written outside the
// caller's transaction can be lost, or announce what never happened, which is
// what an outbox exists to prevent.
//
// [Log] is the relay's side: it hands out every committed event, in order, to
// the one process that leads.
package outbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/propagation"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/schema"
)

// Config describes an [Outbox].
type Config struct {
	// Source names the service in every event it writes, for instance "/shop".
	// An event's id is unique within it. Required.
	Source string

	// Schema is the database schema that holds Postroom's tables.
	//
	// Defaults to "postroom".
	Schema string
}

// Outbox appends events. It is safe for concurrent use and holds no connection.
type Outbox struct {
	source string
	schema string
	sql    statements
	err    error // what is wrong with the Config
}

// New returns an outbox. It does no I/O and cannot fail: faults of the Config
// are returned by [Outbox.Write] and [Outbox.Check].
func New(cfg Config) *Outbox {
	var faults []error
	name, err := schema.Name(cfg.Schema)
	if err != nil {
		faults = append(faults, fmt.Errorf("config: Schema: %w", err))
		name = schema.DefaultName
	}
	if cfg.Source == "" {
		faults = append(faults, errors.New("config: Source is empty: name the service, for instance /shop"))
	}
	if err := (postroom.Event{Type: "check", Source: cfg.Source}).Validate(); err != nil {
		faults = append(faults, fmt.Errorf("config: %w", err))
	}
	return &Outbox{source: cfg.Source, schema: name, sql: load(name), err: errors.Join(faults...)}
}

// Write appends events in the caller's transaction, in one round trip however
// many they are. They are published in this order, for each key, after tx
// commits; write them after the statement that locks what the key names.
//
// An event whose source, id and content are in the log already is left as it is:
// writing again is safe. Empty fields are filled: ID with a UUIDv7, Source with
// the outbox's, Subject with Type, the trace context from ctx.
//
// Faults come with the event they belong to ([*postroom.EventError]), all at
// once. A fault that matches [postroom.ErrInvalidEvent] was found before
// anything was sent: tx is untouched and can go on. After any other error,
// [postroom.ErrEventConflict] included, tx is aborted and nothing of it can be
// committed; to survive a conflict, write inside a savepoint (tx.Begin).
func (o *Outbox) Write(ctx context.Context, tx pgx.Tx, events ...postroom.Event) error {
	if o.err != nil {
		return fmt.Errorf("outbox: %w", o.err)
	}
	if len(events) == 0 {
		return nil
	}
	batch, err := o.prepare(ctx, events)
	if err != nil {
		return fmt.Errorf("outbox: %w", err)
	}
	if err := o.insert(ctx, tx, batch); err != nil {
		return fmt.Errorf("outbox: %w", err)
	}
	return nil
}

// Check reports whether Write could work: the Config and the schema's version.
func (o *Outbox) Check(ctx context.Context, db schema.DB) error {
	if o.err != nil {
		return fmt.Errorf("outbox: %w", o.err)
	}
	return schema.Require(ctx, db, o.schema)
}

// prepare fills and validates events and returns them as columns. An event that
// stands twice among them, with the same content, is kept once.
func (o *Outbox) prepare(ctx context.Context, events []postroom.Event) (*columns, error) {
	var faults []error
	trace := make(propagation.MapCarrier, 2)
	propagation.TraceContext{}.Inject(ctx, trace)

	batch := newColumns(len(events))
	seen := make(map[string]int, len(events))
	for _, ev := range events {
		if err := o.fill(&ev, trace); err != nil {
			faults = append(faults, &postroom.EventError{Op: "write", ID: ev.ID, Type: ev.Type, Err: err})
			continue
		}
		sum := contentDigest(ev)
		if n, ok := seen[ev.ID]; ok {
			if string(batch.digest[n]) != string(sum) {
				faults = append(faults, &postroom.EventError{Op: "write", ID: ev.ID, Type: ev.Type, Err: errTwice})
			}
			continue
		}
		seen[ev.ID] = len(batch.id)
		if err := batch.add(ev, sum); err != nil {
			faults = append(faults, &postroom.EventError{Op: "write", ID: ev.ID, Type: ev.Type, Err: err})
		}
	}
	return batch, errors.Join(faults...)
}

// errTwice is a conflict within one call: found before anything is sent, so it
// is a fault of the input as well.
var errTwice = fmt.Errorf("%w: %w: it stands twice in this call, with different content",
	postroom.ErrInvalidEvent, postroom.ErrEventConflict)

// fill sets what the caller left to the outbox, and validates the event.
func (o *Outbox) fill(ev *postroom.Event, trace propagation.MapCarrier) error {
	var faults []error
	if ev.Source == "" {
		ev.Source = o.source
	}
	if ev.Source != o.source {
		faults = append(faults, &postroom.FieldError{Field: "Source", Problem: "is not this outbox's source; leave it empty"})
	}
	if ev.ID == "" {
		id, err := uuid.NewV7()
		if err != nil {
			return fmt.Errorf("make an id: %w", err)
		}
		ev.ID = id.String()
	}
	if ev.Subject == "" {
		ev.Subject = ev.Type
	}
	if ev.ContentType == "" {
		ev.ContentType = "application/json"
	}
	if ev.TraceParent == "" {
		ev.TraceParent, ev.TraceState = trace["traceparent"], trace["tracestate"]
		if len(ev.TraceState) > postroom.MaxTraceState {
			ev.TraceState = "" // not the caller's doing, and no reason to fail
		}
	}
	return errors.Join(append(faults, ev.Validate())...)
}

// insert sends the events and looks at those that were not inserted.
func (o *Outbox) insert(ctx context.Context, tx pgx.Tx, batch *columns) error {
	rows, _ := tx.Query(ctx, o.sql.write, batch.arguments(o.source)...) // CollectRows reports the error
	taken, err := pgx.CollectRows(rows, pgx.RowToStructByPos[takenRow])
	if err != nil {
		return fmt.Errorf("write: %w", err)
	}
	var conflicts []error
	for _, row := range taken {
		same, err := o.same(ctx, tx, batch, row)
		if err != nil {
			return fmt.Errorf("compare content: %w", err)
		}
		if !same {
			n := row.N - 1
			conflicts = append(conflicts, &postroom.EventError{
				Op: "write", ID: batch.id[n], Type: batch.eventType[n], Err: postroom.ErrEventConflict,
			})
		}
	}
	if len(conflicts) == 0 {
		return nil
	}
	// The events beside the conflicting one are inserted by now. Aborting keeps a
	// caller who overlooks the error from committing a part of them.
	if _, err := tx.Exec(ctx, o.sql.conflict); err == nil {
		return errors.Join(append(conflicts, errors.New("abort: the transaction is still open; roll it back"))...)
	}
	return errors.Join(conflicts...)
}

// takenRow is an event that write.sql did not insert.
type takenRow struct {
	N    int   // its position, from 1
	Same *bool // whether the row that is there has its content; nil: not visible
}

// same reports whether the row that took an event's id has the same content.
func (o *Outbox) same(ctx context.Context, tx pgx.Tx, batch *columns, row takenRow) (bool, error) {
	if row.Same != nil {
		return *row.Same, nil
	}
	// A twin's transaction committed while the insert waited for it: its row is
	// visible to a new statement.
	var same bool
	n := row.N - 1
	err := tx.QueryRow(ctx, o.sql.digest, o.source, batch.id[n], batch.digest[n]).Scan(&same)
	return same, err
}
