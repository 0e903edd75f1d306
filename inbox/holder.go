package inbox

import "context"

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
	c     *consumer
	d     *delivery
	h     holding
	along []*delivery
}

// holdAtOnce is how many events one statement holds, or a parcel more.
const holdAtOnce = 100

func newHolder(in *Inbox) *holder {
	room := 0
	for _, c := range in.consumers {
		room += c.hand.most
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
			parcels, n := []parcel{p}, 1+len(p.along)
			for n < holdAtOnce && len(h.queue) > 0 {
				p = <-h.queue
				parcels, n = append(parcels, p), n+1+len(p.along)
			}
			h.hold(ctx, work, parcels)
		}
	}
}

// hold stores events, and goes on with each as it became.
func (h *holder) hold(ctx, work context.Context, parcels []parcel) {
	var events []owed
	for _, p := range parcels {
		events = append(events, owed{p.c, p.d, p.h})
		for _, d := range p.along {
			events = append(events, owed{p.c, d, p.h})
		}
	}
	var fates []fate
	err := events[0].c.persist(ctx, work, func() (err error) {
		fates, err = h.inbox.store(work, events...)
		return written(err)
	})
	for _, p := range parcels {
		if err != nil { // one of them takes no row, or the process stops: each goes its own way
			p.c.flights.back(p.d, p.along)
			p.c.hold(ctx, work, p.d, p.h)
		} else {
			p.c.fatedTogether(ctx, work, p, fates[:1+len(p.along)])
			fates = fates[1+len(p.along):]
		}
		p.c.owing.Done()
	}
}
