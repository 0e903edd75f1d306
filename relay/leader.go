package relay

import (
	"context"
	"errors"
	"fmt"
	"sync"
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
)

// retry is the schedule of an event whose publishing failed. It is repeated for
// as long as it takes.
var retry = postroom.Backoff{
	50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second,
}

// leader is a relay in one term. Four goroutines work for it: reader reads
// pages, conduct decides what is sent, the publisher sends, recorder records.
// The first to fail ends the term.
type leader struct {
	relay *Relay
	term  Term
	sure  time.Time // when the lease was asked for

	pages   chan []postroom.Logged // reader to conduct
	batches chan []postroom.Logged // conduct to the publisher

	mu       sync.Mutex
	outcomes []outcome     // publisher to conduct
	acked    []int64       // conduct to recorder
	counted  counts        // conduct to recorder
	news     chan struct{} // outcomes is not empty
	progress chan struct{} // there is something to record
}

type outcome struct {
	seq       int64
	duplicate bool
	err       error
}

// serveTerm leads until ctx ends, and then drains, or until something fails.
// The lease was asked for at the given time.
func (r *Relay) serveTerm(ctx context.Context, term Term, asked time.Time) error {
	l := &leader{
		relay: r, term: term, sure: asked,
		pages: make(chan []postroom.Logged), batches: make(chan []postroom.Logged),
		news: make(chan struct{}, 1), progress: make(chan struct{}, 1),
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
	others.Go(func() { l.end(fail, recording, l.record(recording)) })

	l.conduct(ctx, work)
	stopReading()
	readers.Wait()
	stopPublishing()
	stopRecording()
	others.Wait()

	l.absorb(newLanes()) // nothing is sent any more: what was acknowledged meanwhile is published
	leave, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.cfg.Lease)
	defer cancel()
	published, counted := l.take()
	r.metrics.published(leave, counted)
	return errors.Join(context.Cause(work), term.Release(leave, published))
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
	for {
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
		if page.Held > 0 {
			signal(l.progress) // it may be due before the lease has to be renewed
		}
		l.relay.metrics.late.Add(ctx, int64(page.Late))
		if len(page.Events) > 0 {
			select {
			case l.pages <- page.Events:
			case <-ctx.Done():
				return nil
			}
		}
		switch {
		case full:
			continue
		case len(page.Events) > 0 || page.Missing > 0 || page.Held > 0:
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
	lanes := newLanes()
	var drained <-chan time.Time
	for ending := false; !ending || lanes.sent > 0; {
		var batch []postroom.Logged
		if !ending {
			batch = lanes.next(l.relay.cfg.Window-lanes.sent, time.Now())
		}
		if len(batch) > 0 && !l.send(ctx, work, lanes, batch) {
			return
		}

		var pages <-chan []postroom.Logged
		if !ending && lanes.size() <= l.relay.cfg.MaxUnpublished-pageSize && lanes.bytes < maxBytes {
			pages = l.pages
		}
		due, stop := (<-chan time.Time)(nil), func() bool { return true }
		if !ending && lanes.sent < l.relay.cfg.Window { // otherwise nothing could be sent
			due, stop = retryTimer(lanes)
		}
		select {
		case events := <-pages:
			lanes.add(events)
		case <-l.news:
			l.absorb(lanes)
		case <-due:
		case <-done(ctx, ending):
			ending = true
			drained = time.After(l.relay.cfg.DrainTimeout)
		case <-drained:
			l.relay.cfg.Logger.WarnContext(ctx, "relay left before all acknowledgements came; the next leader publishes these events again",
				"events", lanes.sent)
			return
		case <-work.Done():
			return
		}
		stop()
	}
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
func (l *leader) send(ctx, work context.Context, lanes *lanes, batch []postroom.Logged) bool {
	for {
		select {
		case l.batches <- batch:
			return true
		case <-l.news:
			l.absorb(lanes)
		case <-ctx.Done():
			lanes.sent -= len(batch)
			return true
		case <-work.Done():
			return false
		}
	}
}

// retryTimer returns a channel that receives when the next failed event is due,
// a nil one where there is none, and what ends the timer behind it.
func retryTimer(lanes *lanes) (due <-chan time.Time, stop func() bool) {
	at, ok := lanes.nextRetry()
	if !ok {
		return nil, func() bool { return true }
	}
	timer := time.NewTimer(time.Until(at))
	return timer.C, timer.Stop
}

// settle takes an outcome from the publisher.
func (l *leader) settle(seq int64, duplicate bool, err error) {
	l.mu.Lock()
	l.outcomes = append(l.outcomes, outcome{seq, duplicate, err})
	l.mu.Unlock()
	signal(l.news)
}

// absorb moves outcomes into the lanes, and the acknowledged on to the
// recorder.
func (l *leader) absorb(lanes *lanes) {
	l.mu.Lock()
	outcomes := l.outcomes
	l.outcomes = nil
	l.mu.Unlock()

	now := time.Now()
	var acked []int64
	var counted counts
	for _, o := range outcomes {
		if o.err != nil {
			counted.retried++
			if attempts := lanes.failed(o.seq, now, retry); attempts > 0 {
				l.relay.logFailure(o, attempts)
			}
			continue
		}
		lanes.done(o.seq)
		acked = append(acked, o.seq)
		if o.duplicate {
			counted.duplicate++
		} else {
			counted.stored++
		}
	}

	l.mu.Lock()
	l.acked = append(l.acked, acked...)
	l.counted.add(counted)
	l.mu.Unlock()
	if len(acked) > 0 {
		signal(l.progress)
	}
}

// logFailure reports an event that could not be published: at its first
// failure, and then ever more seldom.
func (r *Relay) logFailure(o outcome, attempts int) {
	if attempts&(attempts-1) == 0 {
		r.cfg.Logger.Warn("event not acknowledged, will be published again", "seq", o.seq, "attempts", attempts, "error", o.err)
	}
}

// take returns what is to be recorded, and clears it.
func (l *leader) take() ([]int64, counts) {
	l.mu.Lock()
	defer l.mu.Unlock()
	acked, counted := l.acked, l.counted
	l.acked, l.counted = nil, counts{}
	return acked, counted
}

// record records progress, and renews the lease where there is none, until ctx
// ends. It gives up while the lease still has a quarter to run: nothing is sent
// by a relay that may no longer be the leader.
func (l *leader) record(ctx context.Context) error {
	lease := l.relay.cfg.Lease
	sure := l.sure // the lease is valid for its whole length from here on
	for {
		renew := time.NewTimer(time.Until(sure.Add(lease / 3)))
		select {
		case <-ctx.Done():
			renew.Stop()
			return nil
		case <-renew.C:
		case <-l.progress:
			renew.Stop()
		}

		began := time.Now()
		acked, counted := l.take()
		// Not ctx's child: to cut a recording short would end its connection.
		deadline, cancel := context.WithDeadlineCause(context.WithoutCancel(ctx), sure.Add(lease*3/4), errLeaseUnsure)
		err := l.term.Record(deadline, acked)
		if deadline.Err() != nil {
			err = errors.Join(context.Cause(deadline), err)
		}
		cancel()
		l.relay.metrics.published(ctx, counted)
		if err != nil {
			return fmt.Errorf("record: %w", err)
		}
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
}

// signal notes that there is news; one note is enough.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
