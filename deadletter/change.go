package deadletter

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/change"
)

// Discard gives up the dead events that match, in the order in which they died, and returns how
// many it discarded. audit.Reason is required.
//
// Discarded events move to the archive. Their rows in the table inbox stay, so a discarded event
// stays discarded if it is delivered again. Later events of its key continue.
//
// Discard chooses the events when it begins. It skips an event that is no longer dead when its turn
// comes. Each transaction discards up to 1,000 events and adds a row to the audit.
func (s *Store) Discard(ctx context.Context, f Filter, o ChangeOptions, audit postroom.Audit) (int64, error) {
	//guard:a-discard-needs-a-reason false
	if audit.Reason == "" {
		return 0, errors.New("deadletter: discard: Audit.Reason is empty: say why")
	}
	if f.Discarded {
		return 0, errors.New("deadletter: discard: the filter selects events that are already discarded")
	}
	b := bulkChange{&s.database, f, o, audit}
	n, err := b.run(ctx, b.discard)
	if err != nil {
		return n, fmt.Errorf("deadletter: discard: %w", s.explain(err))
	}
	return n, nil
}

// Reopen brings back the discarded events that match, and returns how many. It chooses them as [Store.Discard] does. Reopened events are dead again. They block no
// other event, because later events of their keys may have taken effect.
func (s *Store) Reopen(ctx context.Context, f Filter, o ChangeOptions, audit postroom.Audit) (int64, error) {
	f.Discarded = true
	b := bulkChange{&s.database, f, o, audit}
	n, err := b.run(ctx, b.reopen)
	if err != nil {
		return n, fmt.Errorf("deadletter: reopen: %w", s.explain(err))
	}
	return n, nil
}

// Edit changes the body, the content type or the headers of a dead event. The event gets a new
// revision; the database keeps the old one. The event keeps its identity, and its inbox row does
// not change: if the original is delivered again, it is a duplicate. Steps that are done stay done.
//
// If two operators may edit the event at the same time, set Edit.Revision. Then the second call of
// Edit returns [ErrEdited]. Edit returns [ErrStepOpen] if a step has begun and its outcome is
// unknown (see [Store.Resolve]), and [ErrNotDead] if the event is not dead.
func (s *Store) Edit(ctx context.Context, id int64, c Edit, audit postroom.Audit) (EditResult, error) {
	if err := errors.Join(s.err, validAudit(audit)); err != nil {
		return EditResult{}, err
	}
	if c.Data == nil && c.ContentType == "" && c.Headers == nil {
		return EditResult{}, errors.New("deadletter: edit: the Edit is empty: set Data, ContentType or Headers")
	}
	var result EditResult
	err := s.inTx(ctx, func(tx pgx.Tx) error {
		e, err := lockDead(ctx, tx, s.sql.LockDead, id)
		if err != nil {
			return err
		}
		//guard:an-edit-of-another-revision-is-refused false
		if c.Revision != nil && *c.Revision != e.revision {
			return fmt.Errorf("%w: it is at revision %d, and this edit was made from revision %d; look at the event again", ErrEdited, e.revision, *c.Revision)
		}
		//guard:a-step-that-is-open-is-not-edited false
		if len(e.open) > 0 {
			return fmt.Errorf("%w: %s; ask the vendor whether the call happened, then call Resolve", ErrStepOpen, strings.Join(e.open, ", "))
		}
		args, err := e.arguments(ctx, s.reader(tx), id, c)
		if err != nil {
			return err
		}
		auditID, err := s.tables.Audit(ctx, tx, change.Action{
			Name: "edit", By: audit, Events: 1, Handler: e.handler, Source: e.source, Event: e.event,
			Details: map[string]any{"revision": e.revision + 1, "steps_done": e.done},
		})
		if err != nil {
			return err
		}
		result.StepsDone = e.done
		if err := tx.QueryRow(ctx, s.sql.Edit, append(args, auditID)...).Scan(&result.Revision); err != nil {
			return fmt.Errorf("store the revision: %w", err)
		}
		return nil
	})
	if err != nil {
		return EditResult{}, fmt.Errorf("deadletter: edit event %d: %w", id, s.explain(err))
	}
	return result, nil
}

// Resolve records the outcome of a step's call, if this outcome is unknown. Ask the vendor first.
// If the call happened, pass as result what the step's function would have returned, as JSON: for
// instance "ch_123" with its quotes for a string, or null if the handler does not use the result.
// Then no attempt calls the step again. If the call did not happen, the next attempt calls the step,
// and Resolve ignores result. Resolve cannot check that result has the type of the step: if it has
// not, the step returns an error in each attempt.
func (s *Store) Resolve(ctx context.Context, id int64, step string, happened bool, result json.RawMessage, audit postroom.Audit) error {
	if err := errors.Join(s.err, validAudit(audit)); err != nil {
		return err
	}
	//guard:a-told-result-is-json false
	if happened && !json.Valid(result) {
		return fmt.Errorf("deadletter: resolve a step of event %d: the result is not JSON: give what the step would have returned, for instance \"ch_123\" with its quotes, or null", id)
	}
	err := s.inTx(ctx, func(tx pgx.Tx) error {
		e, err := lockDead(ctx, tx, s.sql.LockDead, id)
		if err != nil {
			return err
		}
		sql, args := s.sql.ResolveNotHappened, []any{e.handler, value(e.dedupeKey), step}
		if happened {
			sql, args = s.sql.ResolveHappened, append(args, []byte(result))
		}
		tag, err := tx.Exec(ctx, sql, args...)
		if err != nil {
			return fmt.Errorf("record the outcome: %w", err)
		}
		//guard:a-resolved-step-was-open remove
		if tag.RowsAffected() == 0 {
			open := cmp.Or(strings.Join(e.open, ", "), "none")
			return fmt.Errorf("step %q: %w: this step has no open call; steps with an open call: %s", step, ErrNotFound, open)
		}
		_, err = s.tables.Audit(ctx, tx, change.Action{
			Name: "resolve", By: audit, Events: 1, Handler: e.handler, Source: e.source, Event: e.event,
			Details: map[string]any{"step": step, "happened": happened},
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("deadletter: resolve a step of event %d: %w", id, s.explain(err))
	}
	return nil
}

// Purge writes to w the events that were discarded before the time o.Before, as Export does, and then
// deletes these events. While an event is in the archive, its inbox row does not expire. After the
// purge this row can expire. Purge also writes and deletes the earlier revisions that an edit
// replaced before the given time, if the event is no longer held: a line of w has the id, event_id
// and revisions of the event. Purge deletes replays that ended before that time. It keeps the audit.
//
// An outgoing event stays in the archive while the log has it: without its row in the archive, a
// republish would publish it. An event of a republish need not stay: it was published before.
//
// If w has a method Flush, Purge calls Flush. If Write or Flush fails, Purge deletes nothing. After
// [ErrUnknownOutcome] the events may be deleted: keep the text that w got. After any other error
// nothing is deleted. If a purged event is delivered again after its inbox row has expired, it is a
// new event.
func (s *Store) Purge(ctx context.Context, w io.Writer, o PurgeOptions, audit postroom.Audit) (int64, error) {
	before := o.Before
	complete := false // the transaction did everything except its commit
	if err := errors.Join(s.err, validAudit(audit)); err != nil {
		return 0, err
	}
	if before.IsZero() {
		return 0, errors.New("deadletter: purge: Before is zero: give the time before which events, revisions and replays are old")
	}
	var n int64
	err := s.tables.InTxOnce(ctx, func(tx pgx.Tx) error { // once, because bytes that w got cannot be taken back
		_, ids, err := s.reader(tx).export(ctx, Filter{Discarded: true, Until: before}, true, w, o.Progress)
		if err != nil {
			return err
		}
		if err := tx.QueryRow(ctx, s.sql.Purge, ids, before).Scan(&n); err != nil {
			return fmt.Errorf("remove from the archive: %w", err)
		}
		if n != int64(len(ids)) {
			return errors.New("another operator reopened or purged some of the events in the meantime; try again")
		}
		edited := int64(0)
		err = s.reader(tx).write(ctx, w, s.sql.PurgeRevisions, []any{before}, func(int64) { edited++ })
		if err != nil {
			return fmt.Errorf("remove old revisions: %w", err)
		}
		old, err := tx.Exec(ctx, s.sql.PurgeReplays, before)
		if err != nil {
			return fmt.Errorf("remove old replays: %w", err)
		}
		if n+edited+old.RowsAffected() == 0 {
			return ErrNoMatch
		}
		_, err = s.tables.Audit(ctx, tx, change.Action{Name: "purge", By: audit, Events: n, Details: map[string]any{"before": before, "replays": old.RowsAffected()}})
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
