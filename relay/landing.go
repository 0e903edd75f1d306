package relay

import (
	"context"
	"slices"
	"time"

	"github.com/postroom/postroom/broker"
	"github.com/postroom/postroom/eventlog"
	"github.com/postroom/postroom/internal/guard"
	"github.com/postroom/postroom/relay/internal/schedule"
)

// landing is an event whose outcome is known.
type landing struct {
	*schedule.Entry
	broker.Outcome
}

// settle takes an outcome from the publisher.
func (l *leader) settle(m *broker.Message, o broker.Outcome) {
	o.Err = guard.Seal(o.Err) // which a publisher of a user's has made
	l.mu.Lock()
	l.outcomes = append(l.outcomes, landing{schedule.EntryOf(m), o})
	tell := len(l.outcomes) == l.enough
	l.mu.Unlock()
	if tell {
		signal(l.news)
	}
}

// await has settle wake conduct as soon as there are n outcomes.
func (l *leader) await(n int) {
	l.mu.Lock()
	l.enough = n
	tell := len(l.outcomes) >= n
	l.mu.Unlock()
	if tell {
		signal(l.news)
	}
}

// absorb moves outcomes into the scheduler, and the acknowledged on to the
// recorder.
func (l *leader) absorb(ctx context.Context) {
	l.mu.Lock()
	outcomes := l.outcomes
	l.outcomes = l.spare[:0]
	l.mu.Unlock()

	now := time.Now()
	l.scheduler.Cover(l.relay.covered.Load())
	var counted counts
	acked, repeated := l.acked[:0], l.repeated[:0]
	for _, o := range outcomes {
		if b, ok := o.Batch.(*flush); ok {
			b.landed(o.Outcome)
		}
		if o.Class != broker.Stored {
			l.failed(ctx, o, now, &counted)
			continue
		}
		l.noteStored(o, &counted)
		if o.Repeats() {
			repeated = append(repeated, eventlog.Repeated{Rewind: o.Rewind, Seq: o.Seq})
			l.scheduler.Done(o.Entry, o.Stream, now)
			continue
		}
		acked = append(acked, o.Seq)
		if len(acked) == 1 {
			l.relay.metrics.sample(ctx, o.LoggedAt, o.Sent, now)
		}
		l.scheduler.Done(o.Entry, o.Stream, now)
	}
	clear(outcomes)
	l.spare, l.acked, l.repeated = outcomes, acked, repeated
	counted.rewound += int64(len(repeated))

	l.mu.Lock()
	l.progress.Published = append(l.progress.Published, acked...)
	moved, suspicious := l.places.learn(&l.ends)
	l.progress.Places = move(l.progress.Places, moved)
	l.progress.Repeated = append(l.progress.Repeated, repeated...)
	l.counted.add(counted)
	many := len(l.progress.Published) >= manyUnrecorded
	l.mu.Unlock()
	if many && l.scheduler.InFlight() == 0 {
		signal(l.quiet)
	}
	if suspicious {
		signal(l.suspicion)
	}
	if len(acked)+len(repeated) > 0 {
		signal(l.record)
	}
	l.passHeld()
	l.passRepeats()
	l.tellStreams(ctx)
}

// noteStored counts an event that the broker has, and notes where it is.
func (l *leader) noteStored(o landing, counted *counts) {
	switch {
	case !o.Duplicate:
		counted.stored++
		l.ends.note(o)
	case o.Sequence > 0:
		counted.duplicate++
		l.ends.noteAgain(o)
	default: // the answer does not say where it is
		counted.duplicate++
	}
}

// failed takes in an event that was not stored, and reports it: each that is
// dead; of the others, which can be thousands at once, one of each cause every 30
// seconds. One that only waits behind another is no news.
func (l *leader) failed(ctx context.Context, o landing, now time.Time, counted *counts) {
	if o.Class == broker.Behind {
		l.scheduler.Behind(o.Entry)
		return
	}
	if o.Class == broker.Unroutable {
		signal(l.relay.doubt)
		signal(l.suspicion)
	}
	event := []any{"seq", o.Seq, "event_id", o.ID, "type", o.Type, "outcome", o.Class.String()}
	tries, held := l.scheduler.Failed(o.Entry, o.Outcome, now)
	dead := held != nil && held.Dead
	l.relay.metrics.failed(ctx, o.Outcome, dead)
	log := l.relay.cfg.Logger
	switch {
	case dead:
		counted.dead++
		log.ErrorContext(ctx, "event is dead, an operator has to decide", append(event, "error", o.Err, "attempt", held.Attempts)...)
		return
	case held == nil:
		counted.retried++
	}
	if held != nil {
		l.relay.lines.Warn(ctx, log, "event is held, and tried again", o.Err, append(event, "attempt", held.Attempts, "after", held.After)...)
	} else {
		l.relay.lines.Warn(ctx, log, "event not published, tried again", o.Err, append(event, "tries", tries)...)
	}
}

// tellStreams counts what the streams stored, and tells Health and the log which
// of them are out.
func (l *leader) tellStreams(ctx context.Context) {
	out := l.scheduler.TakeStored(func(stream string, n int64) { l.relay.metrics.acknowledged(ctx, stream, n) })
	slices.Sort(out)
	if slices.Equal(out, l.out) {
		return
	}
	l.out = out
	l.relay.vitals.out(out)
	if len(out) > 0 {
		l.relay.cfg.Logger.WarnContext(ctx, "streams take no events; publishing to them waits", "streams", out)
		return
	}
	l.relay.cfg.Logger.InfoContext(ctx, "all streams take events again")
}
