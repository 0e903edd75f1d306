package deadletter

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/change"
)

// bulkChange chooses the events that match a filter, and then changes them. Each transaction
// changes a portion of them: see change.Tables.Portions.
type bulkChange struct {
	*database

	filter  Filter
	options ChangeOptions
	by      postroom.Audit
}

// run calls the function do with portions of the ids of the events. It returns the
// sum of the results of that function: the number of events that were changed.
func (s bulkChange) run(ctx context.Context, do func(ctx context.Context, tx pgx.Tx, ids []int64) (int64, error)) (all int64, err error) {
	if err := errors.Join(s.filter.changes(), s.validate(), validAudit(s.by)); err != nil {
		return 0, err
	}
	ids, err := s.choose(ctx)
	if err != nil {
		return 0, err
	}
	err = s.tables.Portions(ctx, ids, func(some []int64) error {
		var n int64
		err := s.inTx(ctx, func(tx pgx.Tx) (err error) {
			n, err = do(ctx, tx, some)
			return err
		})
		if err != nil {
			return err
		}
		all += n
		if s.options.Progress != nil && n > 0 {
			s.options.Progress(all)
		}
		return nil
	})
	if err != nil {
		return all, err
	}
	if all == 0 {
		return 0, ErrNoMatch
	}
	return all, nil
}

// validate checks what the method choose needs.
func (s bulkChange) validate() error {
	if s.options.Limit < 0 {
		return errors.Join(s.err, fmt.Errorf("the limit is %d, want 0 or more", s.options.Limit))
	}
	return errors.Join(s.err, s.filter.validate())
}

// choose returns the ids of the events that match now. The method run does not change events that
// match only later.
func (s bulkChange) choose(ctx context.Context) (ids []int64, err error) {
	err = s.inTx(ctx, func(tx pgx.Tx) (err error) {
		ids, err = s.reader(tx).ids(ctx, s.filter, given(s.options.Limit))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("choose events: %w", err)
	}
	return ids, nil
}

// queryIDs returns the ids that a statement selects.
func queryIDs(ctx context.Context, tx pgx.Tx, sql string, args ...any) ([]int64, error) {
	rows, _ := tx.Query(ctx, sql, args...) // CollectRows reports the error
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}

// discard moves dead events to the archive. It skips an event that a replay has released after the
// method choose selected the event.
func (s bulkChange) discard(ctx context.Context, tx pgx.Tx, ids []int64) (int64, error) {
	if err := s.tables.Lock(ctx, tx, ids); err != nil {
		return 0, err
	}
	ids, err := queryIDs(ctx, tx, s.sql.DiscardLock, ids)
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	id, err := s.auditIDs(ctx, tx, "discard", ids)
	if err != nil {
		return 0, err
	}
	rows, _ := tx.Query(ctx, s.sql.Discard, ids, id) // ForEachRow reports the error
	var handlers, keys []string
	var all, n int64
	var handler string
	var key *string
	_, err = pgx.ForEachRow(rows, []any{&handler, &key, &n}, func() error {
		all += n
		if key != nil {
			handlers, keys = append(handlers, handler), append(keys, *key)
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("move to the archive: %w", err)
	}
	return all, s.tables.Wake(ctx, tx, handlers, keys)
}

// reopen moves events from the archive back to the table held.
func (s bulkChange) reopen(ctx context.Context, tx pgx.Tx, ids []int64) (n int64, err error) {
	if ids, err = queryIDs(ctx, tx, s.sql.ReopenLock, ids); err != nil || len(ids) == 0 {
		return 0, err
	}
	if err := s.tables.LockRelay(ctx, tx, ids); err != nil { // last, because the statement before it may wait for another operator
		return 0, err
	}
	if _, err := s.auditIDs(ctx, tx, "reopen", ids); err != nil {
		return 0, err
	}
	if err := tx.QueryRow(ctx, s.sql.Reopen, ids).Scan(&n); err != nil {
		return 0, fmt.Errorf("move back from the archive: %w", err)
	}
	return n, nil
}

// auditIDs records an action on events. If there is only one event, the record names the event.
func (s bulkChange) auditIDs(ctx context.Context, tx pgx.Tx, name string, ids []int64) (int64, error) {
	a := change.Action{Name: name, By: s.by, Events: int64(len(ids)), IDs: ids, Details: map[string]any{"filter": s.filter.audited()}}
	if len(ids) == 1 {
		w, err := s.reader(tx).details(ctx, ids[0])
		if err != nil {
			return 0, err
		}
		a.Handler, a.Source, a.Event = w.Handler, w.Source, w.EventID
	}
	return s.tables.Audit(ctx, tx, a)
}
