package relay

import (
	"context"
	"time"

	"github.com/postroom/postroom/broker"
	"github.com/postroom/postroom/eventlog"
	"github.com/postroom/postroom/relay/internal/schedule"
)

// dispatcher decides what is sent, and applies the results.
type dispatcher struct {
	*intake

	relay     *Relay
	scheduler *schedule.Scheduler
	batches   chan<- []*broker.Message // to the publisher
	results   *results                 // from it
	buffer    *recordBuffer
	recheck   chan<- struct{} // a stream may have lost messages

	ackRanges   ackRanges
	acked       []int64             // memory for reuse
	republished []eventlog.Repeated // memory for reuse
	unavailable []string            // the streams that were last reported as unavailable
}

// run sends what the scheduler allows until life.send ends. Then it waits for the results
// of what was sent, up to the drain timeout. It returns at once if life.work ends.
func (c *dispatcher) run(life lifetime) {
	ctx := life.send
	var drained <-chan time.Time
	for ending := false; !ending || c.scheduler.InFlight() > 0; {
		var batch []*broker.Message
		if now := time.Now(); !ending {
			batch = c.scheduler.Next(c.room(), now)
			c.passRepublished()
			startSpan(ctx, c.relay.tracer, batch, now)
			batch = dropInvalid(batch, c.results.report)
		}
		if len(batch) > 0 && !c.send(life, batch) {
			return
		}

		var pages <-chan page
		if !ending && c.mayRead() {
			pages = c.pages
		}
		due, stop := c.wakeup(ending)
		select {
		case p := <-pages:
			c.addPage(p)
		case <-c.results.news:
			c.applyResults(ctx)
		case <-due:
			c.applyResults(ctx)
		case <-done(ctx, ending):
			ending = true
			drained = time.After(c.relay.cfg.DrainTimeout)
		case <-drained:
			c.relay.cfg.Logger.WarnContext(ctx, "relay stopped before all acknowledgements came",
				"events", c.scheduler.InFlight())
			return
		case <-life.work.Done():
			return
		}
		stop()
	}
}

// mayRead reports whether there is room for another page.
func (c *dispatcher) mayRead() bool {
	return c.scheduler.Size() <= c.relay.cfg.MaxUnpublished-pageSize && c.scheduler.Bytes() < schedule.MaxBytes && c.buffer.heldEvents.Load() < maxHeldEvents
}

// room returns how many events may be sent now: none if there is no room for a whole chunk.
// Each write to the connection costs the broker as much as several events, so many events
// are sent at once. Acknowledgements make room.
func (c *dispatcher) room() int {
	if room := c.relay.cfg.Window - c.scheduler.InFlight(); room >= c.chunk() {
		return room
	}
	return 0
}

// chunk returns how many events are sent at once when the window is nearly full. It is a
// small part of the window, so that relay and broker work at the same time and do not wait
// for each other in turns. Atomic batches are better large.
func (c *dispatcher) chunk() int {
	if c.relay.cfg.Atomic {
		return max(c.relay.cfg.Window/4, 1)
	}
	return max(c.relay.cfg.Window/64, 1)
}

// wakeup sets how many results wake the loop. It returns a timeout channel, and a function
// that stops its timer. If more can be sent, each result wakes the loop, and so does the
// next failed event that is due. If not, only many results wake the loop: waking for each
// would take the processor from a broker on the same machine.
func (c *dispatcher) wakeup(ending bool) (due <-chan time.Time, stop func() bool) {
	switch {
	case ending:
		c.results.wakeAt(1)
		return nil, func() bool { return true }
	case c.room() > 0:
		c.results.wakeAt(1)
		return c.retryTimer()
	}
	c.results.wakeAt(c.chunk() - (c.relay.cfg.Window - c.scheduler.InFlight()))
	timer := time.NewTimer(maxResultWait)
	return timer.C, timer.Stop
}

// addPage gives a page of the reader to the scheduler, which copies the events: the reader
// uses their memory again.
func (c *dispatcher) addPage(p page) {
	now := time.Now()
	if p.hasKeys {
		c.scheduler.Block(p.keys, p.lastRecording)
		c.hasBlockedKeys.Store(c.scheduler.HasBlocked())
	}
	for _, rewind := range p.cancelled {
		c.scheduler.Cancel(rewind)
	}
	c.scheduler.Add(p.events)
	clear(p.events) // so that the reader's memory does not keep their data alive
	c.scheduler.MakeRoom(now)
	c.passHeld()
}

// passHeld passes to the recorder what has to be written to held.
func (c *dispatcher) passHeld() {
	if !c.scheduler.HasHeld() {
		return
	}
	c.hasBlockedKeys.Store(c.scheduler.HasBlocked())
	c.buffer.addHeld(c.scheduler.TakeHeld)
}

// done returns ctx's channel, and nil after its end was noticed.
func done(ctx context.Context, noticed bool) <-chan struct{} {
	if noticed {
		return nil
	}
	return ctx.Done()
}

// send hands a batch to the publisher, and applies results while it waits for the
// publisher. It reports whether the term goes on. If life.send ends before the publisher
// took the batch, its events were not sent.
func (c *dispatcher) send(life lifetime, batch []*broker.Message) bool {
	ctx := life.send
	c.results.wakeAt(1)
	for {
		select {
		case c.batches <- batch:
			c.relay.metrics.flush.Record(ctx, int64(len(batch)))
			return true
		case <-c.results.news:
			c.applyResults(ctx)
		case <-ctx.Done():
			c.scheduler.Requeue(batch)
			return true
		case <-life.work.Done():
			return false
		}
	}
}

// retryTimer returns a channel that receives when the next failed event is due, and a
// function that stops its timer. The channel is nil if no failed event waits.
func (c *dispatcher) retryTimer() (due <-chan time.Time, stop func() bool) {
	at, ok := c.scheduler.NextRetry()
	if !ok {
		return nil, func() bool { return true }
	}
	timer := time.NewTimer(time.Until(at))
	return timer.C, timer.Stop
}

// passRepublished counts the events of rewinds that left the scheduler, and passes those
// that it dropped to the recorder.
func (c *dispatcher) passRepublished() {
	if !c.scheduler.HasGone() {
		return
	}
	events, bytes, dropped := c.scheduler.TakeGone()
	c.republishEvents.Add(-int64(events))
	c.republishBytes.Add(-int64(bytes))
	if len(dropped) == 0 {
		return
	}
	c.buffer.addDropped(dropped)
}
