package inbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/inbox/internal/delivery"
)

// receipts keeps what external handlers have called.
type receipts struct {
	inbox    *Inbox
	starting group[*step]
	ending   group[*step]
}

func newReceipts(in *Inbox) *receipts {
	r := &receipts{inbox: in}
	r.starting.write, r.ending.write = r.start, r.finish
	return r
}

// step is one call of an external handler, for one event.
type step struct {
	claim    *claim
	name     string
	revision int32
	key      string        // for the vendor
	window   time.Duration // for how long after its first start it may be called again

	verdict verdict
	result  []byte
	unsure  unsure
}

// verdict says whether a step is to be called; start.sql has what each means.
type verdict string

const (
	verdictCall    verdict = "call"
	verdictDone    verdict = "done"
	verdictUnknown verdict = "unknown"
	verdictAgain   verdict = "again"
	verdictLost    verdict = "lost"
)

// unsure is a receipt of calls whose outcome is not known.
type unsure struct {
	since      time.Time
	key        string
	revision   int32
	unanswered int
}

// stepKey is what a vendor is given to recognise a repetition: 32 hexadecimal
// digits, the same for each attempt at a step of an event in one revision.
func stepKey(instance string, cl *claim, name string) string {
	h := sha256.New()
	for _, part := range []string{instance, cl.c.sub.Name, cl.Key, name} {
		_, _ = fmt.Fprintf(h, "%d:%s", len(part), part) // so that no two lists read the same
	}
	_, _ = fmt.Fprintf(h, "%d", cl.revision)
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// start notes that steps begin, and leaves in each its verdict.
func (r *receipts) start(ctx context.Context, steps []*step) error {
	var handlers, keys, names, vendorKeys []string
	var revisions []int32
	var windows []time.Duration
	var ids, epochs []int64
	for _, s := range steps {
		handlers, keys = append(handlers, s.claim.c.sub.Name), append(keys, s.claim.Key)
		names, vendorKeys = append(names, s.name), append(vendorKeys, s.key)
		revisions, windows = append(revisions, s.revision), append(windows, s.window)
		ids, epochs = append(ids, s.claim.id), append(epochs, s.claim.epoch)
	}
	batch := &pgx.Batch{}
	batch.Queue(r.inbox.sql.plan)
	batch.Queue(r.inbox.sql.start, handlers, keys, names, revisions, vendorKeys, windows, ids, epochs).Query(func(rows pgx.Rows) error {
		for i := 0; rows.Next(); i++ {
			s := steps[i]
			var since *time.Time
			var key *string
			var revision *int32
			var unanswered *int
			if err := rows.Scan(&s.verdict, &s.result, &since, &key, &revision, &unanswered); err != nil {
				return err
			}
			s.unsure = unsure{value(since), value(key), value(revision), value(unanswered)}
		}
		return rows.Err()
	})
	if err := r.inbox.pool.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("note that a step begins: %w", err)
	}
	return nil
}

// finish notes that steps are done, each with its result.
func (r *receipts) finish(ctx context.Context, steps []*step) error {
	var handlers, keys, names, vendorKeys []string
	var revisions []int32
	var results [][]byte
	for _, s := range steps {
		handlers, keys = append(handlers, s.claim.c.sub.Name), append(keys, s.claim.Key)
		names, vendorKeys = append(names, s.name), append(vendorKeys, s.key)
		revisions, results = append(revisions, s.revision), append(results, s.result)
	}
	batch := &pgx.Batch{}
	batch.Queue(r.inbox.sql.plan)
	batch.Queue(r.inbox.sql.done, handlers, keys, names, revisions, vendorKeys, results)
	if err := r.inbox.pool.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("note that a step is done: %w", err)
	}
	return nil
}

// undo notes that a call that was begun did not happen.
func (r *receipts) undo(ctx context.Context, s *step) error {
	ctx, cancel := context.WithTimeout(ctx, writePatience)
	defer cancel()
	_, err := r.inbox.pool.Exec(ctx, r.inbox.sql.undo, s.claim.c.sub.Name, s.claim.Key, s.name, s.revision)
	if err != nil {
		return delivery.Written(fmt.Errorf("note that a call did not happen: %w", err))
	}
	return nil
}

// forget removes a receipt of calls that the vendor says it did none of.
func (r *receipts) forget(ctx context.Context, s *step) error {
	ctx, cancel := context.WithTimeout(ctx, writePatience)
	defer cancel()
	_, err := r.inbox.pool.Exec(ctx, r.inbox.sql.forget, s.claim.c.sub.Name, s.claim.Key, s.name, s.unsure.revision, s.unsure.since, s.unsure.unanswered)
	if err != nil {
		return delivery.Written(fmt.Errorf("note that no call happened: %w", err))
	}
	return nil
}
