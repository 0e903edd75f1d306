package relay

import (
	"context"
	"slices"
	"time"

	"github.com/postroom/postroom/broker"
	"github.com/postroom/postroom/eventlog"
)

// absorb moves outcomes into the scheduler, and the acknowledged on to the
// recorder.
func (c *conductor) absorb(ctx context.Context) {
	outcomes := c.outcomes.take()
	now := time.Now()
	c.scheduler.Cover(c.relay.preflight.covered.Load())
	var counted counts
	acked, repeated := c.acked[:0], c.repeated[:0]
	for _, o := range outcomes {
		if b, ok := o.Batch.(*flush); ok {
			b.landed(o.Outcome)
		}
		if o.Class != broker.Stored {
			c.failed(ctx, o, now, &counted)
			continue
		}
		c.noteStored(o, &counted)
		if o.Repeats() {
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
	c.outcomes.giveBack(outcomes)
	c.acked, c.repeated = acked, repeated
	counted.rewound += int64(len(repeated))

	many, suspicious := c.notes.stored(acked, repeated, &c.ends, counted)
	if many && c.scheduler.InFlight() == 0 {
		signal(c.notes.quiet)
	}
	if suspicious {
		signal(c.suspicion)
	}
	if len(acked)+len(repeated) > 0 {
		signal(c.notes.due)
	}
	c.passHeld()
	c.passRepeats()
	c.tellStreams(ctx)
}

// noteStored counts an event that the broker has, and notes where it is.
func (c *conductor) noteStored(o landing, counted *counts) {
	switch {
	case !o.Duplicate:
		counted.stored++
		c.ends.note(o)
	case o.Sequence > 0:
		counted.duplicate++
		c.ends.noteAgain(o)
	default: // the answer does not say where it is
		counted.duplicate++
	}
}

// failed takes in an event that was not stored, and reports it: each that is
// dead; of the others, which can be thousands at once, one of each cause every 30
// seconds. One that only waits behind another is no news.
func (c *conductor) failed(ctx context.Context, o landing, now time.Time, counted *counts) {
	if o.Class == broker.BlockedByKey {
		c.scheduler.Behind(o.Entry)
		return
	}
	if o.Class == broker.Unroutable {
		signal(c.relay.preflight.doubt)
		signal(c.suspicion)
	}
	event := []any{"seq", o.Seq, "event_id", o.ID, "type", o.Type, "outcome", o.Class.String()}
	tries, held := c.scheduler.Failed(o.Entry, o.Outcome, now)
	dead := held != nil && held.Dead
	c.relay.metrics.failed(ctx, o.Outcome, dead)
	log := c.relay.cfg.Logger
	switch {
	case dead:
		counted.dead++
		log.ErrorContext(ctx, "event is dead, an operator has to decide", append(event, "error", o.Err, "attempt", held.Attempts)...)
		return
	case held == nil:
		counted.retried++
	}
	if held != nil {
		c.relay.lines.Warn(ctx, log, "event is held, and tried again", o.Err, append(event, "attempt", held.Attempts, "after", held.After)...)
	} else {
		c.relay.lines.Warn(ctx, log, "event not published, tried again", o.Err, append(event, "tries", tries)...)
	}
}

// tellStreams counts what the streams stored, and tells Health and the log which
// of them are out.
func (c *conductor) tellStreams(ctx context.Context) {
	out := c.scheduler.TakeStored(func(stream string, n int64) { c.relay.metrics.acknowledged(ctx, stream, n) })
	slices.Sort(out)
	if slices.Equal(out, c.out) {
		return
	}
	c.out = out
	c.relay.vitals.out(out)
	if len(out) > 0 {
		c.relay.cfg.Logger.WarnContext(ctx, "streams take no events; publishing to them waits", "streams", out)
		return
	}
	c.relay.cfg.Logger.InfoContext(ctx, "all streams take events again")
}
