// Package outbox appends events to the log in the caller's transaction.
//
// [Outbox] is the producer's side: [Outbox.Write] inserts events beside the
// domain change that they announce, so that both commit or neither does. There
// is no variant that takes a pool: an event that is written outside the
// caller's transaction can be lost, or announce what never happened, which is
// what an outbox exists to prevent.
//
// [NewLog] is what a relay reads: it hands out every committed event, in order, to the
// one process that leads.
package outbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/remedy"
	"github.com/postroom/postroom/schema"
)

// comparePatience bounds the second statement of a Write.
const comparePatience = 10 * time.Second

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
// writing again is safe, and may take a second round trip. Empty fields are
// filled: ID with a UUIDv7, by which nobody can write the event again, Source with
// the outbox's, Subject with Type, the trace context from ctx.
//
// Faults come with the event they belong to ([*postroom.EventError]), all at
// once. A fault that matches [postroom.ErrInvalidEvent] was found before
// anything was sent: tx is untouched and can go on. After any other error,
// [postroom.ErrEventConflict] included, tx is aborted and nothing of it can be
// committed; to survive a conflict, write inside a savepoint (tx.Begin).
func (o *Outbox) Write(ctx context.Context, tx pgx.Tx, events ...postroom.Event) error {
	written, err := o.prepare(traceOf(ctx), events)
	if err != nil || len(written) == 0 {
		return err
	}
	if len(written) == 1 && !written[0].isNew() {
		return written.explain(o.advise(o.writeOne(ctx, tx, written), tx))
	}
	sql, parameters := o.insert(written)
	_, err = tx.Exec(ctx, sql, parameters...)
	return written.explain(o.advise(err, tx))
}

// advise returns an error of the database with what to do about it, so that a producer
// can write. db is what the error came from, nil if that is not known.
func (o *Outbox) advise(err error, db any) error {
	return remedy.Explain(err, remedy.Use{Grant: "producer", Schema: o.schema, DB: db})
}

// writeOne inserts one event and looks at the count of rows for whether it was
// there. The statement that does both at once, write_one.sql, takes the server
// longer for each event than a second one for the few that are written again.
func (o *Outbox) writeOne(ctx context.Context, tx pgx.Tx, one newRows) error {
	tag, err := tx.Exec(ctx, o.sql.InsertOne, one[0].parameters()...)
	if err != nil || tag.RowsAffected() > 0 {
		return err
	}
	// Not by ctx: where it ended just now, nothing would be sent, and the
	// transaction could still be committed without its event.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), comparePatience)
	defer cancel()
	_, err = tx.Exec(ctx, o.sql.Compare, one[0].Source, one.ids(), one.digests())
	return err
}

// Queue is [Outbox.Write] for a batch: it adds the insert to the caller's
// statements, so that the domain change, its events and the commit are one round
// trip. A batch that is sent to a pool or a connection, without a transaction
// around it, is a transaction of its own:
//
//	var batch pgx.Batch
//	batch.Queue(insertOrder, order.ID, order.Amount)
//	if err := shop.Queue(&batch, ev); err != nil {
//		return err
//	}
//	return pool.SendBatch(ctx, &batch).Close()
//
// Faults of the events are returned at once, and then nothing was queued. A
// conflict fails the batch and its transaction: Close returns an error that
// matches [postroom.ErrEventConflict]. Whoever reads the results one by one gets
// the database's error instead, with SQLSTATE 23PR1.
//
// The driver prepares the statements of a batch before it sends any. If tables or rights
// are missing, it fails there, and its error does not come through Queue: [Outbox.Explain]
// says what to do about it.
//
// Queue has no context to take the trace from: set TraceParent. It keeps Data
// until the batch is sent.
func (o *Outbox) Queue(batch *pgx.Batch, events ...postroom.Event) error {
	written, err := o.prepare(nil, events)
	if err != nil || len(written) == 0 {
		return err
	}
	sql, parameters := o.insert(written)
	// Not by Exec of the queued query: that calls back only if all went well.
	batch.Queue(sql, parameters...).Fn = func(results pgx.BatchResults) error {
		_, err := results.Exec()
		return written.explain(o.advise(err, nil))
	}
	return nil
}

// Explain returns an error with the command that mends it, if it is PostgreSQL's and says
// that Postroom's tables, or the rights to write to them, are missing. It returns any
// other error as it is. What it returns wraps err, so that errors.As finds the driver's
// error. Write and WriteSQL do that themselves; it is for the error of a batch that
// Queue was called for, which may not be a statement of ours: a table of the caller's
// that is missing has the same SQLSTATE.
func (o *Outbox) Explain(err error) error { return o.advise(err, nil) }

// Check reports whether Write could work: the Config and the schema's version.
func (o *Outbox) Check(ctx context.Context, db schema.DB) error {
	if o.err != nil {
		return fmt.Errorf("outbox: %w", o.err)
	}
	return o.advise(schema.Require(ctx, db, o.schema), db)
}

// insert returns the one statement that inserts the events and compares those
// that are there, with its parameters.
func (o *Outbox) insert(written newRows) (sql string, parameters []any) {
	switch {
	case len(written) > 1:
		return o.sql.Write, written.parameters()
	case !written[0].isNew():
		return o.sql.WriteOne, written[0].parameters()
	case written[0].isUsual():
		return o.sql.InsertUsual, written[0].usualParameters()
	}
	return o.sql.InsertNew, written[0].newParameters()
}

// prepare fills and validates events. One that stands twice among them, with
// the same content, is kept once.
func (o *Outbox) prepare(trace propagation.MapCarrier, events []postroom.Event) (newRows, error) {
	if o.err != nil {
		return nil, fmt.Errorf("outbox: %w", o.err)
	}
	var faults []error
	prepared := make(newRows, 0, len(events))
	var seen map[string]int
	if len(events) > 1 {
		seen = make(map[string]int, len(events))
	}
	for i := range events {
		n := len(prepared)
		prepared = append(prepared, newRow{Event: events[i]})
		r := &prepared[n]
		err := o.fill(&r.Event, trace)
		if err == nil {
			err = r.encode()
			r.made = events[i].ID == ""
		}
		first, again := seen[r.ID]
		if err == nil && again && !bytes.Equal(prepared[first].digest, r.digest) {
			err = errTwice
		}
		if err != nil {
			faults = append(faults, &postroom.EventError{Op: "write", ID: r.ID, Type: r.Type, Err: err})
		}
		if err != nil || again {
			prepared = prepared[:n]
			continue
		}
		if seen != nil {
			seen[r.ID] = n
		}
	}
	if len(faults) > 0 {
		return nil, fmt.Errorf("outbox: %w", errors.Join(faults...))
	}
	return prepared, nil
}

func traceOf(ctx context.Context) propagation.MapCarrier {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return nil
	}
	carrier := make(propagation.MapCarrier, 2)
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier
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
		ev.ContentType = jsonType
	}
	ev.NotBefore = ev.NotBefore.Truncate(time.Microsecond) // as it is stored
	if ev.TraceParent == "" {
		ev.TraceParent, ev.TraceState = trace["traceparent"], trace["tracestate"]
		if len(ev.TraceState) > postroom.MaxTraceState {
			ev.TraceState = "" // not the caller's doing, and no reason to fail
		}
	}
	return errors.Join(append(faults, ev.Validate())...)
}
