package relay

import (
	"context"
	"time"

	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/relay/broker"
	"github.com/postroom/postroom/relay/internal/position"
	"github.com/postroom/postroom/relay/internal/schedule"
)

// dispatcher decides what is sent, and applies the results.
type dispatcher struct {
	*intake

	relay     *Relay
	term      eventlog.Term
	scheduler *schedule.Scheduler
	batches   chan<- []*broker.Message // the batches go to the publisher
	results   *results                 // the results come from the publisher
	buffer    *recordBuffer
	recheck   chan<- struct{} // signals that a stream may have lost messages

	acks        position.Acks
	acked       []int64                    // memory for reuse
	republished []eventlog.RepublishResult // memory for reuse
	unavailable []string                   // the streams that were last reported as unavailable
}

// run sends what the scheduler allows until life.send ends. Then it waits up to the drain timeout
// for the results of what was sent. It returns at once if life.work ends.
func (d *dispatcher) run(life lifetime) {
	ctx := life.send
	var drained <-chan time.Time
	for ending := false; !ending || d.scheduler.InFlight() > 0; {
		var batch []*broker.Message
		if now := time.Now(); !ending {
			batch = d.scheduler.Next(d.room(), now)
			d.passRepublished()
			startSpan(ctx, d.relay.tracer, batch, now)
			batch = dropInvalid(batch, d.results.report)
		}
		if len(batch) > 0 && !d.send(life, batch) {
			return
		}

		if seqs := d.scheduler.Ask(); len(seqs) > 0 && !ending {
			d.again <- seqs // has room, because the scheduler asks again only after it has got these
			d.relay.Wake()
		}
		var pages <-chan page
		if !ending && d.mayRead() {
			pages = d.pages
		}
		due, stop := d.wakeup(ending)
		select {
		case p := <-pages:
			d.addPage(p)
		case <-d.results.news:
			d.applyResults(ctx)
		case <-due:
			d.applyResults(ctx)
		case <-done(ctx, ending):
			ending = true
			drained = time.After(d.relay.cfg.DrainTimeout)
		case <-drained:
			d.relay.cfg.Logger.WarnContext(ctx, "relay stopped before all acknowledgements came",
				"events", d.scheduler.InFlight())
			return
		case <-life.work.Done():
			return
		}
		stop()
	}
}

// mayRead reports whether there is room for another page.
func (d *dispatcher) mayRead() bool {
	if d.scheduler.IsReadingAgain() {
		return true // the reader sends the events that are asked for before another page
	}
	return !d.scheduler.IsPutBackFull() && d.scheduler.Size() <= d.relay.cfg.MaxUnpublished-pageSize && d.scheduler.Bytes() < schedule.MaxBytes && d.buffer.heldEvents.Load() < maxHeldEvents
}

// room returns how many events may be sent now. It returns 0 if there is no room for a complete
// chunk. Each write to the connection costs the broker as much as several events, so the dispatcher
// sends many events at once. Acknowledgements make room.
func (d *dispatcher) room() int {
	if room := d.relay.cfg.Window - d.scheduler.InFlight(); room >= d.chunk() {
		return room
	}
	return 0
}

// chunk returns the least number of events to send at once. It is a small part of the window, so
// that relay and broker work at the same time. With a large part, relay and broker would often wait
// for each other. With Atomic a chunk is larger: a batch of any size has one acknowledgement.
func (d *dispatcher) chunk() int {
	if d.relay.cfg.Atomic {
		return max(d.relay.cfg.Window/4, 1)
	}
	return max(d.relay.cfg.Window/64, 1)
}

// wakeup sets how many results wake the loop. It returns a timeout channel, and a function that
// stops the timer. If there is room to send more, the loop wakes for each result, and when the next
// failed event is due. If there is no room, the loop waits until results make room for a chunk, but
// at most for maxResultWait. To wake for each result would take processor time from a broker on the
// same machine.
func (d *dispatcher) wakeup(ending bool) (due <-chan time.Time, stop func() bool) {
	switch {
	case ending:
		d.results.wakeAt(1)
		return nil, func() bool { return true }
	case d.room() > 0:
		d.results.wakeAt(1)
		return d.retryTimer()
	}
	d.results.wakeAt(d.chunk() - (d.relay.cfg.Window - d.scheduler.InFlight()))
	timer := time.NewTimer(maxResultWait)
	return timer.C, timer.Stop
}

// addPage passes a page of the reader to the scheduler. The scheduler copies the events,
// because the reader uses their memory again.
func (d *dispatcher) addPage(p page) {
	now := time.Now()
	if p.hasKeys {
		d.scheduler.Block(p.keys, p.lastRecording)
		d.hasBlockedKeys.Store(d.scheduler.HasBlocked())
	}
	for _, republish := range p.cancelled {
		d.scheduler.Cancel(republish)
	}
	if p.again {
		d.scheduler.AddAgain(p.events, p.through)
	} else {
		d.scheduler.SetRecorded(p.lastRecording)
		d.scheduler.Add(p.events)
	}
	if seqs := d.scheduler.TakePutBack(); len(seqs) > 0 {
		d.term.PutBack(seqs)
	}
	clear(p.events) // so that the reader's memory does not keep their data alive
	d.scheduler.MakeRoom(now)
	d.passHeld()
}

// passHeld passes to the recorder the events that must be written to the table held.
func (d *dispatcher) passHeld() {
	if !d.scheduler.HasHeld() {
		return
	}
	d.hasBlockedKeys.Store(d.scheduler.HasBlocked())
	d.buffer.addHeld(d.scheduler.TakeHeld)
}

// done returns ctx.Done(), or nil if the end of ctx was noticed already.
func done(ctx context.Context, noticed bool) <-chan struct{} {
	if noticed {
		return nil
	}
	return ctx.Done()
}

// send passes a batch to the publisher, and applies results while it waits for the publisher. It
// returns false if the term must end. If life.send ends before the publisher receives the batch,
// the events of the batch go back to the scheduler.
func (d *dispatcher) send(life lifetime, batch []*broker.Message) bool {
	ctx := life.send
	d.results.wakeAt(1)
	for {
		select {
		case d.batches <- batch:
			d.relay.metrics.flush.Record(ctx, int64(len(batch)))
			return true
		case <-d.results.news:
			d.applyResults(ctx)
		case <-ctx.Done():
			d.scheduler.Requeue(batch)
			return true
		case <-life.work.Done():
			return false
		}
	}
}

// retryTimer returns a channel that receives when the next failed event is due, or probes go to an
// unavailable stream. The function stop stops the timer. If neither happens, the channel is nil.
func (d *dispatcher) retryTimer() (due <-chan time.Time, stop func() bool) {
	at, ok := d.scheduler.NextRetry()
	if !ok {
		return nil, func() bool { return true }
	}
	timer := time.NewTimer(time.Until(at))
	return timer.C, timer.Stop
}

// passRepublished reduces the numbers in the struct intake when events of republishes have left the
// scheduler. It passes to the recorder the events that the scheduler dropped.
func (d *dispatcher) passRepublished() {
	if !d.scheduler.HasGone() {
		return
	}
	events, bytes, dropped := d.scheduler.TakeGone()
	d.republishEvents.Add(-int64(events))
	d.republishBytes.Add(-int64(bytes))
	if len(dropped) == 0 {
		return
	}
	d.buffer.addDropped(dropped)
}
