// Package dispatch says which delivery of a handler may run, and where: one of each
// identity at a time, the events of a key in their order, and what waits for a worker. It
// does no I/O and starts no goroutine.
package dispatch

import (
	"hash/maphash"
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
