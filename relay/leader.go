package relay

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postroom/postroom"
)

const (
	// Events read in one pass: so many, or what takes so many bytes at the size of
	// the last ones. The first pass does not know their size.
	pageSize  = 1000
	pageBytes = 4 << 20
	firstPage = 100

	// Data that is read and not published is kept below this, or a little above.
	maxBytes = 64 << 20

	// A pass that takes longer has lost its connection. The first one after a long
	// outage looks at every event since.
	readTimeout = time.Minute

	// The state is recorded this often at the most, and no more than a
	// twentieth of the time is spent on it.
	recordEvery = 20 * time.Millisecond
	recordShare = 20

	// After a pass with news the next comes this soon; each empty one after it
	// doubles the wait, up to Config.IdlePoll.
	busyPoll = time.Millisecond

	// While keys have events in held, it is asked this often which still do, and
	// no more than a twentieth of the time is spent on it.
	keysEvery = time.Second
)

// leader is a relay in one term. Four goroutines work for it: reader reads
// pages, conduct decides what is sent, the publisher sends, recorder records.
// The first to fail ends the term.
type leader struct {
	relay *Relay
	term  Term
	sure  time.Time // when the lease was asked for
	lanes *lanes    // conduct's, and after it serveTerm's

	pages   chan page      // reader to conduct
	batches chan []*Flight // conduct to the publisher

	mu        sync.Mutex
	outcomes  []landing         // publisher to conduct
	progress  postroom.Progress // conduct to recorder
	counted   counts            // conduct to recorder
	recording int64             // the number of the next recording
	news      chan struct{}     // outcomes is not empty
	record    chan struct{}     // there is something to record

	acked []int64   // absorb's, for reuse
	spare []landing // likewise

	recorded atomic.Int64 // the number of the last recording
	blocked  atomic.Bool  // some keys have events in held
}

// page is what the reader found.
type page struct {
	events   []postroom.Logged
	keys     []string // that have events in held
	asked    bool     // whether it asked for keys
	recorded int64    // the last recording when it asked
}

// landing is an event whose outcome is known.
type landing struct {
	*Flight
	Outcome
}

// serveTerm leads until ctx ends, and then drains, or until something fails.
// The lease was asked for at the given time.
func (r *Relay) serveTerm(ctx context.Context, term Term, asked time.Time) error {
	l := &leader{
		relay: r, term: term, sure: asked, lanes: newLanes(r.cfg.MaxUnpublished), recording: 1,
		pages: make(chan page), batches: make(chan []*Flight),
		news: make(chan struct{}, 1), record: make(chan struct{}, 1),
	}
	// What is in hand outlives ctx by the drain; only a failure cuts it short.
	work, fail := context.WithCancelCause(context.WithoutCancel(ctx))
	defer fail(nil)

	var readers, others sync.WaitGroup
	readCtx, stopReading := context.WithCancel(ctx)
	defer stopReading()
	defer context.AfterFunc(work, stopReading)()
	readers.Go(func() { l.end(fail, readCtx, l.read(readCtx)) })

	publishing, stopPublishing := context.WithCancel(work)
	defer stopPublishing()
	others.Go(func() { l.end(fail, publishing, r.pub.Run(publishing, l.batches, l.settle)) })

	recording, stopRecording := context.WithCancel(work)
	defer stopRecording()
	others.Go(func() { l.end(fail, recording, l.keepRecord(recording)) })

	l.conduct(ctx, work)
	stopReading()
	readers.Wait()
	stopPublishing()
	stopRecording()
	others.Wait()

	l.absorb() // nothing is sent any more: what was acknowledged meanwhile is published
	leave, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.cfg.Lease)
	defer cancel()
	progress, counted, _ := l.take()
	r.metrics.published(leave, counted)
	return errors.Join(context.Cause(work), term.Release(leave, progress))
}

// end notes why a goroutine of the term ended. The end of its context is no
// failure.
func (l *leader) end(fail context.CancelCauseFunc, ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil {
		fail(err)
	}
}

// read hands pages to conduct for as long as ctx lives.
func (l *leader) read(ctx context.Context) error {
	wait, limit := busyPoll, firstPage
	if err := l.readKeys(ctx); err != nil { // before the first event that may have to follow them
		return err
	}
	asked := time.Now()
	for {
		if l.blocked.Load() && time.Since(asked) >= keysEvery {
			began := time.Now()
			if err := l.readKeys(ctx); err != nil {
				return err
			}
			asked = time.Now().Add(recordShare * time.Since(began))
		}
		page, err := l.readPage(ctx, limit)
		if err != nil {
			return err
		}
		full := len(page.Events) >= limit
		limit = nextLimit(page.Events)
		if page.Missing > 0 {
			l.relay.cfg.Logger.ErrorContext(ctx, "events that were not published are gone from the log: somebody deleted their rows",
				"events", page.Missing)
		}
		if page.Scheduled > 0 {
			signal(l.record) // it may be due before the lease has to be renewed
		}
		l.relay.metrics.late.Add(ctx, int64(page.Late))
		if len(page.Events) > 0 && !l.hand(ctx, page.Events) {
			return nil
		}
		switch {
		case full:
			continue
		case len(page.Events) > 0 || page.Missing > 0 || page.Scheduled > 0:
			wait = busyPoll
		default:
			wait = min(2*wait, l.relay.cfg.IdlePoll)
		}
		if !l.rest(ctx, wait) {
			return nil
		}
	}
}

// readPage reads a page, in bounded time: a connection whose other end vanished
// would otherwise keep a silent leader in office.
func (l *leader) readPage(ctx context.Context, limit int) (postroom.Page, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	return l.term.Read(ctx, limit)
}

// hand gives a page to conduct, and reports whether ctx still lives.
func (l *leader) hand(ctx context.Context, events []postroom.Logged) bool {
	select {
	case l.pages <- page{events: events}:
		return true
	case <-ctx.Done():
		return false
	}
}

// readKeys tells conduct which keys have events in held.
func (l *leader) readKeys(ctx context.Context) error {
	p := page{asked: true, recorded: l.recorded.Load()} // before it asks: what is recorded later may be missing
	attempt, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	var err error
	if p.keys, err = l.term.HeldKeys(attempt); err != nil {
		return err
	}
	select {
	case l.pages <- p:
	case <-ctx.Done():
	}
	return nil
}

// nextLimit returns how many events of the size of the given ones fill a page.
func nextLimit(events []postroom.Logged) int {
	if len(events) == 0 {
		return firstPage
	}
	bytes := 0
	for i := range events {
		bytes += len(events[i].Data)
	}
	each := bytes/len(events) + 1
	return min(max(pageBytes/each, 1), pageSize)
}

// rest waits for d or for a call of Wake, and reports whether ctx still lives.
func (l *leader) rest(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
	case <-l.relay.wake:
	}
	return true
}

// conduct sends what the lanes let pass until ctx ends, then waits for the
// outcomes of what was sent, up to the drain timeout; or until work ends.
func (l *leader) conduct(ctx, work context.Context) {
	var drained <-chan time.Time
	for ending := false; !ending || l.lanes.sent > 0; {
		var batch []*Flight
		if !ending {
			batch = l.lanes.next(l.room(), time.Now())
		}
		if len(batch) > 0 && !l.send(ctx, work, batch) {
			return
		}

		var pages <-chan page
		if !ending && l.lanes.size <= l.relay.cfg.MaxUnpublished-pageSize && l.lanes.bytes < maxBytes {
			pages = l.pages
		}
		due, stop := (<-chan time.Time)(nil), func() bool { return true }
		if !ending && l.room() > 0 { // otherwise nothing could be sent
			due, stop = l.retryTimer()
		}
		select {
		case p := <-pages:
			l.accept(p)
		case <-l.news:
			l.absorb()
		case <-due:
		case <-done(ctx, ending):
			ending = true
			drained = time.After(l.relay.cfg.DrainTimeout)
		case <-drained:
			l.relay.cfg.Logger.WarnContext(ctx, "relay left before all acknowledgements came; the next leader publishes these events again",
				"events", l.lanes.sent)
			return
		case <-work.Done():
			return
		}
		stop()
	}
}

// room returns how many events may be sent now. With many in flight it waits for
// room for a good number: each write to the connection costs the broker as much
// as several events do. The acknowledgements of those in flight make room.
func (l *leader) room() int {
	window := l.relay.cfg.Window
	if room := window - l.lanes.sent; room >= window/4 {
		return room
	}
	return 0
}

// accept takes in what the reader found.
func (l *leader) accept(p page) {
	now := time.Now()
	if p.asked {
		l.lanes.block(p.keys, p.recorded)
		l.blocked.Store(len(l.lanes.blocked) > 0)
	}
	l.lanes.add(p.events)
	l.lanes.makeRoom(now)
	l.passHeld()
}

// passHeld moves on to the recorder what goes to held.
func (l *leader) passHeld() {
	if len(l.lanes.held)+len(l.lanes.returned) == 0 {
		return
	}
	l.blocked.Store(len(l.lanes.blocked) > 0)
	l.mu.Lock()
	held, returned := l.lanes.takeHeld(l.recording)
	l.progress.Held = append(l.progress.Held, held...)
	l.progress.Returned = append(l.progress.Returned, returned...)
	l.counted.held += int64(len(held))
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
func (l *leader) send(ctx, work context.Context, batch []*Flight) bool {
	for {
		select {
		case l.batches <- batch:
			return true
		case <-l.news:
			l.absorb()
		case <-ctx.Done():
			l.lanes.unsend(batch)
			return true
		case <-work.Done():
			return false
		}
	}
}

// retryTimer returns a channel that receives when the next failed event is due,
// a nil one where there is none, and what ends the timer behind it.
func (l *leader) retryTimer() (due <-chan time.Time, stop func() bool) {
	at, ok := l.lanes.nextRetry()
	if !ok {
		return nil, func() bool { return true }
	}
	timer := time.NewTimer(time.Until(at))
	return timer.C, timer.Stop
}

// settle takes an outcome from the publisher.
func (l *leader) settle(f *Flight, o Outcome) {
	l.mu.Lock()
	first := len(l.outcomes) == 0
	l.outcomes = append(l.outcomes, landing{f, o})
	l.mu.Unlock()
	if first {
		signal(l.news)
	}
}

// absorb moves outcomes into the lanes, and the acknowledged on to the
// recorder.
func (l *leader) absorb() {
	l.mu.Lock()
	outcomes := l.outcomes
	l.outcomes = l.spare[:0]
	l.mu.Unlock()

	now := time.Now()
	l.lanes.others = l.relay.covered.Load()
	var counted counts
	acked := l.acked[:0]
	for _, o := range outcomes {
		seq := o.Seq
		if o.Class != Stored {
			l.failed(o, now, &counted)
			continue
		}
		l.lanes.done(o.Flight, o.Stream, now)
		acked = append(acked, seq)
		if o.Duplicate {
			counted.duplicate++
		} else {
			counted.stored++
		}
	}
	clear(outcomes)
	l.spare, l.acked = outcomes, acked

	counted.dead, l.lanes.dead = int64(l.lanes.dead), 0
	l.mu.Lock()
	l.progress.Published = append(l.progress.Published, acked...)
	l.counted.add(counted)
	l.mu.Unlock()
	if len(acked) > 0 {
		signal(l.record)
	}
	l.passHeld()
}

// failed takes in an event that was not stored, and reports it: at its first
// failure, and then ever more seldom.
func (l *leader) failed(o landing, now time.Time, counted *counts) {
	seq, id, kind := o.Seq, o.ID, o.Type
	if o.Class == Unroutable {
		signal(l.relay.doubt)
	}
	tries, kept := l.lanes.failed(o.Flight, o.Outcome, now)
	if kept {
		counted.retried++
	}
	if tries&(tries-1) == 0 {
		l.relay.cfg.Logger.Warn("event not published, will be tried again or held", "seq", seq, "event_id", id, "type", kind,
			"attempt", tries, "outcome", o.Class.String(), "error", o.Err)
	}
}

// take returns what is to be recorded, and clears it, and the number of the
// recording.
func (l *leader) take() (p postroom.Progress, counted counts, recording int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, counted, recording = l.progress, l.counted, l.recording
	l.progress, l.counted = postroom.Progress{}, counts{}
	l.recording++
	return p, counted, recording
}

// keepRecord records progress, and renews the lease where there is none, until ctx
// ends. It gives up while the lease still has a quarter to run: nothing is sent
// by a relay that may no longer be the leader.
func (l *leader) keepRecord(ctx context.Context) error {
	lease := l.relay.cfg.Lease
	sure := l.sure // the lease is valid for its whole length from here on
	for {
		renew := time.NewTimer(time.Until(sure.Add(lease / 3)))
		select {
		case <-ctx.Done():
			renew.Stop()
			return nil
		case <-renew.C:
		case <-l.record:
			renew.Stop()
		}

		began := time.Now()
		progress, counted, recording := l.take()
		// Not ctx's child: to cut a recording short would end its connection.
		deadline, cancel := context.WithDeadlineCause(context.WithoutCancel(ctx), sure.Add(lease*3/4), errLeaseUnsure)
		err := l.term.Record(deadline, progress)
		if deadline.Err() != nil {
			err = errors.Join(context.Cause(deadline), err)
		}
		cancel()
		l.relay.metrics.published(ctx, counted)
		if err != nil {
			return fmt.Errorf("record: %w", err)
		}
		l.recorded.Store(recording)
		sure = began
		if !sleep(ctx, max(recordEvery, min(recordShare*time.Since(began), lease/4))) {
			return nil
		}
	}
}

// errLeaseUnsure ends a term whose lease could not be renewed in time.
var errLeaseUnsure = errors.New("the lease was not renewed in time")

func (c *counts) add(o counts) {
	c.stored += o.stored
	c.duplicate += o.duplicate
	c.retried += o.retried
	c.held += o.held
	c.dead += o.dead
}

// signal notes that there is news; one note is enough.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
