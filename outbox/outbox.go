// Package outbox appends events to the log (the table outbox) in the caller's transaction.
//
// [Outbox] is for producers. [Outbox.Write] inserts events in the transaction that changes
// the domain, so that both commit or neither does. No method takes a pool: an event that is
// written outside the caller's transaction can be lost, or can announce a change that never
// happened.
//
// Package relay reads every committed event from the log, in order, and publishes it.
package outbox

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/remedy"
	"github.com/postroom/postroom/internal/telemetry"
	"github.com/postroom/postroom/schema"
)

// secondPatience limits the time of the second statement of a Write.
const secondPatience = 10 * time.Second

// Config describes an [Outbox].
type Config struct {
	// Source is the name of the service, for instance "/shop". Write sets this name on each event.
	// The id of an event is unique within its source. Required.
	Source string

	// Schema is the database schema that holds Postroom's tables.
	//
	// Defaults to "postroom".
	Schema string
}

// Outbox appends events. It is safe for concurrent use and keeps no connection.
type Outbox struct {
	source string
	schema string
	sql    statements
	err    error // what is wrong with the Config
}

// New returns an outbox. It does no I/O and returns no error: if the Config has faults,
// [Outbox.Write] and [Outbox.Check] return them.
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

// Schema returns the name of the schema that holds the outbox's tables: Config.Schema, or its default.
// If that name is invalid, Schema returns the default.
func (o *Outbox) Schema() string { return o.schema }

// Write appends any number of events in the caller's transaction, in one round trip. After tx
// commits, the events of each key are published in the order of the arguments. Events of different
// transactions keep the order of the commits only if each transaction first locks the row of the
// thing that the key names. So call Write after the statement that locks this row.
//
// If the log already has an event with the same source, id and content, Write changes
// nothing and returns nil. This may take a second round trip. Write fills empty fields: ID
// with a new UUIDv7, Source with the outbox's source, Subject with Type, and the trace
// context from ctx. If your code may write an event twice, set its ID yourself.
//
// Write reports the faults of all events at once, each as a [*postroom.EventError]. If the
// error matches [postroom.ErrInvalidEvent], nothing was sent and tx can go on. After any
// other error, such as [postroom.ErrEventConflict], tx is aborted and cannot commit. If tx
// must go on after a conflict, call Write inside a savepoint (tx.Begin).
func (o *Outbox) Write(ctx context.Context, tx pgx.Tx, events ...postroom.Event) error {
	written, err := o.prepare(telemetry.TraceOf(ctx), events)
	if err != nil || len(written) == 0 {
		return err
	}
	if len(written) == 1 && !written[0].isNew() {
		err = o.writeOne(ctx, tx, written)
	} else {
		sql, parameters := o.insert(written)
		_, err = tx.Exec(ctx, sql, parameters...)
	}
	o.abort(ctx, err, func(ctx context.Context) error {
		_, err := tx.Exec(ctx, o.sql.Abort)
		return err
	}, func(ctx context.Context) {
		if conn := tx.Conn(); conn != nil {
			_ = conn.Close(ctx) // it is closed in any case
		}
	})
	return written.explain(o.advise(err, tx))
}

// abort makes a transaction unable to commit after a statement with an event failed. After an error of
// the server it is already. But if nothing was sent, because ctx has ended or the driver cannot encode a
// value, a caller that ignores the error could commit without the event. The function fail sends a
// statement that fails. If the rows of a query are open, it cannot be sent either, and the function drop
// ends the transaction.
func (o *Outbox) abort(ctx context.Context, err error, fail func(ctx context.Context) error, drop func(ctx context.Context)) {
	//guard:a-transaction-without-its-event-cannot-commit 2 true
	if err == nil || errors.As(err, new(*pgconn.PgError)) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), secondPatience)
	defer cancel()
	err = fail(ctx)
	//guard:open-rows-hide-no-missing-event false
	if !errors.As(err, new(interface{ SQLState() string })) && !errors.Is(err, pgx.ErrTxClosed) && !errors.Is(err, sql.ErrTxDone) { // an ended transaction's connection may have another user
		drop(ctx)
	}
}

// advise adds advice to an error of the database: what to do so that a producer can write. db is
// the connection that returned the error, or nil if the connection is not known.
func (o *Outbox) advise(err error, db any) error {
	return remedy.Explain(err, remedy.Use{Grant: "producer", Schema: o.schema, DB: db})
}

// writeOne inserts one event. If the log has the id already, a second statement compares the event
// with the one in the log. write_one.sql does both at once, but takes the server longer for each
// event, and few events are written twice.
func (o *Outbox) writeOne(ctx context.Context, tx pgx.Tx, one newRows) error {
	tag, err := tx.Exec(ctx, o.sql.InsertOne, one[0].parameters()...)
	if err != nil || tag.RowsAffected() > 0 {
		return err
	}
	// This context does not end with ctx: if ctx ended now, the statement would not be sent, and
	// the caller could still commit the transaction without its event.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), secondPatience)
	defer cancel()
	_, err = tx.Exec(ctx, o.sql.Compare, one[0].Source, one.ids(), one.digests())
	return err
}

// Queue is [Outbox.Write] for a batch. It adds the insert to the caller's statements, so that
// the domain change, its events and the commit take one round trip. If a batch is sent to a
// pool or a connection, outside a transaction, PostgreSQL runs it as one transaction:
//
//	var batch pgx.Batch
//	batch.Queue(insertOrder, order.ID, order.Amount)
//	if err := shop.Queue(&batch, ev); err != nil {
//		return err
//	}
//	return pool.SendBatch(ctx, &batch).Close()
//
// If the context of the batch has ended before it is sent, none of its statements runs. In a transaction
// of yours, roll back then: the transaction could still commit, without the event.
//
// If events have faults, Queue returns the faults and queues nothing. A conflict fails the
// batch and its transaction: Close returns an error that matches
// [postroom.ErrEventConflict]. If you read the results one by one, you get the error of the
// database, with SQLSTATE 23PR1, instead.
//
// The driver prepares all statements of a batch before it runs the first. If tables or rights are
// missing, the preparation fails, and Queue cannot add advice to the error. Pass the error to
// [Outbox.Explain], which adds the advice.
//
// Queue has no context, so it cannot set the trace: set TraceParent yourself. The batch keeps Data,
// so do not change Data before the batch is sent.
func (o *Outbox) Queue(batch *pgx.Batch, events ...postroom.Event) error {
	written, err := o.prepare(telemetry.Trace{}, events)
	if err != nil || len(written) == 0 {
		return err
	}
	sql, parameters := o.insert(written)
	// Fn is set directly, because QueuedQuery.Exec would run the function only after a success.
	batch.Queue(sql, parameters...).Fn = func(results pgx.BatchResults) error {
		_, err := results.Exec()
		return written.explain(o.advise(err, nil))
	}
	return nil
}

// Cancel cancels a scheduled event of this outbox's source, in the caller's transaction: if Cancel
// returned true and tx commits, the event is never published. Cancel works before and after the
// relay moves the event to the table held, and also in the transaction that writes the event. If
// the event is cancelled already, Cancel returns true.
//
// Cancel returns false if the event was published or was not scheduled, or if its time has come,
// because the relay may be publishing it then. The exception is an event that the broker refused:
// if it has no key, or the relay moved it to the table held before its time, Cancel can cancel it
// while it is dead or waits for another attempt. Cancel also returns false if neither the log nor
// the table held has the id, for instance because retention removed the published event.
//
// While a transaction that cancels an event is open, the relay does not publish the event, even if
// it is due. So keep the transaction short. If the transaction has an isolation level above read
// committed, Cancel can fail with a serialization failure: try the transaction again. Cancel moves
// the event to the archive, where discarded events are too, and writes a row of the audit with the
// database role. If the event is written again, it stays cancelled.
func (o *Outbox) Cancel(ctx context.Context, tx pgx.Tx, id string) (cancelled bool, err error) {
	if o.err != nil {
		return false, fmt.Errorf("outbox: %w", o.err)
	}
	if err := tx.QueryRow(ctx, o.sql.Cancel, o.source, id).Scan(&cancelled); err != nil {
		return false, fmt.Errorf("outbox: cancel event %s: %w", id, o.advise(err, tx))
	}
	return cancelled, nil
}

// Explain adds advice to an error of PostgreSQL: if Postroom's tables or the rights to write to
// them are missing, the advice is the command that corrects this. Explain returns any other error
// unchanged. The result wraps err, so that errors.As finds the driver's error. Write and WriteSQL
// give this advice themselves. Call Explain for the error of a batch with [Outbox.Queue]. If one of
// your own statements failed, the advice may be wrong: an error about a missing table of yours has
// the same SQLSTATE.
func (o *Outbox) Explain(err error) error { return o.advise(err, nil) }

// Check returns nil if Write can work: the Config is valid, and the schema has the right version. A
// person must correct an error that matches postroom.ErrUnrecoverable; any other error is an outage.
func (o *Outbox) Check(ctx context.Context, db schema.DB) error {
	if o.err != nil {
		return fmt.Errorf("outbox: %w", postroom.Unrecoverable(o.err))
	}
	return o.advise(schema.Require(ctx, db, o.schema), db)
}

// insert returns a statement and its parameters. The statement inserts the events. If the log
// already has the id of an event, the statement compares the two events.
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

// prepare completes and validates events. If it gets an event twice with the same content, prepare
// returns it once.
func (o *Outbox) prepare(trace telemetry.Trace, events []postroom.Event) (newRows, error) {
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

// errTwice is a conflict between two events of one call. The method prepare finds it before
// anything is sent, so errTwice also matches ErrInvalidEvent.
var errTwice = fmt.Errorf("%w: %w: it stands twice in this call, with different content",
	postroom.ErrInvalidEvent, postroom.ErrEventConflict)

// fill sets the empty fields of an event, and validates it.
func (o *Outbox) fill(ev *postroom.Event, trace telemetry.Trace) error {
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
	// PostgreSQL stores microseconds, and rounds the times that some drivers send.
	ev.NotBefore = ev.NotBefore.Truncate(time.Microsecond)
	//guard:each-driver-writes-the-same-time remove
	ev.Time = ev.Time.Truncate(time.Microsecond)
	if ev.TraceParent == "" {
		ev.TraceParent, ev.TraceState = trace.Parent, trace.State
	}
	//guard:write-refuses-data-that-is-no-json false
	if len(ev.Data) > 0 && isJSON(ev.ContentType) && !json.Valid(ev.Data) {
		faults = append(faults, &postroom.FieldError{Field: "ContentType", Problem: "is that of JSON, and Data is not JSON; put JSON into Data, or set ContentType to what it is, such as text/plain"})
	}
	return errors.Join(append(faults, ev.Validate())...)
}

// isJSON reports whether a content type says that the data is JSON. postroom.write decides in the
// same way.
func isJSON(contentType string) bool {
	if contentType == jsonType {
		return true
	}
	media, _, _ := strings.Cut(contentType, ";")
	media = strings.ToLower(strings.TrimSpace(media))
	return media == jsonType || strings.HasSuffix(media, "+json")
}
