package relay

import (
	"context"
	"slices"
	"time"

	"github.com/postroom/postroom/broker"
	"github.com/postroom/postroom/eventlog"
)

// applyResults gives the results to the scheduler, and passes what was acknowledged to the
// recorder.
func (c *dispatcher) applyResults(ctx context.Context) {
	outcomes := c.results.take()
	now := time.Now()
	c.scheduler.SetCovered(c.relay.preflight.covered.Load())
	var counted counts
	acked, repeated := c.acked[:0], c.republished[:0]
	for _, o := range outcomes {
		if b, ok := o.Batch.(*batchSpan); ok {
			b.done(o.Outcome)
		}
		if o.Class != broker.Stored {
			c.applyFailure(ctx, o, now, &counted)
			continue
		}
		c.noteStored(o, &counted)
		if o.IsRepublished() {
			repeated = append(repeated, eventlog.Repeated{Rewind: o.Rewind, Seq: o.Seq})
			c.scheduler.Done(o.Entry, o.Stream, now)
			continue
		}
		acked = append(acked, o.Seq)
		if len(acked) == 1 {
			c.relay.metrics.sample(ctx, o.LoggedAt, o.Sent, now)
		}
		c.scheduler.Done(o.Entry, o.Stream, now)
	}
	c.results.recycle(outcomes)
	c.acked, c.republished = acked, repeated
	counted.rewound += int64(len(repeated))

	many, suspicious := c.buffer.addStored(acked, repeated, &c.ackRanges, counted)
	if many && c.scheduler.InFlight() == 0 {
		signal(c.buffer.idle)
	}
	if suspicious {
		signal(c.recheck)
	}
	if len(acked)+len(repeated) > 0 {
		signal(c.buffer.due)
	}
	c.passHeld()
	c.passRepublished()
	c.reportStreams(ctx)
}

// noteStored counts an event that the broker stored, and notes its position.
func (c *dispatcher) noteStored(o result, counted *counts) {
	switch {
	case !o.Duplicate:
		counted.stored++
		c.ackRanges.addNew(o)
	case o.Sequence > 0:
		counted.duplicate++
		c.ackRanges.addDuplicate(o)
	default: // the answer does not say where it is
		counted.duplicate++
	}
}

// applyFailure takes in an event that was not stored, and reports it: each that is
// dead; of the others, which can be thousands at once, one of each cause every 30
// seconds. One that only waits behind another is no news.
func (c *dispatcher) applyFailure(ctx context.Context, o result, now time.Time, counted *counts) {
	if o.Class == broker.BlockedByKey {
		c.scheduler.ReturnBlocked(o.Entry)
		return
	}
	if o.Class == broker.Unroutable {
		signal(c.relay.preflight.recheck)
		signal(c.recheck)
	}
	event := []any{"seq", o.Seq, "event_id", o.ID, "type", o.Type, "outcome", o.Class.String()}
	tries, held := c.scheduler.Failed(o.Entry, o.Outcome, now)
	dead := held != nil && held.Dead
	c.relay.metrics.failed(ctx, o.Outcome, dead)
	log := c.relay.cfg.Logger
	switch {
	case dead:
		counted.dead++
		log.ErrorContext(ctx, "event dead", append(event, "error", o.Err, "attempt", held.Attempts)...)
		return
	case held == nil:
		counted.retried++
	}
	if held != nil {
		c.relay.lines.Warn(ctx, log, "event held", o.Err, append(event, "attempt", held.Attempts, "after", held.After)...)
	} else {
		c.relay.lines.Warn(ctx, log, "event not published", o.Err, append(event, "tries", tries)...)
	}
}

// reportStreams counts what the streams stored, and tells Health and the log which of them
// are unavailable.
func (c *dispatcher) reportStreams(ctx context.Context) {
	out := c.scheduler.TakeStored(func(stream string, n int64) { c.relay.metrics.acknowledged(ctx, stream, n) })
	slices.Sort(out)
	if slices.Equal(out, c.unavailable) {
		return
	}
	c.unavailable = out
	c.relay.state.setUnavailable(out)
	if len(out) > 0 {
		c.relay.cfg.Logger.WarnContext(ctx, "streams unavailable", "streams", out)
		return
	}
	c.relay.cfg.Logger.InfoContext(ctx, "all streams available again")
}
