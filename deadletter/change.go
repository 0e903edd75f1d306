package deadletter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// Discard gives dead events up that match, the first to die first, limit of them at the
// most, or all where that is zero; for a reason, which is required. They move to the
// archive. Their rows in the ledger stay: a discarded event stays discarded when it
// comes again, and later events of its key go on. It returns how many there were;
// progress, if not nil, is told on the way.
//
// Events are discarded 1,000 in a transaction, each with a row in the audit: what is
// reported to progress has happened.
func (s *Store) Discard(ctx context.Context, f Filter, limit int, by Audit, progress func(n int64)) (int64, error) {
	if by.Reason == "" {
		return 0, errors.New("deadletter: discard: why? Audit.Reason is empty")
	}
	if f.Discarded {
		return 0, errors.New("deadletter: discard: these are discarded")
	}
	b := bulkChange{&s.database, f, limit, by, progress}
	n, err := b.run(ctx, b.discard)
	if err != nil {
		return n, fmt.Errorf("deadletter: discard: %w", s.explain(err))
	}
	return n, nil
}

// Reopen brings discarded events back that match, limit of them at the most, or all
// where that is zero. They are dead, and hold up no other event: later ones of their
// keys may have taken effect.
func (s *Store) Reopen(ctx context.Context, f Filter, limit int, by Audit, progress func(n int64)) (int64, error) {
	f.Discarded = true
	b := bulkChange{&s.database, f, limit, by, progress}
	n, err := b.run(ctx, b.reopen)
	if err != nil {
		return n, fmt.Errorf("deadletter: reopen: %w", s.explain(err))
	}
	return n, nil
}

// Edit gives a dead event another body, content type or headers, as its next revision,
// and keeps what it was. Identity and digest stay: when the event comes again as it was,
// it is known. Steps of calls that are done stay done. It returns [ErrStepOpen] while one
// was begun and is not known to be done ([Store.Resolve]), and [ErrNotDead] for any
// other than a dead event.
func (s *Store) Edit(ctx context.Context, id int64, c Edit, by Audit) (EditResult, error) {
	if err := errors.Join(s.err, by.validate()); err != nil {
		return EditResult{}, err
	}
	if c.Data == nil && c.ContentType == "" && c.Headers == nil {
		return EditResult{}, errors.New("deadletter: edit: nothing is changed")
	}
	var result EditResult
	err := s.inTx(ctx, func(tx pgx.Tx) error {
		e, err := lockDead(ctx, tx, s.sql.LockDead, id)
		if err != nil {
			return err
		}
		if len(e.open) > 0 {
			return fmt.Errorf("%w: %s; ask the vendor, then say what happened with Resolve", ErrStepOpen, strings.Join(e.open, ", "))
		}
		args, err := e.arguments(ctx, s.reader(tx), id, c)
		if err != nil {
			return err
		}
		audit, err := s.addAudit(ctx, tx, action{
			name: "edit", by: by, events: 1, handler: e.handler, source: e.source, event: e.event,
			details: map[string]any{"revision": e.revision + 1, "steps_done": e.done},
		})
		if err != nil {
			return err
		}
		result.StepsDone = e.done
		if err := tx.QueryRow(ctx, s.sql.Edit, append(args, audit)...).Scan(&result.Revision); err != nil {
			return fmt.Errorf("store the revision: %w", err)
		}
		return nil
	})
	if err != nil {
		return EditResult{}, fmt.Errorf("deadletter: edit event %d: %w", id, s.explain(err))
	}
	return result, nil
}

// Resolve records what became of a call whose outcome is unknown, after an operator has
// asked the vendor. If the call happened, result is what the step's function would have
// returned, and the step is not called again. If it did not happen, the next attempt calls
// the step.
func (s *Store) Resolve(ctx context.Context, id int64, step string, happened bool, result []byte, by Audit) error {
	if err := errors.Join(s.err, by.validate()); err != nil {
		return err
	}
	err := s.inTx(ctx, func(tx pgx.Tx) error {
		e, err := lockDead(ctx, tx, s.sql.LockDead, id)
		if err != nil {
			return err
		}
		sql, args := s.sql.ResolveNotHappened, []any{e.handler, value(e.dedupeKey), step}
		if happened {
			sql, args = s.sql.ResolveHappened, append(args, result)
		}
		tag, err := tx.Exec(ctx, sql, args...)
		if err != nil {
			return fmt.Errorf("note it: %w", err)
		}
		if tag.RowsAffected() == 0 {
			return fmt.Errorf("step %q: %w: no call of that name is open; open are: %s", step, ErrNotFound, strings.Join(e.open, ", "))
		}
		_, err = s.addAudit(ctx, tx, action{
			name: "resolve", by: by, events: 1, handler: e.handler, source: e.source, event: e.event,
			details: map[string]any{"step": step, "happened": happened},
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("deadletter: resolve a step of event %d: %w", id, s.explain(err))
	}
	return nil
}

// Purge writes the events that were discarded before a time to w, then removes them for
// good. Until then the archive keeps their ledger rows. Replays that ended before that time
// are removed, too; the audit stays. If w fails, or its method Flush if it has one, Purge
// removes nothing. After [ErrUnknownOutcome] the events may be removed: keep what was written. After
// any other error nothing is removed. If a purged event comes again after its ledger row has
// expired, it is a new event.
func (s *Store) Purge(ctx context.Context, before time.Time, w io.Writer, by Audit, progress func(n int64)) (int64, error) {
	complete := false // all is done except the commit
	if err := errors.Join(s.err, by.validate()); err != nil {
		return 0, err
	}
	var n int64
	err := s.inTxOnce(ctx, func(tx pgx.Tx) error { // what is written is written
		_, ids, err := s.reader(tx).export(ctx, Filter{Discarded: true, Until: before}, w, progress)
		if err != nil {
			return err
		}
		if err := tx.QueryRow(ctx, s.sql.Purge, ids).Scan(&n); err != nil {
			return fmt.Errorf("remove from the archive: %w", err)
		}
		if n != int64(len(ids)) {
			return errors.New("somebody else reopened or purged some of them meanwhile; try again")
		}
		old, err := tx.Exec(ctx, s.sql.PurgeReplays, before)
		if err != nil {
			return fmt.Errorf("remove old replays: %w", err)
		}
		if n == 0 && old.RowsAffected() == 0 {
			return ErrNoMatch
		}
		_, err = s.addAudit(ctx, tx, action{name: "purge", by: by, events: n, details: map[string]any{"before": before, "replays": old.RowsAffected()}})
		complete = err == nil
		return err
	})
	if complete && err != nil && !notCommitted(err) {
		err = fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
	}
	if err != nil {
		return 0, fmt.Errorf("deadletter: purge: %w", s.explain(err))
	}
	return n, nil
}
