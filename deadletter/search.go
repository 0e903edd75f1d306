package deadletter

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/internal/held"
	"github.com/postroom/postroom/schema"
)

// Check reports whether the database has the tables that a store needs.
func (s *Store) Check(ctx context.Context) error {
	if s.err != nil {
		return s.err
	}
	return s.explain(schema.Require(ctx, s.db, s.name))
}

// List returns a page of the events that match, the last to die first, and the cursor of the
// next page. The cursor is zero if this is the last page.
func (s *Store) List(ctx context.Context, f Filter, p Page) ([]Letter, Cursor, error) {
	if err := errors.Join(s.err, f.validate()); err != nil {
		return nil, Cursor{}, err
	}
	limit := p.Limit
	if limit == 0 {
		limit = defaultLimit
	}
	if limit < 0 || limit > maxLimit {
		return nil, Cursor{}, fmt.Errorf("deadletter: page: Limit is %d, want 1 to %d", limit, maxLimit)
	}
	rows, next, err := s.held.List(ctx, s.db, held.Filter(f), held.Cursor(p.After), limit)
	if err != nil {
		return nil, Cursor{}, fmt.Errorf("deadletter: list: %w", s.explain(err))
	}
	letters := make([]Letter, len(rows))
	for i := range rows {
		letters[i] = newLetter(&rows[i])
	}
	return letters, Cursor(next), nil
}

// Count returns how many events match.
func (s *Store) Count(ctx context.Context, f Filter) (n int64, err error) {
	if err := errors.Join(s.err, f.validate()); err != nil {
		return 0, err
	}
	if n, err = s.held.Count(ctx, s.db, held.Filter(f)); err != nil {
		return 0, fmt.Errorf("deadletter: count: %w", s.explain(err))
	}
	return n, nil
}

// maxGroups is the most groups that Groups returns.
const maxGroups = 200

// Groups returns the dead events that match, grouped by cause: the largest groups first, at
// most 200, and how many groups there are.
func (s *Store) Groups(ctx context.Context, f Filter) (groups []Group, all int, err error) {
	if err := errors.Join(s.err, f.validate()); err != nil {
		return nil, 0, err
	}
	if f.Discarded {
		return nil, 0, errors.New("deadletter: groups are of dead events; the filter selects discarded ones")
	}
	rows, _ := s.db.Query(ctx, s.sql.Groups, f.arguments(maxGroups)...) // CollectRows reports the error
	groups, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (g Group, err error) {
		var cause, text *string
		err = row.Scan(&cause, &g.Handler, &g.Class, &g.Events, &g.FirstDeadAt, &g.LastDeadAt, &g.ExampleID, &g.Types, &g.Keys, &text, &all)
		g.Cause, g.Error = value(cause), value(text)
		return g, err
	})
	if err != nil {
		return nil, 0, fmt.Errorf("deadletter: groups: %w", s.explain(err))
	}
	return groups, all, nil
}

// Get returns the held or discarded event with an id, in any state.
func (s *Store) Get(ctx context.Context, id int64) (Details, error) {
	if s.err != nil {
		return Details{}, s.err
	}
	r := s.reader(s.db)
	w, err := r.details(ctx, id)
	if err == nil {
		w.Steps, err = r.steps(ctx, w.Handler, w.DedupeKey)
	}
	if err == nil {
		w.Revisions, err = r.revisions(ctx, id)
	}
	if err == nil {
		w.History, err = r.history(ctx, w.Letter)
	}
	if err != nil {
		return Details{}, fmt.Errorf("deadletter: show event %d: %w", id, s.explain(err))
	}
	return w, nil
}

// Export writes the events that match to w, each as a line of JSON with all that the database
// has about it. The body is in "data" if it is JSON, in "text" if it is UTF-8, and otherwise
// in "data_base64". Export returns how many events there are. If w has a method Flush, as a
// bufio.Writer has, Export calls it at the end.
func (s *Store) Export(ctx context.Context, f Filter, w io.Writer, progress func(n int64)) (int64, error) {
	if err := errors.Join(s.err, f.validate()); err != nil {
		return 0, err
	}
	n, _, err := s.reader(s.db).export(ctx, f, w, progress)
	if err != nil {
		return n, fmt.Errorf("deadletter: export: %w", s.explain(err))
	}
	return n, nil
}
