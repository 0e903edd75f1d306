// Package control lets operators pause and resume handlers, and the relays of a log.
//
// A pause is a row of the database. All processes that run the handler obey it within two seconds.
// Processes that start later obey it too. A paused handler starts no event, but finishes the events
// that run. The stream keeps the events that are published during the pause. For a paused external
// handler, the inbox still stores events in the table held, but runs none. Paused relays send
// nothing: events wait in the log. Each action writes a row of the audit in the same transaction.
package control

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postroom/postroom/internal/change"
	"github.com/postroom/postroom/internal/held"
	"github.com/postroom/postroom/internal/sqlfile"
	"github.com/postroom/postroom/schema"
)

//go:embed sql/*.sql
var files embed.FS

// statements has this package's statements for one schema, each from a file in sql.
type statements struct{ Pause, Resume, List, Handlers string }

var written = sqlfile.MustRead[statements](files)

// DB is the connection that a [Store] uses: a *pgxpool.Pool or a *pgx.Conn.
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

// Store pauses and resumes handlers and relays. With a *pgxpool.Pool it is safe for concurrent use,
// with a *pgx.Conn it is not.
type Store struct {
	db     DB
	schema string
	err    error // the fault of the Config
	tables change.Tables
	sql    statements
}

// New returns a store. It does no I/O and returns no error: if the Config is wrong,
// [Store.Check] and all other methods return the error.
func New(db DB, cfg Config) *Store {
	name, err := schema.Name(cfg.Schema)
	if err != nil {
		return &Store{db: db, err: fmt.Errorf("control: config: Schema: %w", err)}
	}
	sql := sqlfile.Map(written, func(sql string) string { return schema.In(name, sql) })
	return &Store{db: db, schema: name, tables: change.New(db, name), sql: sql}
}

// Check reports whether the database has the tables that a store needs.
func (s *Store) Check(ctx context.Context) error {
	if s.err != nil {
		return s.err
	}
	return s.tables.Explain(schema.Require(ctx, s.db, s.schema))
}

// Audit says who changes something, and why. Each change stores it in the audit.
type Audit struct {
	Actor  string // required, 255 bytes at most
	Reason string // 4,096 bytes at most; Pause needs one
}

// Relay is the name that the relays have in [Pause.Handler].
const Relay = held.Outgoing

// Pause says that an operator has paused a handler, or the relays.
type Pause struct {
	Handler  string    `json:"handler"` // the handler's name, or Relay
	PausedAt time.Time `json:"paused_at"`
	Until    time.Time `json:"until,omitzero"` // zero if it lasts until an operator ends it
	Actor    string    `json:"actor"`
	Reason   string    `json:"reason"`
}

// ErrNotPaused says that there is no pause to end.
var ErrNotPaused = errors.New("it is not paused")

// Pause pauses a handler for the given time. If length is 0, the pause lasts until [Store.Resume].
// If the handler is paused already, the new pause replaces the old one. You can also pause a
// handler that has never run.
func (s *Store) Pause(ctx context.Context, handler string, length time.Duration, by Audit) error {
	if err := s.validName(handler); err != nil {
		return err
	}
	return s.pause(ctx, handler, length, by)
}

// PauseRelay pauses all relays of the log for the given time. If length is 0, the pause lasts until
// [Store.ResumeRelay]. The relays stop sending within two seconds, and wait for the
// acknowledgements of the events that they have sent. Producers can still write: their events wait
// in the log. If the relays are paused already, the new pause replaces the old one.
func (s *Store) PauseRelay(ctx context.Context, length time.Duration, by Audit) error {
	return s.pause(ctx, Relay, length, by)
}

func (s *Store) pause(ctx context.Context, handler string, length time.Duration, by Audit) error {
	switch err := s.valid(by); {
	case err != nil:
		return err
	case by.Reason == "":
		return errors.New("control: pause: Audit.Reason is empty: say why it is paused")
	case length < 0 || length != 0 && length < time.Second:
		return fmt.Errorf("control: pause: the time is %s, want a second or more, or 0 for no end", length)
	}
	var until *time.Duration
	if length > 0 {
		until = &length
	}
	err := s.tables.InTx(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, s.sql.Pause, handler, until, by.Actor, by.Reason); err != nil {
			return fmt.Errorf("store the pause: %w", err)
		}
		return s.audit(ctx, tx, "pause", handler, by)
	})
	if err != nil {
		return fmt.Errorf("control: pause: %w", s.tables.Explain(err))
	}
	return nil
}

// Resume ends the pause of a handler. It returns [ErrNotPaused] if the handler is not paused.
func (s *Store) Resume(ctx context.Context, handler string, by Audit) error {
	if err := s.validName(handler); err != nil {
		return err
	}
	return s.resume(ctx, handler, by)
}

// ResumeRelay ends the pause of the relays. It returns [ErrNotPaused] if they are not paused.
func (s *Store) ResumeRelay(ctx context.Context, by Audit) error { return s.resume(ctx, Relay, by) }

func (s *Store) resume(ctx context.Context, handler string, by Audit) error {
	if err := s.valid(by); err != nil {
		return err
	}
	err := s.tables.InTx(ctx, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, s.sql.Resume, handler)
		switch {
		case err != nil:
			return fmt.Errorf("end the pause: %w", err)
		case tag.RowsAffected() == 0:
			return ErrNotPaused
		}
		return s.audit(ctx, tx, "resume", handler, by)
	})
	if err != nil {
		return fmt.Errorf("control: resume: %w", s.tables.Explain(err))
	}
	return nil
}

// List returns the pauses that have not ended, sorted by name. The relays have the name [Relay].
func (s *Store) List(ctx context.Context) ([]Pause, error) {
	if s.err != nil {
		return nil, s.err
	}
	rows, _ := s.db.Query(ctx, s.sql.List) // CollectRows reports the error
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (p Pause, err error) {
		var until *time.Time
		if err = row.Scan(&p.Handler, &p.PausedAt, &until, &p.Actor, &p.Reason); until != nil {
			p.Until = *until
		}
		return p, err
	})
	if err != nil {
		return nil, fmt.Errorf("control: list: %w", s.tables.Explain(err))
	}
	return all, nil
}

// Handlers returns the names of the handlers that a process runs now or ran before, sorted.
func (s *Store) Handlers(ctx context.Context) ([]string, error) {
	if s.err != nil {
		return nil, s.err
	}
	rows, _ := s.db.Query(ctx, s.sql.Handlers) // CollectRows reports the error
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("control: handlers: %w", s.tables.Explain(err))
	}
	return names, nil
}

func (s *Store) validName(handler string) error {
	if handler == "" || len(handler) > 128 {
		return errors.New("control: the name of a handler has 1 to 128 bytes")
	}
	if handler == held.Outgoing {
		return fmt.Errorf("control: %s is the relay, which is no handler: use PauseRelay and ResumeRelay", handler)
	}
	return nil
}

func (s *Store) valid(by Audit) error {
	if s.err != nil {
		return s.err
	}
	if err := (change.By{Actor: by.Actor, Reason: by.Reason}).Validate(); err != nil {
		return fmt.Errorf("control: %w", err)
	}
	return nil
}

func (s *Store) audit(ctx context.Context, tx pgx.Tx, name, handler string, by Audit) error {
	_, err := s.tables.Audit(ctx, tx, change.Action{Name: name, By: change.By{Actor: by.Actor, Reason: by.Reason}, Handler: handler})
	return err
}
