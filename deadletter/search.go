package deadletter

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/change"
	"github.com/postroom/postroom/internal/held"
	"github.com/postroom/postroom/internal/snapshot"
	"github.com/postroom/postroom/schema"
)

// Check returns an error if the database lacks the tables that a Store needs.
func (s *Store) Check(ctx context.Context) error {
	if s.err != nil {
		return s.err
	}
	return s.explain(schema.Require(ctx, s.db, s.name))
}

// List returns a page of the events that match f, and where the next page begins. The most recently
// dead or discarded events come first. With the last page, next is empty. If events are added or
// removed between two pages, the pages still have each other event exactly once.
//
// For a page, List reads at most 50,000 events, or 10,000 if f has a Text. So a page can have fewer
// events than p.Limit, or no events, although there is a next page.
func (s *Store) List(ctx context.Context, f Filter, p postroom.Page) (letters []Letter, next string, err error) {
	limit, errLimit := change.Limit(p)
	after, errAfter := parsePlace(p.After)
	if err := errors.Join(s.err, f.validate(), errLimit, errAfter); err != nil {
		return nil, "", fmt.Errorf("deadletter: list: %w", err)
	}
	var rows []held.Row
	var last place
	err = snapshot.Read(ctx, s.db, func(ctx context.Context, tx pgx.Tx) (err error) {
		rows, last, err = s.reader(tx).list(ctx, f, after, limit)
		return err
	})
	if err != nil {
		return nil, "", fmt.Errorf("deadletter: list: %w", s.explain(err))
	}
	letters = make([]Letter, len(rows))
	for i := range rows {
		letters[i] = newLetter(&rows[i])
	}
	return letters, last.String(), nil
}

// Count returns how many events match f, and whether there may be more. It reads at most 5,000
// events if f has a Text, otherwise 100,000 if f has a Type, Key, Class or Source, and otherwise
// 1,000,000. It begins with the most recently dead or discarded events.
func (s *Store) Count(ctx context.Context, f Filter) (n int64, more bool, err error) {
	if err := errors.Join(s.err, f.validate()); err != nil {
		return 0, false, err
	}
	err = snapshot.Read(ctx, s.db, func(ctx context.Context, tx pgx.Tx) (err error) {
		n, more, err = s.reader(tx).count(ctx, f)
		return err
	})
	if err != nil {
		return 0, false, fmt.Errorf("deadletter: count: %w", s.explain(err))
	}
	return n, more, nil
}

// Choose returns a filter that selects the events that match f now, and no event that matches only
// later. It also returns their number. If limit is not zero, Choose chooses at most limit events:
// those that died first or were discarded first. Show this number to a person before you call
// [Store.Discard] or [Store.Reopen] with the filter. [Store.Preview] does the same for a replay.
func (s *Store) Choose(ctx context.Context, f Filter, limit int) (Filter, int64, error) {
	b := bulkChange{database: &s.database, filter: f, options: ChangeOptions{Limit: limit}}
	err := b.validate()
	var ids []int64
	if err == nil {
		ids, err = b.choose(ctx)
	}
	if err != nil {
		return Filter{}, 0, fmt.Errorf("deadletter: %w", s.explain(err))
	}
	//guard:a-choice-is-fixed 1 = @0.1
	return f.only(ids), int64(len(ids)), nil
}

// Groups groups the dead events that match f by cause: at most 200 groups, the largest first.
//
// Groups counts at most 1,000,000 events, or 50,000 if vacuum has not processed most of the table,
// because counting then takes ten times as long. If there are more dead events, Groups divides this
// limit equally among the causes. Other limits apply if f has IDs, Type, Key, Source, EventID or
// Text: Groups then reads the 50,000 events that died last, or 5,000 if f has a Text.
func (s *Store) Groups(ctx context.Context, f Filter) (GroupList, error) {
	if err := errors.Join(s.err, f.validate()); err != nil {
		return GroupList{}, err
	}
	if f.Discarded {
		return GroupList{}, errors.New("deadletter: groups have dead events, but the filter selects discarded events")
	}
	var list GroupList
	err := snapshot.Read(ctx, s.db, func(ctx context.Context, tx pgx.Tx) (err error) {
		g := groupCounter{reader: s.reader(tx), filter: f}
		if f.IDs != nil || f.Type != "" || f.Key != "" || f.Source != "" || f.EventID != "" || f.Text != "" {
			err = g.find(ctx, false)
		} else if err = g.byCause(ctx); err == nil && f.Cause == "" {
			err = g.find(ctx, true)
		}
		list = g.list()
		return err
	})
	if err != nil {
		return GroupList{}, fmt.Errorf("deadletter: groups: %w", s.explain(err))
	}
	return list, nil
}

// Get returns the event with this id: a held event in any state, or a discarded event.
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

// Export writes to w the events that match f. Each event is a line of JSON with its properties, its
// body, its failures, and in "revisions" what it was before each edit. The body is in "data" if it
// is JSON, in "text" if it is UTF-8, and otherwise in "data_base64". Export returns how many events
// it wrote. If w has a method Flush, like a bufio.Writer, Export calls it at the end.
func (s *Store) Export(ctx context.Context, f Filter, w io.Writer, o ExportOptions) (int64, error) {
	if err := errors.Join(s.err, f.validate()); err != nil {
		return 0, err
	}
	n, _, err := s.reader(s.db).export(ctx, f, false, w, o.Progress)
	if err != nil {
		return n, fmt.Errorf("deadletter: export: %w", s.explain(err))
	}
	return n, nil
}
