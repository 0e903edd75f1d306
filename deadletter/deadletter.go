// Package deadletter is what operators do with events that nobody could handle or
// publish: look at them, find out what they have in common, try them, replay, edit
// and discard them.
//
// Dead events stay in the database until somebody decides. Whatever is done to them
// is noted in the same transaction: who, what, why, and to how many.
//
// A replay runs one handler, or publishes an event that never left, and nothing
// else. What a handler did it did once, and does not do again: the ledger and the
// receipts hold for a replay as for any other attempt.
package deadletter

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postroom/postroom/internal/held"
	"github.com/postroom/postroom/internal/text"
	"github.com/postroom/postroom/schema"
)

var (
	// ErrNotFound is returned for an event or a replay that there is not.
	ErrNotFound = held.ErrNotFound

	// ErrNotDead is returned for an event that is not dead, and so nobody's to change.
	ErrNotDead = errors.New("the event is not dead")

	// ErrNoMatch is returned where no event matches.
	ErrNoMatch = errors.New("no event matches")

	// ErrTooOld is returned for a replay of outgoing events that are older than their
	// consumers may take: they would be held there as too old.
	ErrTooOld = errors.New("events are older than their consumers may take")

	// ErrStepOpen is returned for an edit of an event of which a call was begun and is
	// not known to be done: the vendor may have it, as it was.
	ErrStepOpen = errors.New("a call was begun and its outcome is not known")

	// ErrUnknownOutcome is returned for a purge of which nobody knows whether it took effect:
	// what it wrote may be all that is left of the events.
	ErrUnknownOutcome = errors.New("the connection was lost, and the events may be gone: keep what was written")

	// ErrReplayEnded is returned for a replay that has ended.
	ErrReplayEnded = errors.New("the replay has ended")

	// ErrReplayRunning is returned for a replay that is to be resumed and has not ended.
	ErrReplayRunning = errors.New("the replay runs; drive it on")
)

// Outgoing is the handler of events that are on their way to the broker.
const Outgoing = held.Outgoing

// DB is what a [Store] needs of a database: a *pgxpool.Pool or a *pgx.Conn.
type DB interface {
	Begin(ctx context.Context) (pgx.Tx, error)
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

// Store looks at dead events and acts on them. It is as safe for concurrent use as
// its database: with a *pgxpool.Pool it is, with a *pgx.Conn it is not. Any number of
// stores, in any number of processes, may work on one database.
//
// It searches, changes and replays: search.go, change.go and replay.go have its methods.
type Store struct{ database }

// New returns a store. It does no I/O and cannot fail: a fault of the Config is
// returned by [Store.Check] and all other methods.
func New(db DB, cfg Config) *Store {
	name, err := schema.Name(cfg.Schema)
	if err != nil {
		return &Store{database{db: db, err: fmt.Errorf("deadletter: config: Schema: %w", err)}}
	}
	return &Store{database{db: db, name: name, sql: load(name), held: held.NewReader(name)}}
}

// Audit says who does something, and why. It is kept with what was done.
type Audit struct {
	Actor  string // required, 255 bytes at the most
	Reason string // 4,096 bytes at the most; a discard needs one
}

func (by Audit) validate() error {
	switch {
	case by.Actor == "":
		return errors.New("deadletter: who does it? Audit.Actor is empty")
	case len(by.Actor) > 255 || !text.Valid(by.Actor):
		return errors.New("deadletter: Audit.Actor has to be at most 255 bytes of UTF-8")
	case len(by.Reason) > 4096 || !text.Valid(by.Reason):
		return errors.New("deadletter: Audit.Reason has to be at most 4096 bytes of UTF-8")
	}
	return nil
}
