package deadletter

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/internal/held"
)

// A reader reads events, either outside a transaction or in the caller's transaction.
type reader struct {
	db  held.Queryer
	sql *statements
}

// details returns an event without its steps, its revisions and its history.
func (s reader) details(ctx context.Context, id int64) (Details, error) {
	r, c, err := s.show(ctx, id)
	if err != nil {
		return Details{}, err
	}
	w := Details{
		Letter: newLetter(&r), DedupeKey: r.DedupeKey, BlockedKey: r.BlockedKey, Position: r.Position, NextAt: r.NextAt, ClaimedBy: r.ClaimedBy, Isolated: r.Isolated,
		FirstFailedAt: r.FirstFailedAt, ContentType: c.kind, CorrelationID: r.CorrelationID, CausationID: r.CausationID,
		OccurredAt: c.occurredAt, TraceParent: c.traceParent, Data: c.data, RawHeaders: c.rawHeaders, Headers: decodeHeaders(c.headers),
	}
	for _, f := range r.Failures {
		w.Failures = append(w.Failures, Failure(f))
	}
	return w, nil
}

// decodeHeaders decodes headers from a JSON object of texts. If an operator wrote something else with
// SQL, decodeHeaders returns it whole, under the empty name, which no header of an event has.
func decodeHeaders(object []byte) (headers map[string]string) {
	if object == nil {
		return nil
	}
	if err := json.Unmarshal(object, &headers); err != nil {
		return map[string]string{"": string(object)}
	}
	return headers
}

func (s reader) steps(ctx context.Context, handler, dedupeKey string) ([]Step, error) {
	rows, _ := s.db.Query(ctx, s.sql.Steps, handler, dedupeKey) // CollectRows reports the error
	steps, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (s Step, err error) {
		err = row.Scan(&s.Name, &s.Revision, &s.Key, &s.Unanswered, &s.StartedAt, held.Time(&s.DoneAt), &s.Result)
		return s, err
	})
	if err != nil {
		return nil, fmt.Errorf("read steps: %w", err)
	}
	for i, step := range steps {
		//guard:a-result-that-is-no-json-does-not-break-the-others false
		if len(step.Result) > 0 && !json.Valid(step.Result) { // written with SQL
			steps[i].Result, _ = json.Marshal(string(step.Result)) // a string always encodes
		}
	}
	return steps, nil
}

func (s reader) revisions(ctx context.Context, id int64) ([]Revision, error) {
	rows, _ := s.db.Query(ctx, s.sql.Revisions, id) // CollectRows reports the error
	revisions, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r Revision, err error) {
		var headers []byte
		err = row.Scan(&r.Revision, &r.ReplacedAt, &r.Actor, &r.Reason, &r.ContentType, &headers, &r.Data)
		r.Headers = decodeHeaders(headers)
		return r, err
	})
	if err != nil {
		return nil, fmt.Errorf("read revisions: %w", err)
	}
	return revisions, nil
}

func (s reader) history(ctx context.Context, l Letter) ([]AuditEntry, error) {
	rows, _ := s.db.Query(ctx, s.sql.History, l.Source, l.EventID, l.Handler) // CollectRows reports the error
	entries, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (e AuditEntry, err error) {
		var job *int64
		err = row.Scan(&e.At, &e.Actor, &e.Action, &e.Reason, &job, &e.Outcome)
		e.ReplayID = value(job)
		return e, err
	})
	if err != nil {
		return nil, fmt.Errorf("read history: %w", err)
	}
	return entries, nil
}

// export writes events to w. If the parameter purges is true, it writes only events that Purge may
// delete. It returns how many events it wrote and, if they are discarded events, their ids.
func (s reader) export(ctx context.Context, f Filter, purges bool, w io.Writer, progress func(n int64)) (n int64, ids []int64, err error) {
	sql, args := s.sql.Export, f.arguments()
	if f.Discarded {
		sql, args = s.sql.ExportDiscarded, append(args, purges)
	}
	err = s.write(ctx, w, sql, args, func(id int64) {
		n++
		if f.Discarded {
			ids = append(ids, id)
		}
		if progress != nil && n%1000 == 0 {
			progress(n)
		}
	})
	return n, ids, err
}

// write writes the events that a statement returns to w, and calls the function each with the id of
// each event.
func (s reader) write(ctx context.Context, w io.Writer, sql string, args []any, each func(id int64)) error {
	rows, _ := s.db.Query(ctx, sql, args...) // ForEachRow reports the error
	var e exportRow
	_, err := pgx.ForEachRow(rows, e.fields(), func() error {
		line, id, err := e.line()
		if err != nil {
			return err
		}
		if _, err := w.Write(line); err != nil {
			return fmt.Errorf("write: %w", err)
		}
		each(id)
		return nil
	})
	if buffered, ok := w.(interface{ Flush() error }); ok && err == nil {
		if err = buffered.Flush(); err != nil {
			err = fmt.Errorf("write: %w", err)
		}
	}
	return err
}

func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
