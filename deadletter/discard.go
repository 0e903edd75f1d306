package deadletter

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// mostAtOnce is how many events one transaction discards or reopens. Each may need a
// lock on its key, and the server has room for a few thousand locks in all.
const mostAtOnce = 1000

// Discard gives dead events up that match, the first to die first, limit of them at the
// most, or all where that is zero; for a reason, which is required. They move to the
// archive. Their rows in the ledger stay: a discarded event stays discarded when it
// comes again, and later events of its key go on. It returns how many there were;
// progress, if not nil, is told on the way.
//
// Events are discarded 1,000 in a transaction, each with a row in the audit: what is
// reported to progress has happened.
func (s *Store) Discard(ctx context.Context, f Filter, limit int, by By, progress func(n int64)) (int64, error) {
	if by.Reason == "" {
		return 0, errors.New("deadletter: discard: why? By.Reason is empty")
	}
	if f.Discarded {
		return 0, errors.New("deadletter: discard: these are discarded")
	}
	n, err := s.bulk(ctx, s.sql.find, f, limit, by, progress, s.discard)
	if err != nil {
		return n, fmt.Errorf("deadletter: discard: %w", s.advise(err))
	}
	return n, nil
}

// Reopen brings discarded events back that match, limit of them at the most, or all
// where that is zero. They are dead, and hold up no other event: later ones of their
// keys may have taken effect.
func (s *Store) Reopen(ctx context.Context, f Filter, limit int, by By, progress func(n int64)) (int64, error) {
	f.Discarded = true
	n, err := s.bulk(ctx, s.sql.findDiscarded, f, limit, by, progress, s.reopen)
	if err != nil {
		return n, fmt.Errorf("deadletter: reopen: %w", s.advise(err))
	}
	return n, nil
}

// bulk does something with events that match, part by part.
func (s *Store) bulk(ctx context.Context, find string, f Filter, limit int, by By, progress func(n int64),
	do func(ctx context.Context, tx pgx.Tx, ids []int64, f Filter, by By) (int64, error),
) (all int64, err error) {
	if err := errors.Join(s.err, f.validate(), by.validate()); err != nil {
		return 0, err
	}
	if limit < 0 {
		return 0, fmt.Errorf("limit is %d, want none or more", limit)
	}
	for {
		most := mostAtOnce
		if limit > 0 {
			most = min(most, limit-int(all))
		}
		if most == 0 {
			return all, nil
		}
		var found int
		var n int64
		err := s.within(ctx, func(tx pgx.Tx) error {
			n = 0
			ids, err := numbers(ctx, tx, find, f.arguments(most)...)
			if found = len(ids); err != nil || found == 0 {
				return err
			}
			n, err = do(ctx, tx, ids, f, by)
			return err
		})
		if err != nil {
			return all, err
		}
		all += n
		if progress != nil && n > 0 {
			progress(all)
		}
		if found < most {
			break
		}
	}
	if all == 0 {
		return 0, ErrNothing
	}
	return all, nil
}

// numbers returns the ids that a statement finds.
func numbers(ctx context.Context, tx pgx.Tx, sql string, args ...any) ([]int64, error) {
	rows, _ := tx.Query(ctx, sql, args...) // CollectRows reports the error
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}

// discard moves events to the archive. What is not dead any more, because somebody
// released it meanwhile, is left alone.
func (s *Store) discard(ctx context.Context, tx pgx.Tx, ids []int64, f Filter, by By) (int64, error) {
	if err := s.lockRows(ctx, tx, ids); err != nil {
		return 0, err
	}
	ids, err := numbers(ctx, tx, s.sql.discardLock, ids)
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	id, err := s.auditBulk(ctx, tx, "discard", ids, f, by)
	if err != nil {
		return 0, err
	}
	rows, _ := tx.Query(ctx, s.sql.discard, ids, id) // ForEachRow reports the error
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
	if _, err := tx.Exec(ctx, s.sql.wake, handlers, keys); err != nil {
		return 0, fmt.Errorf("let the next of their keys go on: %w", err)
	}
	return all, nil
}

// reopen moves events back from the archive.
func (s *Store) reopen(ctx context.Context, tx pgx.Tx, ids []int64, f Filter, by By) (n int64, err error) {
	if _, err := tx.Exec(ctx, s.sql.relayLock, ids); err != nil {
		return 0, fmt.Errorf("wait for the relay: %w", err)
	}
	if ids, err = numbers(ctx, tx, s.sql.reopenLock, ids); err != nil || len(ids) == 0 {
		return 0, err
	}
	if _, err := s.auditBulk(ctx, tx, "reopen", ids, f, by); err != nil {
		return 0, err
	}
	if err := tx.QueryRow(ctx, s.sql.reopen, ids).Scan(&n); err != nil {
		return 0, fmt.Errorf("move back from the archive: %w", err)
	}
	return n, nil
}

// auditBulk notes an action on some events; on one, with the event.
func (s *Store) auditBulk(ctx context.Context, tx pgx.Tx, name string, ids []int64, f Filter, by By) (int64, error) {
	a := action{name: name, by: by, events: int64(len(ids)), details: map[string]any{"filter": f}}
	if len(ids) == 1 {
		w, err := (&Store{db: tx, sql: s.sql}).whole(ctx, ids[0])
		if err != nil {
			return 0, err
		}
		a.handler, a.source, a.event = w.Handler, w.Source, w.EventID
	}
	return s.audit(ctx, tx, a)
}
