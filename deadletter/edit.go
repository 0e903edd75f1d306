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

// Edit is a change of an event. A field that has its zero value changes nothing.
type Edit struct {
	Data        []byte
	ContentType string
	Headers     map[string]string // all headers: Store.Edit removes a header that is not in the map

	// Revision is the revision from which the change was made: the Revision of the event that
	// [Store.Get] returned. If the event has another revision now, because another operator edited
	// it, [Store.Edit] changes nothing and returns [ErrEdited]. If Revision is nil, Store.Edit does
	// not compare the revisions.
	Revision *int
}

// EditResult is the result of an edit.
type EditResult struct {
	Revision  int      `json:"revision"`
	StepsDone []string `json:"steps_done"` // steps that are done: no attempt calls them again
}

// lockedEvent is a dead event whose row is locked.
type lockedEvent struct {
	handler, source, event string
	dedupeKey              *string
	revision               int
	contentType            string
	headers                *string // as JSON text
	raw                    bool    // it is a message that could not be read as an event
	open, done             []string
}

// arguments returns the parameters of edit.sql, except the last one.
func (e *lockedEvent) arguments(ctx context.Context, r reader, id int64, c Edit) ([]any, error) {
	w, err := r.details(ctx, id)
	if err != nil {
		return nil, err
	}
	if c.Data != nil {
		w.Data = c.Data
	}
	if c.ContentType != "" {
		w.ContentType = c.ContentType
	}
	if e.raw && (c.Headers != nil || c.ContentType != "") {
		return nil, errors.New("it is a message that could not be read as an event: only its body can be edited")
	}
	if !e.raw {
		// Check only the edited parts: the other parts may be invalid if another system sent them.
		ev := postroom.Event{Type: "edited", ContentType: c.ContentType, Data: c.Data, Headers: c.Headers}
		check := ev.ValidateAccepted // for a handler's event, which is not published
		if e.handler == Outgoing {
			check = ev.Validate
		}
		if err := check(); err != nil {
			return nil, err
		}
		//guard:an-edited-body-is-json false
		if isJSON(w.ContentType) && c.Data != nil && !json.Valid(w.Data) {
			return nil, fmt.Errorf("the body is not valid JSON, but its content type is %s", w.ContentType)
		}
	}
	//guard:an-edit-of-the-body-keeps-the-headers do headers, _ := jsonText(w.Headers)
	headers := e.headers // unchanged, because an operator that writes SQL may have stored values that are not texts
	if c.Headers != nil {
		if headers, err = jsonText(c.Headers); err != nil {
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

// lockDead reads a dead event and locks its row.
func lockDead(ctx context.Context, tx pgx.Tx, sql string, id int64) (*lockedEvent, error) {
	e := &lockedEvent{}
	err := tx.QueryRow(ctx, sql, id).Scan(&e.handler, &e.dedupeKey, &e.source, &e.event, &e.revision, &e.contentType, &e.headers, &e.raw,
		&e.open, &e.done)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, ErrNotDead
	}
	if err != nil {
		return nil, fmt.Errorf("lock the event: %w", err)
	}
	return e, nil
}
