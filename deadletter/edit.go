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

// Edit is what an edit changes. What is nil or empty stays as it is.
type Edit struct {
	Data        []byte
	ContentType string
	Headers     map[string]string // all of them: what is not there is removed
}

// EditResult is what an edit did.
type EditResult struct {
	Revision  int      `json:"revision"`
	StepsDone []string `json:"steps_done"` // the steps that are done and will not be called again
}

// lockedEvent is a dead event that is locked.
type lockedEvent struct {
	handler, source, event string
	dedupeKey              *string
	revision               int
	contentType            string
	headers                []byte
	raw                    bool // it is a message that is no event
	open, done             []string
}

// arguments returns the parameters of edit.sql, except the last.
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
		if headers, err = jsonText(w.Headers); err != nil {
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
