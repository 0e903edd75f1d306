package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/inbox/internal/delivery"
)

// Receipts stores which steps external handlers have called, and settles the events of these
// handlers. One statement writes the items of many workers.
type Receipts struct {
	db               *DB
	starting, ending Group[*delivery.Step]
	settling         Group[*settlement]
}

// NewReceipts returns the receipts in a database.
func NewReceipts(db *DB) *Receipts {
	r := &Receipts{db: db}
	r.starting.Write, r.ending.Write, r.settling.Write = r.start, r.finish, r.settle
	//guard:large-results-go-in-parts remove
	r.ending.Bytes = func(s *delivery.Step) int { return len(s.Result) }
	return r
}

// Start records that a step begins, and stores the verdict in s. Neither Start nor Finish has a
// context, because a caller that gave up would not know whether the record was written.
func (r *Receipts) Start(s *delivery.Step) error { return r.starting.Do(s) }

// Finish records that a step is done, with its result. If another process recorded a result
// earlier, Finish stores that result in s.
func (r *Receipts) Finish(s *delivery.Step) error { return r.ending.Do(s) }

// Settle removes a held event whose handler has nothing to write in the same transaction. If the
// answer is lost, Settle adds the id of the transaction to *doubts.
func (r *Receipts) Settle(id, epoch int64, doubts *[]string) error {
	s := &settlement{id: id, epoch: epoch, doubts: doubts}
	if err := r.settling.Do(s); err != nil {
		return fmt.Errorf("settle: %w", err)
	}
	if !s.settled {
		return delivery.ErrSettled
	}
	return nil
}

// A settlement is an event that a statement settles together with other events.
type settlement struct {
	id, epoch int64
	doubts    *[]string
	settled   bool
}

// settle settles several events with one statement.
func (r *Receipts) settle(ctx context.Context, all []*settlement) error {
	ids, epochs := make([]int64, len(all)), make([]int64, len(all))
	byClaim := make(map[[2]int64]*settlement, len(all))
	for i, s := range all {
		ids[i], epochs[i], byClaim[[2]int64{s.id, s.epoch}] = s.id, s.epoch, s
	}
	batch := &pgx.Batch{}
	batch.Queue(r.db.sql.Plan)
	batch.Queue(r.db.sql.SettleMany, ids, epochs).Query(func(rows pgx.Rows) error {
		var of [2]int64
		_, err := pgx.ForEachRow(rows, []any{&of[0], &of[1]}, func() error {
			byClaim[of].settled = true
			return nil
		})
		return err
	})
	id, err := r.db.known(ctx, batch)
	if err != nil && id != "" && !delivery.IsRefused(err) {
		for _, s := range all {
			*s.doubts = append(*s.doubts, id)
		}
	}
	return err
}

// start records that steps begin, and stores in each step its verdict.
func (r *Receipts) start(ctx context.Context, steps []*delivery.Step) error {
	var handlers, keys, names, vendorKeys, calls []string
	var revisions []int32
	var windows []time.Duration
	var ids, epochs []int64
	for _, s := range steps {
		handlers, keys = append(handlers, s.Handler), append(keys, s.Event)
		names, vendorKeys = append(names, s.Name), append(vendorKeys, s.VendorKey)
		revisions, windows = append(revisions, s.Revision), append(windows, s.Window)
		ids, epochs, calls = append(ids, s.ID), append(epochs, s.Epoch), append(calls, s.Call)
	}
	batch := &pgx.Batch{}
	batch.Queue(r.db.sql.Plan)
	batch.Queue(r.db.sql.Start, handlers, keys, names, revisions, vendorKeys, windows, ids, epochs, calls).Query(func(rows pgx.Rows) error {
		for i := 0; rows.Next(); i++ {
			s := steps[i]
			var since *time.Time
			var key, last *string
			var revision *int32
			var unanswered *int
			if err := rows.Scan(&s.Verdict, &s.Result, &since, &key, &revision, &unanswered, &last); err != nil {
				return err
			}
			s.Unsure = delivery.UnsureStep{Since: value(since), Key: value(key), Revision: value(revision), Unanswered: value(unanswered), Last: value(last)}
		}
		return rows.Err()
	})
	if err := r.db.pool.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("note that a step begins: %w", err)
	}
	return nil
}

// finish records that steps are done, each with its result. It stores in each step the result that
// is recorded.
func (r *Receipts) finish(ctx context.Context, steps []*delivery.Step) error {
	var handlers, keys, names, vendorKeys []string
	var revisions []int32
	var results [][]byte
	for _, s := range steps {
		handlers, keys = append(handlers, s.Handler), append(keys, s.Event)
		names, vendorKeys = append(names, s.Name), append(vendorKeys, s.VendorKey)
		revisions, results = append(revisions, s.Revision), append(results, s.Result)
	}
	batch := &pgx.Batch{}
	batch.Queue(r.db.sql.Plan)
	batch.Queue(r.db.sql.Done, handlers, keys, names, revisions, vendorKeys, results).Query(func(rows pgx.Rows) error {
		for i := 0; rows.Next(); i++ {
			var differs bool
			var recorded []byte
			if err := rows.Scan(&differs, &recorded); err != nil {
				return err
			}
			//guard:a-step-returns-what-is-recorded false
			if differs {
				steps[i].Result = recorded
			}
		}
		return rows.Err()
	})
	if err := r.db.pool.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("note that a step is done: %w", err)
	}
	return nil
}

// Undo records that a call did not happen, after Start recorded that the call began. Undo may be
// repeated. It changes nothing if another call of the step began later.
func (r *Receipts) Undo(ctx context.Context, s *delivery.Step) error {
	ctx, cancel := context.WithTimeout(ctx, WritePatience)
	defer cancel()
	_, err := r.db.pool.Exec(ctx, r.db.sql.Undo, s.Handler, s.Event, s.Name, s.Revision, s.Call)
	if err != nil {
		return delivery.Written(fmt.Errorf("note that a call did not happen: %w", err))
	}
	return nil
}

// Forget removes a receipt. Call it if the called system says that no call of the receipt happened.
func (r *Receipts) Forget(ctx context.Context, s *delivery.Step) error {
	ctx, cancel := context.WithTimeout(ctx, WritePatience)
	defer cancel()
	_, err := r.db.pool.Exec(ctx, r.db.sql.Forget, s.Handler, s.Event, s.Name, s.Unsure.Revision, s.Unsure.Since, s.Unsure.Unanswered, optional(s.Unsure.Last))
	if err != nil {
		return delivery.Written(fmt.Errorf("note that no call happened: %w", err))
	}
	return nil
}
