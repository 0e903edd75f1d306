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
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postroom/postroom/internal/remedy"
	"github.com/postroom/postroom/schema"
)

var (
	// ErrNotFound is returned for an event or a replay that there is not.
	ErrNotFound = errors.New("not found")

	// ErrNotDead is returned for an event that is not dead, and so nobody's to change.
	ErrNotDead = errors.New("the event is not dead")

	// ErrNothing is returned where no event matches.
	ErrNothing = errors.New("no event matches")

	// ErrTooOld is returned for a replay of outgoing events that are older than their
	// consumers may take: they would be held there as too old.
	ErrTooOld = errors.New("events are older than their consumers may take")

	// ErrStepOpen is returned for an edit of an event of which a call was begun and is
	// not known to be done: the vendor may have it, as it was.
	ErrStepOpen = errors.New("a call was begun and its outcome is not known")

	// ErrUnsure is returned for a purge of which nobody knows whether it took effect:
	// what it wrote may be all that is left of the events.
	ErrUnsure = errors.New("the connection was lost, and the events may be gone: keep what was written")

	// ErrEnded is returned for a replay that has ended.
	ErrEnded = errors.New("the replay has ended")

	// ErrRuns is returned for a replay that is to be resumed and has not ended.
	ErrRuns = errors.New("the replay runs; drive it on")
)

// Outgoing is the handler of events that are on their way to the broker.
const Outgoing = "outbox"

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
type Store struct {
	db   DB
	name string // of the schema
	err  error  // what is wrong with the Config
	sql  statements
}

// New returns a store. It does no I/O and cannot fail: a fault of the Config is
// returned by [Store.Check] and all other methods.
func New(db DB, cfg Config) *Store {
	name, err := schema.Name(cfg.Schema)
	if err != nil {
		return &Store{db: db, err: fmt.Errorf("deadletter: config: Schema: %w", err)}
	}
	return &Store{db: db, name: name, sql: load(name)}
}

// Check reports whether the database has the tables that a store needs.
func (s *Store) Check(ctx context.Context) error {
	if s.err != nil {
		return s.err
	}
	return s.advise(schema.Require(ctx, s.db, s.name))
}

// advise returns an error of the database with what to do about it, so that an operator
// can work.
func (s *Store) advise(err error) error {
	return remedy.Explain(err, remedy.Use{Grant: "operator", Schema: s.name, DB: s.db})
}

// By says who does something, and why. It is kept with what was done.
type By struct {
	Actor  string // required, 255 bytes at the most
	Reason string // 4,096 bytes at the most; a discard needs one
}

func (by By) validate() error {
	switch {
	case by.Actor == "":
		return errors.New("deadletter: who does it? By.Actor is empty")
	case len(by.Actor) > 255 || !isText(by.Actor):
		return errors.New("deadletter: By.Actor has to be at most 255 bytes of UTF-8")
	case len(by.Reason) > 4096 || !isText(by.Reason):
		return errors.New("deadletter: By.Reason has to be at most 4096 bytes of UTF-8")
	}
	return nil
}

func isText(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }

// within runs do in a transaction.
func (s *Store) within(ctx context.Context, do func(tx pgx.Tx) error) error {
	if s.err != nil {
		return s.err
	}
	// What loses to another transaction is done again: nothing of it has happened.
	for round := 1; ; round++ {
		err := s.once(ctx, do)
		if err == nil || round == 5 || !lost(err) {
			return err
		}
	}
}

// once runs do in a transaction, and not again.
func (s *Store) once(ctx context.Context, do func(tx pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, s.sql.plan); err != nil {
			return fmt.Errorf("choose plans: %w", err)
		}
		return do(tx)
	})
}

// lost reports whether a transaction lost to another one, and may well succeed now: a
// deadlock, a serialization failure, or two that made one of a key due at once.
func lost(err error) bool {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return false
	}
	return pg.Code == "40001" || pg.Code == "40P01" || pg.Code == "23505" && pg.ConstraintName == "held_key_due"
}

// action is a row of the audit.
type action struct {
	name                   string
	by                     By
	events                 int64
	handler, source, event string // of an action on one event
	job                    int64
	details                any // nil, or what becomes JSON
}

// audit notes an action, and returns its row's id.
func (s *Store) audit(ctx context.Context, tx pgx.Tx, a action) (id int64, err error) {
	var details *string
	if a.details != nil {
		if details, err = document(a.details); err != nil {
			return 0, err
		}
	}
	var job *int64
	if a.job != 0 {
		job = &a.job
	}
	err = tx.QueryRow(ctx, s.sql.audit, a.by.Actor, a.name, a.by.Reason, a.events, optional(a.handler), optional(a.source), optional(a.event),
		job, details).Scan(&id)
	if err != nil {
		return 0, fmt.Errorf("note the action: %w", err)
	}
	return id, nil
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
