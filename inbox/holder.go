package inbox

import (
	"context"
	"slices"
	"time"

	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/inbox/internal/ledger"
)

// holder holds events that failed on the straight path, or are not to take it, as
// many at a time as wait: what is held often costs its neighbours less than a
// transaction for each. It implements postroom.Runner.
type holder struct {
	inbox *Inbox
	queue chan parcel   // has room for whatever is in hand
	done  chan struct{} // closed when nothing more comes
}

// parcel is a delivery that is to be held, with those that fly along with it.
type parcel struct {
	c     *loop
	d     *delivery.Delivery
	h     delivery.Holding
	along []*delivery.Delivery
}

// bytes is how much data it has.
func (p parcel) bytes() int {
	n := len(p.d.Event.Data)
	for _, d := range p.along {
		n += len(d.Event.Data)
	}
	return n
}

// holdAtOnce is how many events one statement holds, or a parcel more.
const holdAtOnce = 100

// holdBytes is how many bytes one statement holds, or a parcel more: they are in memory
// several times over until it has ended.
const holdBytes = 4 << 20

func newHolder(in *Inbox) *holder {
	room := 0
	for _, c := range in.loops {
		room += c.inflight.Most()
	}
	return &holder{inbox: in, queue: make(chan parcel, room), done: make(chan struct{})}
}

// Run holds what it is given until the consumers have ended.
func (h *holder) Run(ctx context.Context) error {
	work, cancel := h.inbox.drain(ctx)
	defer cancel()
	for {
		select {
		case <-h.done:
			return nil
		case p := <-h.queue:
			h.hold(ctx, work, h.collect(p))
		}
	}
}

// How long the holder waits for more: one statement for each event would cost more
// than all else that is done for it. Nobody waits for what failed.
const (
	linger      = 20 * time.Millisecond
	shortLinger = 5 * time.Millisecond // for what is to run at once
)

// collect returns a parcel, and those that come soon after it.
func (h *holder) collect(first parcel) []parcel {
	parcels, n, bytes := []parcel{first}, 1+len(first.along), first.bytes()
	wait := linger
	if first.h.After == delivery.AtOnce && !first.h.Behind { // it is to run at once
		wait = shortLinger
	}
	over := time.NewTimer(wait)
	defer over.Stop()
	for n < holdAtOnce && bytes < holdBytes {
		select {
		case p := <-h.queue:
			parcels, n, bytes = append(parcels, p), n+1+len(p.along), bytes+p.bytes()
		case <-over.C:
			return parcels
		case <-h.done:
			return parcels
		}
	}
	return parcels
}

// hold stores events, and goes on with each as it became.
func (h *holder) hold(ctx, work context.Context, parcels []parcel) {
	parcels = slices.DeleteFunc(parcels, func(p parcel) bool { return p.isStale(work) })
	if len(parcels) == 0 {
		return
	}
	var events []ledger.Owed
	for _, p := range parcels {
		events = append(events, p.c.owe(p.d, p.h))
		for _, d := range p.along {
			events = append(events, p.c.owe(d, p.h))
		}
	}
	var fates []delivery.Fate
	err := parcels[0].c.persist(ctx, work, func() (err error) {
		fates, err = h.inbox.db.Store(work, events...)
		return delivery.Written(err)
	})
	for _, p := range parcels {
		n := 1 + len(p.along)
		switch {
		case err == nil:
			p.c.finishTogether(ctx, work, p, fates[:n])
			fates = fates[n:]
		case p.isStale(work):
			continue
		default: // one of them takes no row, or the process stops: each goes its own way
			p.c.flights.Back(p.d, p.along)
			p.c.finish(work, p.d, p.c.hold(ctx, work, p.d, p.h))
		}
		p.c.owing.Done()
	}
}

// isStale hands an event of an external handler back that was read in a term that is
// over, and reports whether it did: one of its key may have been handed back before it.
func (p parcel) isStale(ctx context.Context) bool {
	if p.c.external == nil || !p.d.IsOver() {
		return false
	}
	p.c.finish(ctx, p.d, delivery.HandedBack)
	p.c.owing.Done()
	return true
}
