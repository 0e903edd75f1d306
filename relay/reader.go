package relay

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/postroom/postroom/eventlog"
	"github.com/postroom/postroom/internal/pause"
)

const (
	// A read that takes longer has lost its connection, or needs longer than the others
	// have: see allowance.
	readTimeout = time.Minute

	// After a pass with news the next comes this soon; each empty one after it
	// doubles the wait, up to Config.IdlePoll.
	busyPoll = time.Millisecond

	// While keys have events in held, it is asked this often which still do, and
	// no more than a twentieth of the time is spent on it.
	keysEvery = time.Second
	keysShare = 20
)

// page is what the reader found.
type page struct {
	events        []eventlog.Logged
	keys          []string // that have events in held
	hasKeys       bool     // whether it asked for keys
	lastRecording int64    // the last recording when it asked

	cancelled []int64 // rewinds whose events are sent no more
}

// intake is on its way from the reader to the dispatcher, and what either tells the other of it.
type intake struct {
	pages          chan page
	hasBlockedKeys atomic.Bool // some keys have events in held

	republishEvents atomic.Int64 // events of rewinds that were read and are on their way
	republishBytes  atomic.Int64 // and their data
}

// reader reads the log ahead.
type reader struct {
	*intake

	relay  *Relay
	term   eventlog.Term
	buffer *recordBuffer
	pacer  republishPacer
}

// read hands pages to the dispatcher for as long as ctx lives.
func (r *reader) read(ctx context.Context) error {
	if err := r.readHeldKeys(ctx); err != nil { // before the first event that may have to follow them
		return err
	}
	wait, limit, askKeys := busyPoll, firstPage, time.Now().Add(keysEvery)
	// The dispatcher has copied a page before it takes the next: two pieces of memory serve all.
	var free, handed []eventlog.Logged
	var pace pace
	r.pacer = republishPacer{next: time.Now().Add(republishEvery)} // what nobody has seen yet comes first
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
		// For a timer that is set while another of its threads waits for the network, the
		// runtime wakes that thread up: the end of an idle wait is set before the pass.
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

// readPage reads a page, in bounded time.
func (r *reader) readPage(ctx context.Context, limit int, into []eventlog.Logged) (eventlog.Page, error) {
	var page eventlog.Page
	err := r.relay.timeouts.page.run(ctx, func(ctx context.Context) (err error) {
		page, err = r.term.Read(ctx, limit, into)
		return err
	})
	if err != nil {
		return page, err
	}
	if page.Missing > 0 {
		r.relay.cfg.Logger.ErrorContext(ctx, "events that were not published are gone from the log: somebody deleted their rows",
			"events", page.Missing)
	}
	if page.Unstorable > 0 {
		r.relay.cfg.Logger.ErrorContext(ctx, "events could not be held as they are; they are dead, of class unstorable, and an operator has to decide",
			"events", page.Unstorable)
	}
	if page.Scheduled > 0 {
		signal(r.buffer.due) // it may be due before the lease has to be renewed
	}
	if page.Late > 0 {
		r.relay.metrics.late.Add(ctx, int64(page.Late))
	}
	return page, nil
}

// pass gives a page to the dispatcher, and reports whether ctx still lives.
func (r *reader) pass(ctx context.Context, events []eventlog.Logged) bool {
	select {
	case r.pages <- page{events: events}:
		return true
	case <-ctx.Done():
		return false
	}
}

// readHeldKeys tells the dispatcher which keys have events in held.
func (r *reader) readHeldKeys(ctx context.Context) error {
	p := page{hasKeys: true, lastRecording: r.buffer.lastRecording.Load()} // before it asks: what is recorded later may be missing
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

// nextLimit returns how many events of the size of the given ones fill a page. It saves
// the log from looking at rows that do not fit into one; that the next events are larger
// is the log's business.
func nextLimit(events []eventlog.Logged) int {
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

// wait waits for next or for a call of Wake, and reports whether ctx still lives.
func (r *reader) wait(ctx context.Context, next <-chan time.Time) bool {
	select {
	case <-ctx.Done():
		return false
	case <-next:
	case <-r.relay.wake:
	}
	return true
}
