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

// markEvery is how often what is published is marked: so much, and what came after it,
// is compared where a broker lost the end of a stream.
const markEvery = 10 * time.Second

// recorder stores what became of events, by the lease of a term.
type recorder struct {
	lease    *lease
	memory   *memory
	recorded state // what the row says
	places   map[string]eventlog.Place
	marked   time.Time // when the last mark was made
}

// Places returns where streams ended when the last relay recorded that. Call it before
// the first Record.
func (r *recorder) Places() []eventlog.Place { return slices.Collect(maps.Values(r.places)) }

// Record notes what became of events, stores it with the epoch of this term, and
// renews the lease. It returns [eventlog.ErrLeaseLost] where another term has
// begun: then nothing was stored. After any other error it is unknown whether it
// was.
func (r *recorder) Record(ctx context.Context, p eventlog.Progress) error {
	for _, at := range p.Places {
		r.places[at.Stream] = at
	}
	next, held := r.memory.note(p, r.lease.epoch)
	held.late = seqset.Of(slices.Clone(p.Late))
	held.mark = len(r.places) > 0 && len(p.Published)+len(p.Owed) > 0 && time.Since(r.marked) >= markEvery
	quiet := len(p.Published)+len(p.Places) == 0 && next.high == r.recorded.high && slices.Equal(next.pending, r.recorded.pending)
	if err := r.store(ctx, next, held, quiet); err != nil {
		return err
	}
	if held.mark {
		r.marked = time.Now()
	}
	r.memory.stored(&held, p.Returned)
	return nil
}

// store writes the state, unless it is quiet, and the changes to held.
func (r *recorder) store(ctx context.Context, next state, held changes, quiet bool) error {
	switch {
	case !held.empty():
		err := r.storeHeld(ctx, next, held)
		if isAboutData(err) {
			err = r.storeApart(ctx, next, held)
		}
		if err != nil {
			return err
		}
	case quiet:
		// Nothing was published and nothing is newly owed. The older snapshot that
		// stays recorded only makes the next leader look further back.
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
	return []any{r.lease.epoch, next.high, next.floor, next.snap, next.pending.String(), r.lease.length, streamsOf(r.places)}
}

// storeHeld writes the state and the other changes in one transaction and one round
// trip.
func (r *recorder) storeHeld(ctx context.Context, next state, held changes) error {
	sql, epoch := &r.lease.log.sql, r.lease.epoch
	var batch pgx.Batch // without a BEGIN it is one transaction
	batch.Queue(sql.Record, r.recordParameters(next)...)
	if len(held.schedule) > 0 {
		batch.Queue(sql.Schedule, epoch, held.schedule)
	}
	if len(held.settle) > 0 {
		batch.Queue(sql.Settle, epoch, held.settle)
		batch.Queue(sql.Settled, epoch, held.settle)
	}
	if len(held.late) > 0 {
		batch.Queue(sql.Late, epoch, held.late.String(), held.late.Size())
	}
	if held.mark {
		batch.Queue(sql.Mark, epoch)
	}
	if len(held.rehold.seqs) > 0 {
		batch.Queue(sql.Rehold, held.rehold.parameters(epoch)...)
	}
	if len(held.hold.seqs) > 0 {
		batch.Queue(sql.Hold, held.hold.parameters(epoch)...)
	}
	if u := held.unstorable; u != nil {
		batch.Queue(sql.HoldBare, u.parameters(epoch)...)
	}
	if len(held.keys) > 0 {
		batch.Queue(sql.Wake, epoch, held.keys, append(held.hold.seqs, held.rehold.seqs...), append(held.hold.after, held.rehold.after...))
	}
	for _, a := range held.advances {
		batch.Queue(sql.Advance, a.args...)
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
