package relay

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postroom/postroom/broker"
	"github.com/postroom/postroom/eventlog"
	"github.com/postroom/postroom/internal/guard"
	"github.com/postroom/postroom/relay/internal/schedule"
)

const (
	// Events asked for in one pass: so many, or what fills a page at the size of the last
	// ones. The first pass does not know their size.
	pageSize  = 1000
	firstPage = 100

	// Events that wait to be written to held are kept below this, or a page above:
	// a recording of so many takes a tenth of a second.
	maxHolding = 5000

	// Where the broker takes longer than this for as many acknowledgements as conduct
	// waits for, what there is is taken in.
	maxLull = 5 * time.Millisecond
)

// leader is a relay in one term. Five goroutines work for it: reader reads
// pages, conduct decides what is sent, the publisher sends, recorder records, attest
// sees to it that the broker has what it had. The first to fail ends the term.
type leader struct {
	relay     *Relay
	term      eventlog.Term
	now       *tenure             // this term; the recorder's
	scheduler *schedule.Scheduler // conduct's, and after it serveTerm's

	pages   chan page              // reader to conduct
	batches chan []*broker.Message // conduct to the publisher

	mu        sync.Mutex
	outcomes  []landing         // publisher to conduct
	enough    int               // so many of them are news
	progress  eventlog.Progress // conduct to recorder
	counted   counts            // conduct to recorder
	recording int64             // the number of the next recording
	places    places            // absorb's and attest's
	news      chan struct{}     // there are enough outcomes
	record    chan struct{}     // there is something to record
	noted     chan struct{}     // something was recorded
	quiet     chan struct{}     // nothing is in flight, and much is to be recorded
	suspicion chan struct{}     // a stream may not have what it had

	ends     ends                // absorb's
	acked    []int64             // absorb's, for reuse
	repeated []eventlog.Repeated // likewise
	spare    []landing           // likewise
	out      []string            // the streams that were last told to be out

	holding  atomic.Int64 // events that wait to be written to held
	recorded atomic.Int64 // the number of the last recording
	blocked  atomic.Bool  // some keys have events in held

	repeats     atomic.Int64 // events of rewinds that were read and are on their way
	repeatBytes atomic.Int64 // and their data
}

// serveTerm leads until ctx ends, and then drains, or until something fails.
// It notes in now what came of it.
func (r *Relay) serveTerm(ctx context.Context, term eventlog.Term, now *tenure) error {
	l := &leader{
		relay: r, term: term, now: now, scheduler: schedule.New(r.cfg.MaxUnpublished, r.cfg.Atomic), enough: 1, recording: 1,
		pages: make(chan page), batches: make(chan []*broker.Message),
		news: make(chan struct{}, 1), record: make(chan struct{}, 1), noted: make(chan struct{}, 1), quiet: make(chan struct{}, 1), suspicion: make(chan struct{}, 1),
		places: make(places), ends: ends{streams: make(map[string]*end)},
	}
	// What is in hand outlives ctx by the drain; only a failure cuts it short.
	work, fail := context.WithCancelCause(context.WithoutCancel(ctx))
	defer fail(nil)

	var readers, others sync.WaitGroup
	readCtx, stopReading := context.WithCancel(ctx)
	defer stopReading()
	defer context.AfterFunc(work, stopReading)()

	publishing, stopPublishing := context.WithCancel(work)
	defer stopPublishing()
	others.Go(func() {
		err := guard.ErrGoexit
		defer func() { l.end(fail, publishing, err) }() // also when the publisher ends this goroutine
		err = l.publish(publishing)
	})

	recording, stopRecording := context.WithCancel(work)
	defer stopRecording()
	others.Go(func() { l.end(fail, recording, l.keepRecord(recording)) })

	if err := l.verify(readCtx); err != nil {
		l.end(fail, readCtx, err)
	} else {
		readers.Go(func() { l.end(fail, readCtx, l.read(readCtx)) })
		readers.Go(func() { l.end(fail, readCtx, l.attest(readCtx)) })
		l.conduct(ctx, work)
	}
	stopReading()
	readers.Wait()
	stopPublishing()
	stopRecording()
	others.Wait()

	l.absorb(ctx) // nothing is sent any more: what was acknowledged meanwhile is published
	leave, cancel := context.WithTimeout(context.WithoutCancel(ctx), max(now.lease, DefaultLease))
	defer cancel()
	progress, counted, _ := l.take()
	r.metrics.published(leave, counted)
	err := term.Release(leave, progress)
	now.recorded = now.recorded || err == nil && !progress.Empty()
	return errors.Join(context.Cause(work), err)
}

// publish sends what conduct hands it, by the strategy of the Config.
func (l *leader) publish(ctx context.Context) error {
	if !l.relay.cfg.Atomic {
		return called(func() error { return l.relay.pub.Run(ctx, l.batches, l.settle) })
	}
	instance, epoch := l.term.Claim()
	claim := broker.Claim{Instance: instance, Epoch: epoch, Confirm: l.term.Confirm}
	return called(func() error { return l.relay.pub.RunAtomic(ctx, claim, l.batches, l.settle) })
}

// called calls a method of the source or the publisher, which a user may have written: a
// panic is an error, and the methods of an error are safe to call.
func called(f func() error) error { return guard.Seal(guard.Call(f)) }

// end notes why a goroutine of the term ended. The end of its context is no
// failure.
func (l *leader) end(fail context.CancelCauseFunc, ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil {
		fail(err)
	}
}

// conduct sends what the scheduler lets pass until ctx ends, then waits for the
// outcomes of what was sent, up to the drain timeout; or until work ends.
func (l *leader) conduct(ctx, work context.Context) {
	var drained <-chan time.Time
	for ending := false; !ending || l.scheduler.InFlight() > 0; {
		var batch []*broker.Message
		if now := time.Now(); !ending {
			batch = l.scheduler.Next(l.room(), now)
			l.passRepeats()
			l.traceBatch(ctx, batch, now)
			batch = l.withhold(batch)
		}
		if len(batch) > 0 && !l.send(ctx, work, batch) {
			return
		}

		var pages <-chan page
		if !ending && l.mayRead() {
			pages = l.pages
		}
		due, stop := l.alarm(ending)
		select {
		case p := <-pages:
			l.accept(p)
		case <-l.news:
			l.absorb(ctx)
		case <-due:
			l.absorb(ctx)
		case <-done(ctx, ending):
			ending = true
			drained = time.After(l.relay.cfg.DrainTimeout)
		case <-drained:
			l.relay.cfg.Logger.WarnContext(ctx, "relay left before all acknowledgements came; the next leader publishes these events again",
				"events", l.scheduler.InFlight())
			return
		case <-work.Done():
			return
		}
		stop()
	}
}

// mayRead reports whether there is room for another page.
func (l *leader) mayRead() bool {
	return l.scheduler.Size() <= l.relay.cfg.MaxUnpublished-pageSize && l.scheduler.Bytes() < schedule.MaxBytes && l.holding.Load() < maxHolding
}

// room returns how many events may be sent now. With many in flight it waits for
// room for a good number: each write to the connection costs the broker as much
// as several events do. The acknowledgements of those in flight make room.
func (l *leader) room() int {
	if room := l.relay.cfg.Window - l.scheduler.InFlight(); room >= l.stride() {
		return room
	}
	return 0
}

// stride returns how many events are sent at once with many in flight: so few that
// relay and broker work beside each other, and do not wait in turns. Batches are better
// large.
func (l *leader) stride() int {
	if l.relay.cfg.Atomic {
		return max(l.relay.cfg.Window/4, 1)
	}
	return max(l.relay.cfg.Window/64, 1)
}

// alarm says which outcomes conduct waits for, and returns a channel that receives when
// it has waited for long enough, and what ends the timer behind it. With room for more
// to be sent every outcome counts, and the next failed event that is due. Without,
// nothing can be done before there are enough of them: to wake up for each would take
// the processor from the broker, where both are on one machine.
func (l *leader) alarm(ending bool) (due <-chan time.Time, stop func() bool) {
	switch {
	case ending:
		l.await(1)
		return nil, func() bool { return true }
	case l.room() > 0:
		l.await(1)
		return l.retryTimer()
	}
	l.await(l.stride() - (l.relay.cfg.Window - l.scheduler.InFlight()))
	timer := time.NewTimer(maxLull)
	return timer.C, timer.Stop
}

// accept takes in what the reader found. It keeps copies: the reader uses the memory again.
func (l *leader) accept(p page) {
	now := time.Now()
	if p.asked {
		l.scheduler.Block(p.keys, p.recorded)
		l.blocked.Store(l.scheduler.HasBlocked())
	}
	for _, rewind := range p.cancelled {
		l.scheduler.Cancel(rewind)
	}
	l.scheduler.Add(p.events)
	clear(p.events) // what they refer to is not to outlive the copies
	l.scheduler.MakeRoom(now)
	l.passHeld()
}

// passHeld moves on to the recorder what goes to held.
func (l *leader) passHeld() {
	if !l.scheduler.HasHeld() {
		return
	}
	l.blocked.Store(l.scheduler.HasBlocked())
	l.mu.Lock()
	held, returned := l.scheduler.TakeHeld(l.recording)
	l.progress.Held = append(l.progress.Held, held...)
	l.progress.Returned = append(l.progress.Returned, returned...)
	l.counted.held += int64(len(held))
	l.holding.Add(int64(len(held)))
	l.mu.Unlock()
	signal(l.record)
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
func (l *leader) send(ctx, work context.Context, batch []*broker.Message) bool {
	l.await(1)
	for {
		select {
		case l.batches <- batch:
			l.relay.metrics.flush.Record(ctx, int64(len(batch)))
			return true
		case <-l.news:
			l.absorb(ctx)
		case <-ctx.Done():
			l.scheduler.Unsend(batch)
			return true
		case <-work.Done():
			return false
		}
	}
}

// retryTimer returns a channel that receives when the next failed event is due,
// a nil one where there is none, and what ends the timer behind it.
func (l *leader) retryTimer() (due <-chan time.Time, stop func() bool) {
	at, ok := l.scheduler.NextRetry()
	if !ok {
		return nil, func() bool { return true }
	}
	timer := time.NewTimer(time.Until(at))
	return timer.C, timer.Stop
}

// signal notes that there is news; one note is enough.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
