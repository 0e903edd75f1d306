package pglog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/internal/seqset"
	"github.com/postroom/postroom/relay/broker"
)

// checkpointEvery is how often a recorder makes a checkpoint. If a stream loses its end, the relay
// compares the stream only with the events since the last checkpoint before the loss.
const checkpointEvery = 10 * time.Second

// maxNoted limits how many events that were published from the table held, or for a republish, are
// noted in one checkpoint. Each recording of such events writes the list of the last checkpoint again.
const maxNoted = 10 * maxRows

// recorder stores the results of events while the lease of its term lasts.
type recorder struct {
	lease        *lease
	memory       *memory
	recorded     state // the content of the row of the table relay
	positions    map[string]broker.StreamPosition
	late         seqset.Set // lost events that must be republished; kept until recordings have ordered the republishes
	checkpointAt time.Time  // when the last checkpoint was made
	hidden       bool       // the recorded state lacks some lost events, or the order to republish some
	noted        int        // the number of events that were noted in that checkpoint
}

// Positions returns the positions that the streams had when the term began. Call it
// before the first Record.
func (r *recorder) Positions() []broker.StreamPosition {
	return slices.Collect(maps.Values(r.positions))
}

// Record stores the results of events with the epoch of this term, and renews the lease. If
// another term has begun, Record stores nothing and returns [eventlog.ErrLeaseLost]. After
// any other error it is unknown whether the results were stored.
//
// One call writes a limited number of rows and bytes (budget.go). Unrecorded says what is left.
func (r *recorder) Record(ctx context.Context, p eventlog.Progress) error {
	for _, at := range p.Positions {
		r.positions[at.Stream] = at
	}
	next, held, hidden := r.memory.addResults(p, r.lease.epoch)
	//guard:late-events-survive-a-failed-recording = @1
	r.late = r.late.Union(seqset.Of(slices.Clone(p.LostBehindKey)))
	//guard:an-order-of-lost-events-is-bounded = len(r.late)
	n := min(len(r.late), maxRanges)
	held.late = r.late[:n]
	// The positions move only when the recorded state has all that the streams lost. Until then, the
	// next leader would find the loss again.
	next.streams = streamsOf(r.positions)
	//guard:positions-stay-while-lost-events-are-not-recorded false
	if hidden = hidden || n < len(r.late); hidden {
		next.streams = r.recorded.streams
	}
	r.noted += len(held.noted())
	// A lost event is published to another stream if its subject has moved. If that stream loses its end, its
	// last checkpoint must have the event as pending.
	//guard:lost-events-are-in-a-checkpoint false
	if len(p.Lost) > 0 {
		r.checkpointAt = time.Time{}
	}
	//guard:checkpoints-list-few-events-from-held 2 false
	due := time.Since(r.checkpointAt) >= checkpointEvery || r.noted >= maxNoted
	//guard:no-checkpoint-while-a-relay-catches-up 1 true
	whole := next.to == "" && !hidden // a checkpoint must not have events that are published already
	held.checkpoint = due && whole && len(r.positions) > 0 && len(p.Published)+len(p.Lost)+len(p.Republished) > 0
	//guard:what-is-owed-is-recorded-while-idle 2 true
	quiet := len(p.Published)+len(p.Positions) == 0 && next.equal(&r.recorded)
	if err := r.store(ctx, next, held, quiet); err != nil {
		return err
	}
	if held.checkpoint {
		r.checkpointAt, r.noted = time.Now(), 0
	}
	r.late, r.hidden = r.late[n:], hidden
	r.memory.removeStored(&held, p.Returned)
	return nil
}

// Unrecorded returns how many events Record has left to hold, and how many other changes it has left
// to write.
func (r *recorder) Unrecorded() (held, other int) {
	held, other = r.memory.unrecorded()
	return held, other + len(r.late)
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
		if err := r.lease.update(ctx, recordingOf(&next, &held), r.lease.log.sql.Record, r.recordParameters(next)...); err != nil {
			return err
		}
	}
	r.recorded = next
	return nil
}

// recordParameters returns the parameters of record.sql. Pending is NULL if it stays as it is
// recorded.
func (r *recorder) recordParameters(next state) []any {
	var pending, to *string
	//guard:a-long-backlog-is-recorded-once true
	if !next.isListed() || !slices.Equal(next.pending, r.recorded.pending) {
		text := next.pending.String()
		pending = &text
	}
	if next.to != "" {
		to = &next.to
	}
	return []any{r.lease.epoch, next.high, next.floor, next.snap, pending, r.lease.length, next.streams, to, next.passed, next.open.String()}
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
	}
	if noted := held.noted(); len(noted) > 0 {
		batch.Queue(sql.NotePublished, epoch, noted)
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
	err := r.lease.send(ctx, func(ctx context.Context) error {
		results := r.lease.conn.SendBatch(ctx, &batch)
		tag, err := results.Exec()
		if err == nil && tag.RowsAffected() == 0 {
			err = eventlog.ErrLeaseLost
		}
		return errors.Join(err, results.Close())
	})
	if err != nil {
		return fmt.Errorf("outbox: record%s: %w", recordingOf(&next, &held), r.lease.log.advise(err))
	}
	return nil
}

// recordingOf says what a recording has, for an error.
func recordingOf(s *state, c *changes) string {
	var parts []string
	add := func(n int, what string) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, what))
		}
	}
	add(len(c.schedule), "scheduled events to hold")
	add(len(c.hold.seqs)+len(c.holdAgain.seqs), "refused or waiting events to hold")
	add(len(c.published), "published events to remove from held")
	add(c.bytes, "bytes of events")
	add(len(c.keys), "keys")
	add(len(c.late), "ranges of lost events")
	add(s.ranges(), "ranges of pending events")
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}
