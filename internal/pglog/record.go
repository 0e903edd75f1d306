package pglog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/eventlog"
	"github.com/postroom/postroom/internal/seqset"
)

// checkpointEvery is how often a recorder makes a checkpoint. If a stream loses its end, the relay
// compares the stream only with the events since the last checkpoint before the loss.
const checkpointEvery = 10 * time.Second

// recorder stores the results of events while the lease of its term lasts.
type recorder struct {
	lease        *lease
	memory       *memory
	recorded     state // the content of the row of the table relay
	positions    map[string]eventlog.StreamPosition
	late         seqset.Set // lost events that must be republished; kept until a recording has ordered the republish
	checkpointAt time.Time  // when the last checkpoint was made
}

// Positions returns the positions that the streams had when the term began. Call it
// before the first Record.
func (r *recorder) Positions() []eventlog.StreamPosition {
	return slices.Collect(maps.Values(r.positions))
}

// Record stores the results of events with the epoch of this term, and renews the lease. If
// another term has begun, Record stores nothing and returns [eventlog.ErrLeaseLost]. After
// any other error it is unknown whether the results were stored.
func (r *recorder) Record(ctx context.Context, p eventlog.Progress) error {
	for _, at := range p.Positions {
		r.positions[at.Stream] = at
	}
	next, held := r.memory.addResults(p, r.lease.epoch)
	//guard:late-events-survive-a-failed-recording = @1
	r.late = r.late.Union(seqset.Of(slices.Clone(p.LostBehindKey)))
	held.late = r.late
	held.checkpoint = len(r.positions) > 0 && len(p.Published)+len(p.Lost) > 0 && time.Since(r.checkpointAt) >= checkpointEvery
	//guard:what-is-owed-is-recorded-while-idle 3 true
	quiet := len(p.Published)+len(p.Positions) == 0 && next.high == r.recorded.high && slices.Equal(next.pending, r.recorded.pending)
	if err := r.store(ctx, next, held, quiet); err != nil {
		return err
	}
	if held.checkpoint {
		r.checkpointAt = time.Now()
	}
	r.late = nil
	r.memory.removeStored(&held, p.Returned)
	return nil
}

// store writes the state and the changes. Without changes and results (quiet), it only renews the
// lease.
func (r *recorder) store(ctx context.Context, next state, held changes, quiet bool) error {
	switch {
	case !held.empty():
		err := r.storeHeld(ctx, next, held)
		if isAboutData(err) {
			err = r.bisect(ctx, next, held)
		}
		if err != nil {
			return err
		}
	case quiet:
		// Nothing was published and nothing new is pending. The older snapshot stays
		// recorded. Its only effect is that the next leader searches further back.
		return r.lease.renew(ctx)
	default:
		if err := r.lease.update(ctx, r.lease.log.sql.Record, r.recordParameters(next)...); err != nil {
			return err
		}
	}
	r.recorded = next
	return nil
}

// recordParameters returns the parameters of record.sql.
func (r *recorder) recordParameters(next state) []any {
	return []any{r.lease.epoch, next.high, next.floor, next.snap, next.pending.String(), r.lease.length, streamsOf(r.positions)}
}

// storeHeld writes the state and the other changes in one transaction and one round trip.
func (r *recorder) storeHeld(ctx context.Context, next state, held changes) error {
	sql, epoch := &r.lease.log.sql, r.lease.epoch
	var batch pgx.Batch // a batch without BEGIN is one transaction
	batch.Queue(sql.Record, r.recordParameters(next)...)
	if len(held.schedule) > 0 {
		batch.Queue(sql.Schedule, epoch, held.schedule)
	}
	if len(held.published) > 0 {
		batch.Queue(sql.DeletePublished, epoch, held.published)
		batch.Queue(sql.NotePublished, epoch, held.published)
	}
	if len(held.late) > 0 {
		batch.Queue(sql.RepublishLate, epoch, held.late.String(), held.late.Size())
	}
	if held.checkpoint {
		batch.Queue(sql.Checkpoint, epoch)
	}
	if len(held.holdAgain.seqs) > 0 {
		batch.Queue(sql.HoldAgain, held.holdAgain.parameters(epoch)...)
	}
	if len(held.hold.seqs) > 0 {
		batch.Queue(sql.Hold, held.hold.parameters(epoch)...)
	}
	if u := held.unstorable; u != nil {
		batch.Queue(sql.HoldUnstorable, u.parameters(epoch)...)
	}
	if len(held.keys) > 0 {
		batch.Queue(sql.Unblock, epoch, held.keys, append(held.hold.seqs, held.holdAgain.seqs...), append(held.hold.after, held.holdAgain.after...))
	}
	for _, a := range held.republishes {
		batch.Queue(sql.RepublishProgress, a.args...)
	}
	results := r.lease.conn.SendBatch(ctx, &batch)
	tag, err := results.Exec()
	if err == nil && tag.RowsAffected() == 0 {
		err = eventlog.ErrLeaseLost
	}
	if err := errors.Join(err, results.Close()); err != nil {
		return fmt.Errorf("outbox: record: %w", r.lease.log.advise(err))
	}
	return nil
}
