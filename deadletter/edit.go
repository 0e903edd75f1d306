package deadletter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
)

// Change is what an edit changes. What is nil or empty stays as it is.
type Change struct {
	Data        []byte
	ContentType string
	Headers     map[string]string // all of them: what is not there is removed
}

// Edited is what an edit did.
type Edited struct {
	Revision int      `json:"revision"`
	Done     []string `json:"done"` // the steps that are done and will not be called again
}

// editable is a dead event that is locked.
type editable struct {
	handler, source, event string
	dedupeKey              *string
	revision               int
	contentType            string
	headers                []byte
	raw                    bool // it is a message that is no event
	open, done             []string
}

// Edit gives a dead event another body, content type or headers, as its next revision,
// and keeps what it was. Identity and digest stay: when the event comes again as it was,
// it is known. Steps of calls that are done stay done. It returns [ErrStepOpen] while one
// was begun and is not known to be done ([Store.Resolve]), and [ErrNotDead] for any
// other than a dead event.
func (s *Store) Edit(ctx context.Context, id int64, c Change, by By) (Edited, error) {
	if err := errors.Join(s.err, by.validate()); err != nil {
		return Edited{}, err
	}
	if c.Data == nil && c.ContentType == "" && c.Headers == nil {
		return Edited{}, errors.New("deadletter: edit: nothing is changed")
	}
	var result Edited
	err := s.within(ctx, func(tx pgx.Tx) error {
		e, err := s.lockDead(ctx, tx, id)
		if err != nil {
			return err
		}
		if len(e.open) > 0 {
			return fmt.Errorf("%w: %s; ask the vendor, then say what happened with Resolve", ErrStepOpen, strings.Join(e.open, ", "))
		}
		args, err := s.editArguments(ctx, tx, id, e, c)
		if err != nil {
			return err
		}
		audit, err := s.audit(ctx, tx, action{
			name: "edit", by: by, events: 1, handler: e.handler, source: e.source, event: e.event,
			details: map[string]any{"revision": e.revision + 1, "steps_done": e.done},
		})
		if err != nil {
			return err
		}
		result.Done = e.done
		if err := tx.QueryRow(ctx, s.sql.edit, append(args, audit)...).Scan(&result.Revision); err != nil {
			return fmt.Errorf("store the revision: %w", err)
		}
		return nil
	})
	if err != nil {
		return Edited{}, fmt.Errorf("deadletter: edit event %d: %w", id, s.advise(err))
	}
	return result, nil
}

// editArguments are the parameters of edit.sql but for the last.
func (s *Store) editArguments(ctx context.Context, tx pgx.Tx, id int64, e *editable, c Change) ([]any, error) {
	w, err := (&Store{db: tx, sql: s.sql}).whole(ctx, id)
	if err != nil {
		return nil, err
	}
	if c.Data != nil {
		w.Data = c.Data
	}
	if c.ContentType != "" {
		w.ContentType = c.ContentType
	}
	if c.Headers != nil {
		w.Headers = c.Headers
	}
	if e.raw && (c.Headers != nil || c.ContentType != "") {
		return nil, errors.New("it is a message that is no event: only its body can be edited")
	}
	if !e.raw {
		// What is changed has to be sound. The rest is as somebody else's system sent it.
		ev := postroom.Event{Type: "edited", ContentType: c.ContentType, Data: c.Data, Headers: c.Headers}
		check := ev.ValidateAccepted // it is run from here, and not published
		if e.handler == Outgoing {
			check = ev.Validate
		}
		if err := check(); err != nil {
			return nil, err
		}
		if isJSON(w.ContentType) && c.Data != nil && !json.Valid(w.Data) {
			return nil, fmt.Errorf("the body is no JSON, and its content type is %s", w.ContentType)
		}
	}
	var headers *string
	if w.Headers != nil {
		if headers, err = document(w.Headers); err != nil {
			return nil, err
		}
	}
	return []any{id, w.Data, w.ContentType, headers}, nil
}

func isJSON(contentType string) bool {
	media, _, _ := strings.Cut(strings.ToLower(contentType), ";")
	media = strings.TrimSpace(media)
	return media == "application/json" || strings.HasSuffix(media, "+json")
}

// lockDead reads a dead event, and keeps it as it is.
func (s *Store) lockDead(ctx context.Context, tx pgx.Tx, id int64) (*editable, error) {
	e := &editable{}
	err := tx.QueryRow(ctx, s.sql.lockDead, id).Scan(&e.handler, &e.dedupeKey, &e.source, &e.event, &e.revision, &e.contentType, &e.headers, &e.raw,
		&e.open, &e.done)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, ErrNotDead
	}
	if err != nil {
		return nil, fmt.Errorf("lock the event: %w", err)
	}
	return e, nil
}

// Resolve says what became of a call that was begun, and of which nobody knows whether
// it happened: an operator asked the vendor. Where it happened, result is what the
// step's function would have returned, and the step is not called again; where it did
// not, the next attempt calls it.
func (s *Store) Resolve(ctx context.Context, id int64, step string, happened bool, result []byte, by By) error {
	if err := errors.Join(s.err, by.validate()); err != nil {
		return err
	}
	err := s.within(ctx, func(tx pgx.Tx) error {
		e, err := s.lockDead(ctx, tx, id)
		if err != nil {
			return err
		}
		sql, args := s.sql.resolveUndone, []any{e.handler, value(e.dedupeKey), step}
		if happened {
			sql, args = s.sql.resolveDone, append(args, result)
		}
		tag, err := tx.Exec(ctx, sql, args...)
		if err != nil {
			return fmt.Errorf("note it: %w", err)
		}
		if tag.RowsAffected() == 0 {
			return fmt.Errorf("step %q: %w: no call of that name is open; open are: %s", step, ErrNotFound, strings.Join(e.open, ", "))
		}
		_, err = s.audit(ctx, tx, action{
			name: "resolve", by: by, events: 1, handler: e.handler, source: e.source, event: e.event,
			details: map[string]any{"step": step, "happened": happened},
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("deadletter: resolve a step of event %d: %w", id, s.advise(err))
	}
	return nil
}
