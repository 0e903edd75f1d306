// Package dispatch decides which delivery of a handler may run, and on which worker. Deliveries
// with the same identity run one at a time. For an ordered handler, the events of a key run in
// their order. The package does no I/O and starts no goroutine.
package dispatch

import (
	"hash/maphash"
	"sync"
	"sync/atomic"

	"github.com/postroom/postroom/inbox/internal/delivery"
)

// Lanes has the queues of the workers: one queue for all workers, or one for each worker.
type Lanes struct {
	queues []chan *delivery.Delivery
	turn   atomic.Uint64 // chooses the lane of the next event without a key
}

// NewLanes returns n lanes. Each has room for all deliveries that may be in flight.
func NewLanes(n, room int) *Lanes {
	l := &Lanes{queues: make([]chan *delivery.Delivery, n)}
	for i := range l.queues {
		l.queues[i] = make(chan *delivery.Delivery, room)
	}
	return l
}

// Put passes a delivery to the workers. If each worker has a lane, all events of a key go to the
// same worker. If two workers had events of one key, they could wait for each other's rows.
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

// Drain calls take for all waiting deliveries, also for those that take itself puts into a lane.
func (l *Lanes) Drain(take func(*delivery.Delivery)) {
	for found := true; found; { // take may put a delivery into a lane that was empty before
		found = false
		for _, lane := range l.queues {
			for more := true; more; {
				select {
				case d := <-lane:
					take(d)
					found = true
				default:
					more = false
				}
			}
		}
	}
}

// Collect returns d, and with it deliveries that wait in a lane. It returns at most n deliveries in
// all.
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

// Duplicates lets one delivery of each identity run at a time in this process. A second delivery
// would only wait for the first in the index of table inbox, and would occupy a connection. For an
// ordered handler that is not external, Duplicates lets one delivery of each key run at a time, in
// the order in which they came.
type Duplicates struct {
	mu      sync.Mutex
	waiting map[string][]*delivery.Delivery // for each Flight value, the deliveries that wait
}

// NewDuplicates returns a Duplicates with nothing in flight.
func NewDuplicates() *Duplicates { return &Duplicates{waiting: make(map[string][]*delivery.Delivery)} }

// Begin reports whether d may run. If not, d waits until End returns it.
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

// Queued returns how many deliveries with the same Flight as d wait.
func (f *Duplicates) Queued(d *delivery.Delivery) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.waiting[d.Flight])
}

// End ends the flight of d. It returns the delivery that waited longest for d, or nil.
// The returned delivery is in flight from now on.
func (f *Duplicates) End(d *delivery.Delivery) *delivery.Delivery {
	if d.Flight == "" { // d was in flight together with another delivery: see Along
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

// Along returns deliveries that wait for d, in their order. It returns at most n, and stops before
// the first delivery for which the function may returns false. From now on these deliveries are in
// flight together with d.
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

// Back makes the deliveries that were in flight together with d wait for d again, before
// all other deliveries.
func (f *Duplicates) Back(d *delivery.Delivery, along []*delivery.Delivery) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, other := range along {
		other.Flight = d.Flight
	}
	f.waiting[d.Flight] = append(along[:len(along):len(along)], f.waiting[d.Flight]...)
}
