// Package holder stores deliveries in the table held if they failed, or if they must not be handled
// directly from the stream. One statement stores all deliveries that wait for the holder.
package holder

import (
	"context"
	"slices"
	"time"

	"github.com/postroom/postroom/inbox/internal/delivery"
)

// Parcel is a delivery to hold, with the deliveries of its key that are to be held behind it.
type Parcel struct {
	Owner Owner
	D     *delivery.Delivery
	H     delivery.Holding
	Along []*delivery.Delivery
}

// Owner is the loop of the handler that put the parcel into the queue.
type Owner interface {
	// IsStale reports whether the delivery was read in a term that is over, and must not be held.
	// If so, IsStale also gives the delivery back.
	IsStale(ctx context.Context, d *delivery.Delivery) bool

	// TakeBack reports whether the owner itself stores and finishes the parcel, because that may
	// take long.
	TakeBack(p Parcel) bool

	// Finish finishes the deliveries of a parcel according to their fates. If the parameter fates
	// is nil, the deliveries were not stored, and Finish holds them one by one.
	Finish(life delivery.Lifetime, p Parcel, fates []delivery.Fate)
}

// Events returns the number of deliveries in the parcel.
func (p Parcel) Events() int { return 1 + len(p.Along) }

// bytes returns the size of the parcel's data.
func (p Parcel) bytes() int {
	n := len(p.D.Event.Data)
	for _, d := range p.Along {
		n += len(d.Event.Data)
	}
	return n
}

// Most is the number of events at which a statement gets no further parcel. The last parcel may
// have several events, so a statement may store more events than Most.
const Most = 100

// MostBytes is the number of bytes at which a statement gets no further parcel. The last parcel may
// be large, so a statement may store more. Until its end, memory has several copies of its events.
const MostBytes = 4 << 20

// How long the holder waits for more parcels. One statement for each event would cost
// more than all other work for the event, and a failed event can wait.
const (
	linger      = 20 * time.Millisecond
	shortLinger = 5 * time.Millisecond // if the first parcel is due at once
)

// Store stores the events of parcels and returns the fate of each event.
type Store func(life delivery.Lifetime, parcels []Parcel) ([]delivery.Fate, error)

// Holder stores parcels. It implements postroom.Runner.
type Holder struct {
	store Store
	drain time.Duration
	queue chan Parcel
	done  chan struct{} // closed when no more parcels can come
}

// New returns a holder whose queue has room for the given number of parcels. The parameter drain is
// how long the holder may go on to store events after the end of its context.
func New(store Store, room int, drain time.Duration) *Holder {
	return &Holder{store: store, drain: drain, queue: make(chan Parcel, room), done: make(chan struct{})}
}

// Put queues a parcel. It does not block if the queue has room for every delivery in memory.
func (h *Holder) Put(p Parcel) { h.queue <- p }

// Close says that no more parcels will come.
func (h *Holder) Close() { close(h.done) }

// Run stores the parcels that it gets, until it is closed.
func (h *Holder) Run(ctx context.Context) error {
	life, cancel := delivery.NewLifetime(ctx, h.drain)
	defer cancel()
	for {
		select {
		case <-h.done:
			return nil
		case p := <-h.queue:
			h.hold(life, h.collect(p))
		}
	}
}

// collect returns a parcel, and the parcels that come soon after it.
func (h *Holder) collect(first Parcel) []Parcel {
	parcels, n, bytes := []Parcel{first}, first.Events(), first.bytes()
	wait := linger
	if first.H.After == delivery.AtOnce && !first.H.Behind { // the parcel first is due at once
		wait = shortLinger
	}
	over := time.NewTimer(wait)
	defer over.Stop()
	for n < Most && bytes < MostBytes {
		select {
		case p := <-h.queue:
			parcels, n, bytes = append(parcels, p), n+p.Events(), bytes+p.bytes()
		case <-over.C:
			return parcels
		case <-h.done:
			return parcels
		}
	}
	return parcels
}

// hold stores the events, and then finishes each one according to its fate.
func (h *Holder) hold(life delivery.Lifetime, parcels []Parcel) {
	parcels = slices.DeleteFunc(parcels, func(p Parcel) bool { return p.Owner.IsStale(life.Work, p.D) || p.Owner.TakeBack(p) })
	if len(parcels) == 0 {
		return
	}
	fates, err := h.store(life, parcels)
	for _, p := range parcels {
		n := p.Events()
		switch {
		case err == nil:
			p.Owner.Finish(life, p, fates[:n])
			fates = fates[n:]
		case p.Owner.IsStale(life.Work, p.D):
		default: // the database refuses an event, or the process stops: handle each parcel separately
			p.Owner.Finish(life, p, nil)
		}
	}
}
