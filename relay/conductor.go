package relay

import (
	"context"
	"time"

	"github.com/postroom/postroom/broker"
	"github.com/postroom/postroom/eventlog"
	"github.com/postroom/postroom/relay/internal/schedule"
)

// conductor decides what is sent, and takes in what became of it.
type conductor struct {
	*intake

	relay     *Relay
	scheduler *schedule.Scheduler
	batches   chan<- []*broker.Message // to the publisher
	outcomes  *outcomes                // from it
	notes     *unrecorded
	suspicion chan<- struct{} // a stream may not have what it had

	ends     ends
	acked    []int64             // for reuse
	repeated []eventlog.Repeated // likewise
	out      []string            // the streams that were last told to be out
}

// conduct sends what the scheduler lets pass until ctx ends, then waits for the
// outcomes of what was sent, up to the drain timeout; or until work ends.
func (c *conductor) conduct(ctx, work context.Context) {
	var drained <-chan time.Time
	for ending := false; !ending || c.scheduler.InFlight() > 0; {
		var batch []*broker.Message
		if now := time.Now(); !ending {
			batch = c.scheduler.Next(c.room(), now)
			c.passRepeats()
			traceBatch(ctx, c.relay.tracer, batch, now)
			batch = withhold(batch, c.outcomes.settle)
		}
		if len(batch) > 0 && !c.send(ctx, work, batch) {
			return
		}

		var pages <-chan page
		if !ending && c.mayRead() {
			pages = c.pages
		}
		due, stop := c.alarm(ending)
		select {
		case p := <-pages:
			c.accept(p)
		case <-c.outcomes.news:
			c.absorb(ctx)
		case <-due:
			c.absorb(ctx)
		case <-done(ctx, ending):
			ending = true
			drained = time.After(c.relay.cfg.DrainTimeout)
		case <-drained:
			c.relay.cfg.Logger.WarnContext(ctx, "relay left before all acknowledgements came; the next leader publishes these events again",
				"events", c.scheduler.InFlight())
			return
		case <-work.Done():
			return
		}
		stop()
	}
}

// mayRead reports whether there is room for another page.
func (c *conductor) mayRead() bool {
	return c.scheduler.Size() <= c.relay.cfg.MaxUnpublished-pageSize && c.scheduler.Bytes() < schedule.MaxBytes && c.notes.holding.Load() < maxHolding
}

// room returns how many events may be sent now. With many in flight it waits for
// room for a good number: each write to the connection costs the broker as much
// as several events do. The acknowledgements of those in flight make room.
func (c *conductor) room() int {
	if room := c.relay.cfg.Window - c.scheduler.InFlight(); room >= c.stride() {
		return room
	}
	return 0
}

// stride returns how many events are sent at once with many in flight: so few that
// relay and broker work beside each other, and do not wait in turns. Batches are better
// large.
func (c *conductor) stride() int {
	if c.relay.cfg.Atomic {
		return max(c.relay.cfg.Window/4, 1)
	}
	return max(c.relay.cfg.Window/64, 1)
}

// alarm sets how many outcomes wake the loop, and returns a channel that receives when
// the loop has waited for long enough, with a function that stops its timer. If more can
// be sent, each outcome wakes the loop, and so does the next failed event that is due. If
// not, the loop wakes only for many outcomes: waking for each would take the processor
// from a broker on the same machine.
func (c *conductor) alarm(ending bool) (due <-chan time.Time, stop func() bool) {
	switch {
	case ending:
		c.outcomes.await(1)
		return nil, func() bool { return true }
	case c.room() > 0:
		c.outcomes.await(1)
		return c.retryTimer()
	}
	c.outcomes.await(c.stride() - (c.relay.cfg.Window - c.scheduler.InFlight()))
	timer := time.NewTimer(maxLull)
	return timer.C, timer.Stop
}

// accept takes in what the reader found. It keeps copies: the reader uses the memory again.
func (c *conductor) accept(p page) {
	now := time.Now()
	if p.asked {
		c.scheduler.Block(p.keys, p.recorded)
		c.blocked.Store(c.scheduler.HasBlocked())
	}
	for _, rewind := range p.cancelled {
		c.scheduler.Cancel(rewind)
	}
	c.scheduler.Add(p.events)
	clear(p.events) // what they refer to is not to outlive the copies
	c.scheduler.MakeRoom(now)
	c.passHeld()
}

// passHeld moves on to the recorder what goes to held.
func (c *conductor) passHeld() {
	if !c.scheduler.HasHeld() {
		return
	}
	c.blocked.Store(c.scheduler.HasBlocked())
	c.notes.hold(c.scheduler.TakeHeld)
}

// done returns ctx's channel until its end was noticed.
func done(ctx context.Context, noticed bool) <-chan struct{} {
	if noticed {
		return nil
	}
	return ctx.Done()
}

// send hands a batch to the publisher and takes in outcomes while it waits for
// it. It reports whether the term goes on. Where ctx ends before the publisher
// took the batch, its events were not sent.
func (c *conductor) send(ctx, work context.Context, batch []*broker.Message) bool {
	c.outcomes.await(1)
	for {
		select {
		case c.batches <- batch:
			c.relay.metrics.flush.Record(ctx, int64(len(batch)))
			return true
		case <-c.outcomes.news:
			c.absorb(ctx)
		case <-ctx.Done():
			c.scheduler.Unsend(batch)
			return true
		case <-work.Done():
			return false
		}
	}
}

// retryTimer returns a channel that receives when the next failed event is due,
// a nil one where there is none, and what ends the timer behind it.
func (c *conductor) retryTimer() (due <-chan time.Time, stop func() bool) {
	at, ok := c.scheduler.NextRetry()
	if !ok {
		return nil, func() bool { return true }
	}
	timer := time.NewTimer(time.Until(at))
	return timer.C, timer.Stop
}

// passRepeats notes which events of rewinds the scheduler has dropped.
func (c *conductor) passRepeats() {
	if !c.scheduler.HasGone() {
		return
	}
	events, bytes, dropped := c.scheduler.TakeGone()
	c.repeats.Add(-int64(events))
	c.repeatBytes.Add(-int64(bytes))
	if len(dropped) == 0 {
		return
	}
	c.notes.drop(dropped)
}
