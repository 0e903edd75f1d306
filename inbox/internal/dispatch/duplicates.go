package dispatch

import (
	"sync"

	"github.com/postroom/postroom/inbox/internal/delivery"
)

// Duplicates lets one delivery of each identity run at a time in this process: a
// second one would only wait for the first on the ledger's index, and hold a
// connection for that long. Of an ordered handler it lets one of each key run, in
// their order.
type Duplicates struct {
	mu      sync.Mutex
	waiting map[string][]*delivery.Delivery // for each in flight, what waits for it
}

// NewDuplicates returns one in which nothing is in flight.
func NewDuplicates() *Duplicates { return &Duplicates{waiting: make(map[string][]*delivery.Delivery)} }

// Begin reports whether d may run. Where not, it waits until end returns it.
func (f *Duplicates) Begin(d *delivery.Delivery) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	queue, flying := f.waiting[d.Flight]
	if flying {
		f.waiting[d.Flight] = append(queue, d)
		return false
	}
	f.waiting[d.Flight] = nil
	return true
}

// Queued returns how many wait for what flies where d does.
func (f *Duplicates) Queued(d *delivery.Delivery) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.waiting[d.Flight])
}

// End returns the delivery that waited for d the longest, which then is in
// flight; or nil.
func (f *Duplicates) End(d *delivery.Delivery) *delivery.Delivery {
	if d.Flight == "" { // it flew along
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	queue := f.waiting[d.Flight]
	if len(queue) == 0 {
		delete(f.waiting, d.Flight)
		return nil
	}
	f.waiting[d.Flight] = queue[1:]
	return queue[0]
}

// Along returns those that wait for d, in their order, n at the most and only up to
// the first that may not: they fly with it from here on.
func (f *Duplicates) Along(d *delivery.Delivery, n int, may func(*delivery.Delivery) bool) []*delivery.Delivery {
	f.mu.Lock()
	defer f.mu.Unlock()
	queue := f.waiting[d.Flight]
	k := 0
	for k < min(n, len(queue)) && may(queue[k]) {
		queue[k].Flight = ""
		k++
	}
	f.waiting[d.Flight] = queue[k:]
	return queue[:k:k]
}

// Back has those that flew along with d wait for it again, before all others.
func (f *Duplicates) Back(d *delivery.Delivery, along []*delivery.Delivery) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, other := range along {
		other.Flight = d.Flight
	}
	f.waiting[d.Flight] = append(along[:len(along):len(along)], f.waiting[d.Flight]...)
}
