package relay

import (
	"context"
	"slices"
	"time"

	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/relay/broker"
)

// applyResults passes the results to the scheduler, and acknowledged events to the recorder.
func (d *dispatcher) applyResults(ctx context.Context) {
	outcomes := d.results.take()
	now := time.Now()
	d.scheduler.SetCovered(d.relay.preflight.covered.Load())
	var counted counts
	drained := false
	acked, repeated := d.acked[:0], d.republished[:0]
	for _, o := range outcomes {
		if b, ok := o.Batch.(*batchSpan); ok {
			b.done(o.Outcome)
		}
		//guard:what-is-not-stored-is-not-recorded = @ && @1 != broker.Unknown
		//planted:unknown-outcome-of-a-batch-counts-as-stored = @ && @1 != broker.Unknown
		if o.Class != broker.Stored {
			d.applyFailure(ctx, o, now, &counted)
			continue
		}
		d.noteStored(o, &counted)
		if o.IsRepublished() {
			repeated = append(repeated, eventlog.RepublishResult{RepublishID: o.RepublishID, Seq: o.Seq})
			d.scheduler.Done(o.Entry, o.Stream, now)
			continue
		}
		acked = append(acked, o.Seq)
		drained = drained || o.Held
		if len(acked) == 1 {
			d.relay.metrics.sample(ctx, o.LoggedAt, o.Sent, now)
		}
		d.scheduler.Done(o.Entry, o.Stream, now)
	}
	d.results.recycle(outcomes)
	d.acked, d.republished = acked, repeated
	counted.republished += int64(len(repeated))

	many, suspicious := d.buffer.addStored(acked, drained, repeated, &d.acks, counted)
	if many && d.scheduler.InFlight() == 0 {
		signal(d.buffer.idle)
	}
	if suspicious {
		signal(d.recheck)
	}
	if len(acked)+len(repeated) > 0 {
		signal(d.buffer.due)
	}
	d.passHeld()
	d.passRepublished()
	d.reportStreams(ctx)
}

// noteStored counts an event that the broker stored, and notes its position.
func (d *dispatcher) noteStored(o result, counted *counts) {
	switch {
	case !o.Duplicate:
		counted.stored++
		d.acks.AddNew(o.Entry, o.Outcome)
	case o.Sequence > 0:
		counted.duplicate++
		d.acks.AddDuplicate(o.Entry, o.Outcome)
	default: // the answer does not say where the stream has the event
		counted.duplicate++
	}
}

// applyFailure handles an event that was not stored. It logs each dead event. There can be
// thousands of other failures at once, so it logs one of each cause every 30 seconds. It
// does not log an event that only waits behind another event.
func (d *dispatcher) applyFailure(ctx context.Context, o result, now time.Time, counted *counts) {
	if o.Class == broker.BlockedByKey {
		d.scheduler.ReturnBlocked(o.Entry)
		return
	}
	if o.Class == broker.Unroutable {
		signal(d.relay.preflight.recheck)
		signal(d.recheck)
	}
	event := []any{"seq", o.Seq, "event_id", o.ID, "type", o.Type, "outcome", o.Class.String()}
	tries, held := d.scheduler.Failed(o.Entry, o.Outcome, now)
	dead := held != nil && held.Dead
	d.relay.metrics.failed(ctx, o.Outcome, dead)
	log := d.relay.cfg.Logger
	switch {
	case dead:
		counted.dead++
		log.ErrorContext(ctx, "event dead", append(event, "error", o.Err, "attempt", held.Attempts)...)
		return
	case held == nil:
		counted.retried++
	}
	if held != nil {
		d.relay.lines.Warn(ctx, log, "event held", o.Err, append(event, "attempt", held.Attempts, "after", held.After)...)
	} else {
		d.relay.lines.Warn(ctx, log, "event not published", o.Err, append(event, "tries", tries)...)
	}
}

// reportStreams counts the events that the streams stored. If the unavailable streams have changed,
// it reports them in Health and logs them.
func (d *dispatcher) reportStreams(ctx context.Context) {
	out := d.scheduler.TakeStored(func(stream string, n int64) { d.relay.metrics.acknowledged(ctx, stream, n) })
	slices.Sort(out)
	if slices.Equal(out, d.unavailable) {
		return
	}
	d.unavailable = out
	d.relay.state.setUnavailable(out)
	if len(out) > 0 {
		d.relay.cfg.Logger.WarnContext(ctx, "streams unavailable", "streams", out)
		return
	}
	d.relay.cfg.Logger.InfoContext(ctx, "all streams available again")
}
