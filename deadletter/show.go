package deadletter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Whole is everything that is known of a held event.
type Whole struct {
	Letter

	DedupeKey     string            `json:"dedupe_key,omitempty"` // its key in the ledger
	Blocks        string            `json:"blocks,omitempty"`     // the key that it holds up, or waits for
	Pos           int64             `json:"pos,omitempty"`        // its place in that
	NextAt        *time.Time        `json:"next_at,omitempty"`
	ClaimedBy     string            `json:"claimed_by,omitempty"`
	Solitary      bool              `json:"solitary,omitempty"` // it may be what ends the processes that run it
	FirstFailedAt *time.Time        `json:"first_failed_at,omitempty"`
	Failures      []Failure         `json:"failures,omitempty"` // the last ten, the oldest first
	ContentType   string            `json:"content_type"`
	CorrelationID string            `json:"correlation_id,omitempty"`
	CausationID   string            `json:"causation_id,omitempty"`
	OccurredAt    *time.Time        `json:"occurred_at,omitempty"`
	TraceParent   string            `json:"trace_parent,omitempty"`
	Headers       map[string]string `json:"headers,omitempty"`
	Data          []byte            `json:"data"`                  // base64 in JSON
	RawHeaders    []byte            `json:"raw_headers,omitempty"` // of a message that is no event
	Steps         []Step            `json:"steps,omitempty"`       // of an external handler
	Revisions     []Revision        `json:"revisions,omitempty"`
	History       []Entry           `json:"history,omitempty"`
}

// Failure is an attempt that failed.
type Failure struct {
	At    time.Time `json:"at"`
	Class string    `json:"class"`
	Text  string    `json:"text"`
	Frame string    `json:"frame,omitempty"` // of a panic: where
	Stack string    `json:"stack,omitempty"`
}

// Step is a call of an external handler.
type Step struct {
	Name       string     `json:"name"`
	Revision   int        `json:"revision"`
	Key        string     `json:"key"`        // what the vendor was given
	Unanswered int        `json:"unanswered"` // calls of which nobody knows whether they happened
	StartedAt  time.Time  `json:"started_at"`
	DoneAt     *time.Time `json:"done_at,omitempty"`
	Result     []byte     `json:"result,omitempty"`
}

// Revision is what an event was before it was edited.
type Revision struct {
	Revision    int               `json:"revision"`
	ReplacedAt  time.Time         `json:"replaced_at"`
	Actor       string            `json:"actor"`
	Reason      string            `json:"reason,omitempty"`
	ContentType string            `json:"content_type"`
	Headers     map[string]string `json:"headers,omitempty"`
	Data        []byte            `json:"data"`
}

// Entry is something that an operator did with an event.
type Entry struct {
	At      time.Time `json:"at"`
	Actor   string    `json:"actor"`
	Action  string    `json:"action"`
	Reason  string    `json:"reason,omitempty"`
	Job     int64     `json:"job,omitempty"`
	Outcome string    `json:"outcome,omitempty"` // of its part in a replay
}

// Show returns the held or discarded event with the given id, in whatever state it is.
func (s *Store) Show(ctx context.Context, id int64) (Whole, error) {
	if s.err != nil {
		return Whole{}, s.err
	}
	w, err := s.whole(ctx, id)
	if err == nil {
		w.Steps, err = s.steps(ctx, w.Handler, w.DedupeKey)
	}
	if err == nil {
		w.Revisions, err = s.revisions(ctx, id)
	}
	if err == nil {
		w.History, err = s.history(ctx, w.Letter)
	}
	if err != nil {
		return Whole{}, fmt.Errorf("deadletter: show event %d: %w", id, s.advise(err))
	}
	return w, nil
}

func (s *Store) whole(ctx context.Context, id int64) (Whole, error) {
	rows, _ := s.db.Query(ctx, s.sql.show, id) // CollectOneRow reports the error
	w, err := pgx.CollectOneRow(rows, func(row pgx.CollectableRow) (w Whole, err error) {
		var dedupe, blocks, claimed, correlation, causation, parent *string
		var pos *int64
		var failures, headers []byte
		err = w.scan(row, &dedupe, &blocks, &pos, &w.NextAt, &claimed, &w.Solitary, &w.FirstFailedAt, &failures, &w.ContentType,
			&correlation, &causation, &w.OccurredAt, &parent, &headers, &w.Data, &w.RawHeaders)
		w.DedupeKey, w.Blocks, w.Pos, w.ClaimedBy = value(dedupe), value(blocks), value(pos), value(claimed)
		w.CorrelationID, w.CausationID, w.TraceParent = value(correlation), value(causation), value(parent)
		if err == nil && failures != nil {
			err = json.Unmarshal(failures, &w.Failures)
		}
		if err == nil {
			w.Headers, err = headersOf(headers)
		}
		return w, err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return Whole{}, fmt.Errorf("%w: it is settled, or never was held", ErrNotFound)
	}
	return w, err
}

// headersOf reads a JSON object. What is no text, which a writer in SQL can put there,
// is given as its JSON.
func headersOf(object []byte) (map[string]string, error) {
	if object == nil {
		return nil, nil //nolint:nilnil // no headers are no headers
	}
	var values map[string]any
	if err := json.Unmarshal(object, &values); err != nil {
		return map[string]string{"": string(object)}, nil // no object, and so no headers: an event cannot have such a name
	}
	headers := make(map[string]string, len(values))
	for name, v := range values {
		text, ok := v.(string)
		if !ok {
			encoded, err := json.Marshal(v)
			if err != nil {
				return nil, fmt.Errorf("decode headers: %w", err)
			}
			text = string(encoded)
		}
		headers[name] = text
	}
	return headers, nil
}

func (s *Store) steps(ctx context.Context, handler, dedupeKey string) ([]Step, error) {
	rows, _ := s.db.Query(ctx, s.sql.steps, handler, dedupeKey) // CollectRows reports the error
	steps, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Step])
	if err != nil {
		return nil, fmt.Errorf("read steps: %w", err)
	}
	return steps, nil
}

func (s *Store) revisions(ctx context.Context, id int64) ([]Revision, error) {
	rows, _ := s.db.Query(ctx, s.sql.revisions, id) // CollectRows reports the error
	revisions, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r Revision, err error) {
		var headers []byte
		if err = row.Scan(&r.Revision, &r.ReplacedAt, &r.Actor, &r.Reason, &r.ContentType, &headers, &r.Data); err == nil {
			r.Headers, err = headersOf(headers)
		}
		return r, err
	})
	if err != nil {
		return nil, fmt.Errorf("read revisions: %w", err)
	}
	return revisions, nil
}

func (s *Store) history(ctx context.Context, l Letter) ([]Entry, error) {
	rows, _ := s.db.Query(ctx, s.sql.history, l.Source, l.EventID, l.Handler) // CollectRows reports the error
	entries, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (e Entry, err error) {
		var job *int64
		err = row.Scan(&e.At, &e.Actor, &e.Action, &e.Reason, &job, &e.Outcome)
		e.Job = value(job)
		return e, err
	})
	if err != nil {
		return nil, fmt.Errorf("read history: %w", err)
	}
	return entries, nil
}
