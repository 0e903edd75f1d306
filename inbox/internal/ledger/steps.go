package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/inbox/internal/delivery"
)

// Step is one call of an external handler, for one event.
type Step struct {
	Handler   string
	Event     string // its dedupe key
	ID        int64  // of the held event, and the epoch of its claim
	Epoch     int64
	Name      string
	Revision  int32
	VendorKey string        // for the vendor
	Window    time.Duration // for how long after its first start it may be called again

	Verdict verdict
	Result  []byte
	Unsure  unsure
}

// verdict says whether a step is to be called; start.sql has what each means.
type verdict string

// Whether a step is to be called.
const (
	VerdictCall    verdict = "call"
	VerdictDone    verdict = "done"
	VerdictUnknown verdict = "unknown"
	VerdictAgain   verdict = "again"
	VerdictLost    verdict = "lost"
)

// unsure is a receipt of calls whose outcome is not known.
type unsure struct {
	Since      time.Time
	Key        string
	Revision   int32
	unanswered int
}

// StartSteps notes that steps begin, and leaves in each its verdict.
func (db *DB) StartSteps(ctx context.Context, steps []*Step) error {
	var handlers, keys, names, vendorKeys []string
	var revisions []int32
	var windows []time.Duration
	var ids, epochs []int64
	for _, s := range steps {
		handlers, keys = append(handlers, s.Handler), append(keys, s.Event)
		names, vendorKeys = append(names, s.Name), append(vendorKeys, s.VendorKey)
		revisions, windows = append(revisions, s.Revision), append(windows, s.Window)
		ids, epochs = append(ids, s.ID), append(epochs, s.Epoch)
	}
	batch := &pgx.Batch{}
	batch.Queue(db.sql.plan)
	batch.Queue(db.sql.start, handlers, keys, names, revisions, vendorKeys, windows, ids, epochs).Query(func(rows pgx.Rows) error {
		for i := 0; rows.Next(); i++ {
			s := steps[i]
			var since *time.Time
			var key *string
			var revision *int32
			var unanswered *int
			if err := rows.Scan(&s.Verdict, &s.Result, &since, &key, &revision, &unanswered); err != nil {
				return err
			}
			s.Unsure = unsure{value(since), value(key), value(revision), value(unanswered)}
		}
		return rows.Err()
	})
	if err := db.pool.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("note that a step begins: %w", err)
	}
	return nil
}

// FinishSteps notes that steps are done, each with its result.
func (db *DB) FinishSteps(ctx context.Context, steps []*Step) error {
	var handlers, keys, names, vendorKeys []string
	var revisions []int32
	var results [][]byte
	for _, s := range steps {
		handlers, keys = append(handlers, s.Handler), append(keys, s.Event)
		names, vendorKeys = append(names, s.Name), append(vendorKeys, s.VendorKey)
		revisions, results = append(revisions, s.Revision), append(results, s.Result)
	}
	batch := &pgx.Batch{}
	batch.Queue(db.sql.plan)
	batch.Queue(db.sql.done, handlers, keys, names, revisions, vendorKeys, results)
	if err := db.pool.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("note that a step is done: %w", err)
	}
	return nil
}

// UndoStep notes that a call that was begun did not happen.
func (db *DB) UndoStep(ctx context.Context, s *Step) error {
	ctx, cancel := context.WithTimeout(ctx, WritePatience)
	defer cancel()
	_, err := db.pool.Exec(ctx, db.sql.undo, s.Handler, s.Event, s.Name, s.Revision)
	if err != nil {
		return delivery.Written(fmt.Errorf("note that a call did not happen: %w", err))
	}
	return nil
}

// ForgetSteps removes a receipt of calls that the vendor says it did none of.
func (db *DB) ForgetSteps(ctx context.Context, s *Step) error {
	ctx, cancel := context.WithTimeout(ctx, WritePatience)
	defer cancel()
	_, err := db.pool.Exec(ctx, db.sql.forget, s.Handler, s.Event, s.Name, s.Unsure.Revision, s.Unsure.Since, s.Unsure.unanswered)
	if err != nil {
		return delivery.Written(fmt.Errorf("note that no call happened: %w", err))
	}
	return nil
}
