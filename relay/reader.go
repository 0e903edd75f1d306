package relay

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/internal/sleep"
	"github.com/postroom/postroom/relay/broker"
)

const (
	// readTimeout is the first time limit of a read. A read that takes longer is cancelled, because
	// its connection may be dead. If reads need more time, adaptiveTimeout raises the limit.
	readTimeout = time.Minute

	// The wait after a read with events. A read without events doubles it, up to Config.IdlePoll.
	busyPoll = time.Millisecond

	// While some keys have events in the table held, the reader asks for these keys at the interval
	// keysEvery, or less often if its questions would take more than 1/keysShare of its time.
	keysEvery = time.Second
	keysShare = 20
)

// page is a message from the reader to the dispatcher.
type page struct {
	events        []broker.Event
	keys          []string // the keys that have events in the table held
	hasKeys       bool     // the reader has asked for the keys: keys has all of them, and is empty if there are none
	lastRecording int64    // the number of the last recording (see recordBuffer) before the reader read the events or asked for the keys

	cancelled []int64 // the ids of republishes that were cancelled

	again   bool  // the events were put back into the log, and read again
	through int64 // if again: the seq up to which they were read
}

// intake is what the reader and the dispatcher share.
type intake struct {
	pages          chan page
	again          chan []int64 // events that the reader must read again; the dispatcher sends them, and no others until it has got these
	hasBlockedKeys atomic.Bool  // some keys have events in the table held; set by the dispatcher

	republishEvents atomic.Int64 // how many events the reader has read for republishes and the dispatcher still has
	republishBytes  atomic.Int64 // the size of these events, in bytes
}

// reader reads events from the log before the dispatcher needs them.
type reader struct {
	*intake

	relay  *Relay
	term   eventlog.Term
	buffer *recordBuffer
	pacer  republishPacer
}

// read reads pages of events from the log for the dispatcher, until ctx ends.
func (r *reader) read(ctx context.Context) error {
	if err := r.readHeldKeys(ctx); err != nil { // the dispatcher must know these keys before it gets an event of them
		return err
	}
	wait, limit, askKeys := busyPoll, firstPage, time.Now().Add(keysEvery)
	// Two slices are enough for all pages: when the dispatcher takes a page, it has already copied
	// the previous page, so the reader can fill the slice of the previous page again.
	var free, handed []broker.Event
	var pace pace
	r.pacer = republishPacer{next: time.Now().Add(republishEvery)} // the first read of a republish waits: events that were never published have priority
	next := time.NewTimer(wait)
	defer next.Stop()
	for {
		if err := r.readAgain(ctx); err != nil {
			return err
		}
		if err := r.readRepublish(ctx); err != nil {
			return err
		}
		if began := time.Now(); r.hasBlockedKeys.Load() && began.After(askKeys) {
			if err := r.readHeldKeys(ctx); err != nil {
				return err
			}
			askKeys = time.Now().Add(max(keysEvery, keysShare*time.Since(began)))
		}
		// If a timer is set while a thread waits for the network, the Go runtime wakes that thread.
		// This happens less often if the timer of an idle wait is set before the read.
		before := r.buffer.lastRecording.Load() // a recording that ends during the read must not count: see readHeldKeys
		began, idle := time.Now(), min(2*wait, r.relay.cfg.IdlePoll)
		next.Reset(idle)
		found, err := r.readPage(ctx, limit, free)
		took := time.Since(began)
		if err != nil {
			return err
		}
		//guard:scheduled-events-fill-a-page = len(found.Events) >= limit
		full := len(found.Events)+found.Scheduled >= limit
		if len(found.Events) > 0 {
			limit = nextLimit(found.Events)
			if err := r.pass(ctx, page{events: found.Events, lastRecording: before}); err != nil || ctx.Err() != nil {
				return err
			}
			free, handed = handed, found.Events
		}
		gap := pace.addPass(len(found.Events), took, time.Now())
		switch {
		//guard:a-search-is-not-waited-for 2 remove
		case full, found.More:
			continue
		case len(found.Events) > 0 || found.Missing > 0 || found.Scheduled > 0:
			wait = busyPoll
		default:
			wait = idle
		}
		if !sleep.For(ctx, gap) {
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

// readAgain reads events again that the dispatcher has put back, if it asks for them.
func (r *reader) readAgain(ctx context.Context) error {
	select {
	case seqs := <-r.again:
		return r.readThese(ctx, seqs)
	default:
		return nil
	}
}

// readThese reads events again, and passes them to the dispatcher.
func (r *reader) readThese(ctx context.Context, seqs []int64) error {
	p := page{again: true}
	err := r.relay.timeouts.page.run(ctx, func(ctx context.Context) error {
		found, through, err := r.term.ReadAgain(ctx, seqs)
		p.events, p.through = found.Events, through
		r.logMissing(ctx, found.Missing)
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

// logMissing logs that events are gone from the log.
func (r *reader) logMissing(ctx context.Context, events int64) {
	if events > 0 {
		r.relay.cfg.Logger.ErrorContext(ctx, "unpublished events deleted from the log", "events", events)
	}
}

// readPage reads a page within a time limit.
func (r *reader) readPage(ctx context.Context, limit int, into []broker.Event) (eventlog.Page, error) {
	var page eventlog.Page
	err := r.relay.timeouts.page.run(ctx, func(ctx context.Context) (err error) {
		page, err = r.term.Read(ctx, limit, into)
		return err
	})
	if err != nil {
		return page, err
	}
	r.logMissing(ctx, page.Missing)
	if page.Unstorable > 0 {
		r.relay.cfg.Logger.ErrorContext(ctx, "events dead: the database refuses to hold them",
			"events", page.Unstorable)
	}
	if page.Scheduled > 0 {
		signal(r.buffer.due) // the recorder must soon move the scheduled events to the table held, because one of them may be due before the next renewal of the lease
	}
	if page.Late > 0 {
		r.relay.metrics.late.Add(ctx, int64(page.Late))
	}
	return page, nil
}

// pass sends the dispatcher a page. If the dispatcher asks for events that it has put back, pass reads
// these and sends them first: the dispatcher has room for them, and may have none for the page.
func (r *reader) pass(ctx context.Context, p page) error {
	for {
		if err := r.readAgain(ctx); err != nil {
			return err
		}
		//guard:what-was-put-back-comes-before-a-page do select { case r.pages <- p: return nil; case <-ctx.Done(): return nil }
		select {
		case r.pages <- p:
			return nil
		case seqs := <-r.again:
			if err := r.readThese(ctx, seqs); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// readHeldKeys asks the log which keys have events in the table held, and tells the dispatcher.
func (r *reader) readHeldKeys(ctx context.Context) error {
	p := page{hasKeys: true, lastRecording: r.buffer.lastRecording.Load()} // a recording that ends during the call of HeldKeys must not count, because p.keys may lack its keys: so load lastRecording before the call
	err := r.relay.timeouts.keys.run(ctx, func(ctx context.Context) (err error) {
		p.keys, err = r.term.HeldKeys(ctx)
		return err
	})
	if err != nil {
		return err
	}
	return r.pass(ctx, p)
}

// nextLimit returns how many events fill a page if their average size is that of the given events.
// With this limit, Term.Read does not read many rows that then do not fit into the page. If the
// next events are larger, Term.Read returns fewer events than the limit.
func nextLimit(events []broker.Event) int {
	bytes := 0
	for i := range events {
		bytes += events[i].Size()
	}
	each := bytes/len(events) + 1
	return min(max(eventlog.PageBytes/each, 1), pageSize)
}

// wait waits for the channel next or for Wake. It returns false if ctx ended.
func (r *reader) wait(ctx context.Context, next <-chan time.Time) bool {
	select {
	case <-ctx.Done():
		return false
	case <-next:
	case <-r.relay.wake:
	}
	return true
}
