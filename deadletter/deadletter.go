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

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/change"
	"github.com/postroom/postroom/internal/held"
	"github.com/postroom/postroom/schema"
)

var (
	// ErrNotFound says that there is no event or replay with this id.
	ErrNotFound = errors.New("not found")

	// ErrNotDead says that the event is not dead. Only dead events can be changed.
	ErrNotDead = errors.New("the event is not dead")

	// ErrNoMatch says that no event matches the filter.
	ErrNoMatch = errors.New("no event matches")

	// ErrNoFilter says that a filter has no condition, and that what was asked for would change all
	// events: set a condition, or All.
	ErrNoFilter = errors.New("the filter has no condition: set one, or All for all events")

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

// DB is what a [Store] uses of a *pgxpool.Pool or a *pgx.Conn. A pgx.Tx will not do: a list is read
// in a transaction of its own, with one snapshot.
type DB interface {
	postroom.DB
	BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error)
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
	return &Store{database{db: db, name: name, sql: load(name), tables: change.New(db, name), pause: sleep}}
}

func validAudit(audit postroom.Audit) error {
	if err := change.Valid(audit); err != nil {
		return fmt.Errorf("deadletter: %w", err)
	}
	return nil
}
