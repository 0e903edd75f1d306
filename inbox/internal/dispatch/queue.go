// Package dispatch says which delivery of a handler may run, and where: one of each
// identity at a time, the events of a key in their order, and what waits for a worker. It
// does no I/O and starts no goroutine.
package dispatch

import (
	"hash/maphash"
	"sync"
	"sync/atomic"

	"github.com/postroom/postroom/inbox/internal/delivery"
)

// Lanes have what waits for a worker: one for all, or one for each.
type Lanes struct {
	queues []chan *delivery.Delivery
	turn   atomic.Uint64 // of the lane for the next event without a key
}

// NewLanes returns n lanes. Each has room for as many as may be in hand.
func NewLanes(n, room int) *Lanes {
	l := &Lanes{queues: make([]chan *delivery.Delivery, n)}
	for i := range l.queues {
		l.queues[i] = make(chan *delivery.Delivery, room)
	}
	return l
}

// Put hands a delivery to the workers. If each has a lane, the events of a key go to
// one of them: two would wait for each other's rows.
func (l *Lanes) Put(d *delivery.Delivery) {
	lane := 0
	switch {
	case len(l.queues) == 1:
	case d.Event.Key != "":
		lane = int(maphash.String(seed, d.Event.Key) % uint64(len(l.queues))) //nolint:gosec // less than the number of lanes
	default:
		lane = int(l.turn.Add(1) % uint64(len(l.queues))) //nolint:gosec // as above
	}
	l.queues[lane] <- d
}

var seed = maphash.MakeSeed()

// Of returns the lane of a worker.
func (l *Lanes) Of(worker int) <-chan *delivery.Delivery { return l.queues[worker%len(l.queues)] }

// Drain takes everything that waits, and what is put meanwhile.
func (l *Lanes) Drain(take func(*delivery.Delivery)) {
	for _, lane := range l.queues {
		for {
			select {
			case d := <-lane:
				take(d)
				continue
			default:
			}
			break
		}
	}
}

// Collect returns d and what else waits in a lane, n at the most.
func Collect(d *delivery.Delivery, lane <-chan *delivery.Delivery, n int) []*delivery.Delivery {
	all := []*delivery.Delivery{d}
	for len(all) < n {
		select {
		case d = <-lane:
			all = append(all, d)
		default:
			return all
		}
	}
	return all
}

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
