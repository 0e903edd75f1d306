package relay

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/postroom/postroom/eventlog"
	"github.com/postroom/postroom/internal/pause"
)

const (
	// If a read takes longer than this, its connection is dead, or the read needs more time than
	// earlier reads: see adaptiveTimeout.
	readTimeout = time.Minute

	// The wait after a read that found events. Each later read without events doubles the
	// wait, up to Config.IdlePoll.
	busyPoll = time.Millisecond

	// While keys have events in held, the reader asks this often which keys still have events in
	// held. It spends at most a twentieth of its time on that.
	keysEvery = time.Second
	keysShare = 20
)

// page is a message from the reader to the dispatcher.
type page struct {
	events        []eventlog.Event
	keys          []string // keys that have events in held
	hasKeys       bool     // the reader has asked for keys; then keys is the complete answer, even if it is empty
	lastRecording int64    // the number of the last recording before the reader asked for keys

	cancelled []int64 // republishes that were cancelled
}

// intake has the values that the reader and the dispatcher share.
type intake struct {
	pages          chan page
	hasBlockedKeys atomic.Bool // some keys have events in held

	republishEvents atomic.Int64 // events of republishes that were read and have not left the dispatcher
	republishBytes  atomic.Int64 // bytes of their data
}

// reader reads events of the log ahead, before the dispatcher can send them.
type reader struct {
	*intake

	relay  *Relay
	term   eventlog.Term
	buffer *recordBuffer
	pacer  republishPacer
}

// read passes pages to the dispatcher until ctx ends.
func (r *reader) read(ctx context.Context) error {
	if err := r.readHeldKeys(ctx); err != nil { // before the first event of these keys is read
		return err
	}
	wait, limit, askKeys := busyPoll, firstPage, time.Now().Add(keysEvery)
	// The dispatcher has copied a page before it takes the next page, so two slices are enough.
	var free, handed []eventlog.Event
	var pace pace
	r.pacer = republishPacer{next: time.Now().Add(republishEvery)} // republishes are read later, because events that were never published come first
	next := time.NewTimer(wait)
	defer next.Stop()
	for {
		if err := r.readRepublish(ctx); err != nil {
			return err
		}
		if began := time.Now(); r.hasBlockedKeys.Load() && began.After(askKeys) {
			if err := r.readHeldKeys(ctx); err != nil {
				return err
			}
			askKeys = time.Now().Add(max(keysEvery, keysShare*time.Since(began)))
		}
		// If another thread waits for the network when a timer is set, the runtime wakes up that
		// thread. To avoid this, the timer of an idle wait is set before the read.
		began, idle := time.Now(), min(2*wait, r.relay.cfg.IdlePoll)
		next.Reset(idle)
		page, err := r.readPage(ctx, limit, free)
		took := time.Since(began)
		if err != nil {
			return err
		}
		full := len(page.Events) >= limit
		limit = nextLimit(page.Events)
		if len(page.Events) > 0 {
			if !r.pass(ctx, page.Events) {
				return nil
			}
			free, handed = handed, page.Events
		}
		gap := pace.addPass(len(page.Events), took, time.Now())
		switch {
		case full, page.More:
			continue
		case len(page.Events) > 0 || page.Missing > 0 || page.Scheduled > 0:
			wait = busyPoll
		default:
			wait = idle
		}
		if !pause.For(ctx, gap) {
			return nil
		}
		if rest := r.pacer.shorten(wait-gap, time.Now()); rest != idle || took > idle/8 {
			next.Reset(rest)
		}
		if !r.wait(ctx, next.C) {
			return nil
		}
	}
}

// readPage reads a page within a time limit.
func (r *reader) readPage(ctx context.Context, limit int, into []eventlog.Event) (eventlog.Page, error) {
	var page eventlog.Page
	err := r.relay.timeouts.page.run(ctx, func(ctx context.Context) (err error) {
		page, err = r.term.Read(ctx, limit, into)
		return err
	})
	if err != nil {
		return page, err
	}
	if page.Missing > 0 {
		r.relay.cfg.Logger.ErrorContext(ctx, "unpublished events deleted from the log",
			"events", page.Missing)
	}
	if page.Unstorable > 0 {
		r.relay.cfg.Logger.ErrorContext(ctx, "events dead: the database refuses to hold them",
			"events", page.Unstorable)
	}
	if page.Scheduled > 0 {
		signal(r.buffer.due) // record the scheduled events now: one may be due before the next renewal of the lease
	}
	if page.Late > 0 {
		r.relay.metrics.late.Add(ctx, int64(page.Late))
	}
	return page, nil
}

// pass passes events to the dispatcher. It returns false if ctx ended.
func (r *reader) pass(ctx context.Context, events []eventlog.Event) bool {
	select {
	case r.pages <- page{events: events}:
		return true
	case <-ctx.Done():
		return false
	}
}

// readHeldKeys reads which keys have events in held, and passes these keys to the dispatcher.
func (r *reader) readHeldKeys(ctx context.Context) error {
	p := page{hasKeys: true, lastRecording: r.buffer.lastRecording.Load()} // must be read before HeldKeys is called, because p.keys may lack the keys of later recordings
	err := r.relay.timeouts.keys.run(ctx, func(ctx context.Context) (err error) {
		p.keys, err = r.term.HeldKeys(ctx)
		return err
	})
	if err != nil {
		return err
	}
	select {
	case r.pages <- p:
	case <-ctx.Done():
	}
	return nil
}

// nextLimit returns how many events fill a page if they are as large as the given events.
// So the log does not read rows that do not fit. If the next events are larger, the log
// ends the page earlier.
func nextLimit(events []eventlog.Event) int {
	if len(events) == 0 {
		return firstPage
	}
	bytes := 0
	for i := range events {
		bytes += len(events[i].Data)
	}
	each := bytes/len(events) + 1
	return min(max(eventlog.PageBytes/each, 1), pageSize)
}

// wait waits until next receives, or until Wake is called. It returns false if ctx ended.
func (r *reader) wait(ctx context.Context, next <-chan time.Time) bool {
	select {
	case <-ctx.Done():
		return false
	case <-next:
	case <-r.relay.wake:
	}
	return true
}
