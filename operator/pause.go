package operator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/change"
)

// Pause says that an operator has paused a handler, or the relays.
type Pause struct {
	Handler  string    `json:"handler"` // the handler's name, or [Outgoing] for the relays
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
func (s *Store) Pause(ctx context.Context, handler string, length time.Duration, by postroom.Audit) error {
	if err := s.validName(handler); err != nil {
		return err
	}
	return s.pause(ctx, handler, length, by)
}

// PauseRelay pauses all relays of the log for the given time. If length is 0, the pause lasts until
// [Store.ResumeRelay]. The relays stop sending within two seconds, and wait for the
// acknowledgements of the events that they have sent. Producers can still write: their events wait
// in the log. If the relays are paused already, the new pause replaces the old one.
func (s *Store) PauseRelay(ctx context.Context, length time.Duration, by postroom.Audit) error {
	return s.pause(ctx, Outgoing, length, by)
}

func (s *Store) pause(ctx context.Context, handler string, length time.Duration, by postroom.Audit) error {
	switch err := s.valid(by); {
	case err != nil:
		return err
	case by.Reason == "":
		return errors.New("operator: pause: Audit.Reason is empty: say why it is paused")
	case length < 0 || length != 0 && length < time.Second:
		return fmt.Errorf("operator: pause: the time is %s, want a second or more, or 0 for no end", length)
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
		return fmt.Errorf("operator: pause: %w", s.tables.Explain(err))
	}
	return nil
}

// Resume ends the pause of a handler. It returns [ErrNotPaused] if the handler is not paused.
func (s *Store) Resume(ctx context.Context, handler string, by postroom.Audit) error {
	if err := s.validName(handler); err != nil {
		return err
	}
	return s.resume(ctx, handler, by)
}

// ResumeRelay ends the pause of the relays. It returns [ErrNotPaused] if they are not paused.
func (s *Store) ResumeRelay(ctx context.Context, by postroom.Audit) error {
	return s.resume(ctx, Outgoing, by)
}

func (s *Store) resume(ctx context.Context, handler string, by postroom.Audit) error {
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
		return fmt.Errorf("operator: resume: %w", s.tables.Explain(err))
	}
	return nil
}

// Pauses returns the pauses that have not ended, sorted by name. The relays have the name [Outgoing].
func (s *Store) Pauses(ctx context.Context) ([]Pause, error) {
	if s.err != nil {
		return nil, s.err
	}
	rows, _ := s.db.Query(ctx, s.sql.Pauses) // CollectRows reports the error
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (p Pause, err error) {
		var until *time.Time
		if err = row.Scan(&p.Handler, &p.PausedAt, &until, &p.Actor, &p.Reason); until != nil {
			p.Until = *until
		}
		return p, err
	})
	if err != nil {
		return nil, fmt.Errorf("operator: pauses: %w", s.tables.Explain(err))
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
		return nil, fmt.Errorf("operator: handlers: %w", s.tables.Explain(err))
	}
	return names, nil
}

func (s *Store) validName(handler string) error {
	if handler == "" || len(handler) > 128 {
		return errors.New("operator: the name of a handler has 1 to 128 bytes")
	}
	if handler == Outgoing {
		return fmt.Errorf("operator: %s is the relay, which is no handler: use PauseRelay and ResumeRelay", handler)
	}
	return nil
}

func (s *Store) valid(by postroom.Audit) error {
	if s.err != nil {
		return s.err
	}
	if err := change.Valid(by); err != nil {
		return fmt.Errorf("operator: %w", err)
	}
	return nil
}

func (s *Store) audit(ctx context.Context, tx pgx.Tx, name, handler string, by postroom.Audit) error {
	_, err := s.tables.Audit(ctx, tx, change.Action{Name: name, By: by, Handler: handler})
	return err
}
