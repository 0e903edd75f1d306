// Package deadletter lets operators work on dead events: events that a handler could not handle, or
// that the relay could not publish. Operators can list them, group them by cause, try them in a dry
// run, and replay, edit or discard them.
//
// A dead event stays in the database until an operator decides. Each change of a dead event is
// recorded in the transaction of the change: who did what, why, and to how many events.
//
// A replay runs an event only in the handler for which the event is dead. If the relay could not
// publish an event, a replay lets the relay publish it. A replay does not repeat what the handler
// has done before, because its attempts use the inbox rows and the receipts, as all attempts do.
package deadletter

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postroom/postroom/internal/change"
	"github.com/postroom/postroom/internal/held"
	"github.com/postroom/postroom/schema"
)

var (
	// ErrNotFound says that there is no event or replay with this id.
	ErrNotFound = held.ErrNotFound

	// ErrNotDead says that the event is not dead. Only dead events can be changed.
	ErrNotDead = errors.New("the event is not dead")

	// ErrNoMatch says that no event matches the filter.
	ErrNoMatch = errors.New("no event matches")

	// ErrTooOld says that a replay has outgoing events that are too old for their consumers: the
	// consumers would hold these events as dead.
	ErrTooOld = errors.New("events are too old for their consumers")

	// ErrStepOpen says that an event cannot be edited, because a call of its handler began and the
	// outcome of the call is unknown: the vendor may have got data from before the edit.
	ErrStepOpen = errors.New("a call was begun and its outcome is unknown")

	// ErrEdited says that an [Edit] was made from another revision than the event has now.
	ErrEdited = errors.New("another operator edited the event")

	// ErrUnknownOutcome says that a purge may or may not have taken effect. The text that it wrote
	// may be the only copy of the events.
	ErrUnknownOutcome = errors.New("the connection was lost, and the events may be gone: keep what was written")

	// ErrReplayEnded says that the replay has ended.
	ErrReplayEnded = errors.New("the replay has ended")

	// ErrReplayRunning says that the replay cannot be resumed, because it has not ended.
	ErrReplayRunning = errors.New("the replay has not ended; run it")
)

// Outgoing is the handler name, in the table held, of events on their way to the broker.
const Outgoing = held.Outgoing

// DB is the part of a *pgxpool.Pool or a *pgx.Conn that a [Store] uses.
type DB interface {
	Begin(ctx context.Context) (pgx.Tx, error)
	BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// Config tunes a [Store]. The zero value is ready to use.
type Config struct {
	// Schema is the database schema that holds Postroom's tables.
	//
	// Defaults to "postroom".
	Schema string
}

// Store reads and changes dead events. With a *pgxpool.Pool it is safe for concurrent use,
// with a *pgx.Conn it is not. Any number of stores, in any number of processes, may work on
// one database.
type Store struct{ database }

// New returns a store. It does no I/O and cannot fail: if the Config is wrong, [Store.Check]
// and all other methods return the error.
func New(db DB, cfg Config) *Store {
	name, err := schema.Name(cfg.Schema)
	if err != nil {
		return &Store{database{db: db, err: fmt.Errorf("deadletter: config: Schema: %w", err)}}
	}
	return &Store{database{db: db, name: name, sql: load(name), held: held.NewReader(name), tables: change.New(db, name), pause: sleep}}
}

// Audit says who makes a change, and why. It is stored in the transaction of the change.
type Audit struct {
	Actor  string // required, at most 255 bytes
	Reason string // at most 4,096 bytes; a discard requires one
}

func (audit Audit) validate() error {
	if err := change.By(audit).Validate(); err != nil {
		return fmt.Errorf("deadletter: %w", err)
	}
	return nil
}
