// Package dispatch decides when a handler may run for a delivery, and on which worker. Two
// deliveries of one event never run at the same time. If the handler is ordered, the events of a
// key run one after the other, in their order. The package does no I/O and starts no goroutine.
package dispatch

import (
	"hash/maphash"
	"sync"
	"sync/atomic"

	"github.com/postroom/postroom/inbox/internal/delivery"
)

// Lanes has the queues (lanes) of the workers: one lane for all workers, or one for each worker.
type Lanes struct {
	queues []chan *delivery.Delivery
	turn   atomic.Uint64 // a counter that spreads the events without a key over the lanes
}

// NewLanes returns n lanes. Each has the given room: as many deliveries as may be in flight.
func NewLanes(n, room int) *Lanes {
	l := &Lanes{queues: make([]chan *delivery.Delivery, n)}
	for i := range l.queues {
		l.queues[i] = make(chan *delivery.Delivery, room)
	}
	return l
}

// Put passes a delivery to the workers. If each worker has a lane, all events of a key go to the
// same worker. Two workers with events of one key could wait for each other's row locks.
func (l *Lanes) Put(d *delivery.Delivery) {
	lane := 0
	switch {
	case len(l.queues) == 1:
	case d.Event.Key != "":
		lane = int(maphash.String(seed, d.Event.Key) % uint64(len(l.queues))) //nolint:gosec // the result is a lane's index
	default:
		lane = int(l.turn.Add(1) % uint64(len(l.queues))) //nolint:gosec // as above
	}
	l.queues[lane] <- d
}

var seed = maphash.MakeSeed()

// Of returns the lane from which the given worker takes deliveries.
func (l *Lanes) Of(worker int) <-chan *delivery.Delivery { return l.queues[worker%len(l.queues)] }

// Drain empties the lanes and calls f with each delivery. If f puts a delivery into a lane, Drain
// also takes that delivery out.
func (l *Lanes) Drain(f func(*delivery.Delivery)) {
	for found := true; found; { // f may have put a delivery into a lane that was already empty
		found = false
		for _, lane := range l.queues {
			for more := true; more; {
				select {
				case d := <-lane:
					f(d)
					found = true
				default:
					more = false
				}
			}
		}
	}
}

// Collect returns d and deliveries that wait in the given lane, at most n deliveries in all.
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

// Duplicates lets deliveries with the same Flight run one at a time in this process, in the order
// of their arrival. Usually Flight is the dedupe key. Without Duplicates, a second delivery of an
// event would occupy a connection: the unique index of the table inbox makes it wait for the first.
// For an ordered handler that is not external, Flight is the key of the event.
type Duplicates struct {
	mu      sync.Mutex
	waiting map[string][]*delivery.Delivery // for each Flight that is in flight: the deliveries that wait for it
}

// NewDuplicates returns a Duplicates with nothing in flight.
func NewDuplicates() *Duplicates { return &Duplicates{waiting: make(map[string][]*delivery.Delivery)} }

// Begin reports whether d may run now. If not, it queues d, and a later End returns d.
func (f *Duplicates) Begin(d *delivery.Delivery) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	queue, flying := f.waiting[d.Flight]
	//planted:keys-side-by-side false
	if flying {
		f.waiting[d.Flight] = append(queue, d)
		return false
	}
	f.waiting[d.Flight] = nil
	return true
}

// Queued returns the number of waiting deliveries that have the same Flight as d.
func (f *Duplicates) Queued(d *delivery.Delivery) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.waiting[d.Flight])
}

// End ends the flight of d. It returns the delivery that has waited longest for d, or nil if none
// waits. The returned delivery is in flight from now on: do not call Begin for it.
func (f *Duplicates) End(d *delivery.Delivery) *delivery.Delivery {
	if d.Flight == "" { // d was added to the flight of another delivery (see Along), which ends it
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

// Along removes from the queue up to n deliveries that wait for d, the oldest first, and returns
// them. It stops before the first delivery for which the function allowed returns false. From now
// on the returned deliveries are in flight together with d.
func (f *Duplicates) Along(d *delivery.Delivery, n int, allowed func(*delivery.Delivery) bool) []*delivery.Delivery {
	f.mu.Lock()
	defer f.mu.Unlock()
	queue := f.waiting[d.Flight]
	k := 0
	for k < min(n, len(queue)) && allowed(queue[k]) {
		queue[k].Flight = ""
		k++
	}
	f.waiting[d.Flight] = queue[k:]
	return queue[:k:k]
}

// Back undoes Along: the given deliveries wait for d again, before all others.
func (f *Duplicates) Back(d *delivery.Delivery, taken []*delivery.Delivery) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, other := range taken {
		other.Flight = d.Flight
	}
	f.waiting[d.Flight] = append(taken[:len(taken):len(taken)], f.waiting[d.Flight]...)
}
