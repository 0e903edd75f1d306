// Package share divides among handlers what a process has: connections of the pool, and
// memory for events.
package share

import "fmt"

// Least is how many bytes of events each handler may have in memory at least.
const Least = 2 << 20

// spare is how many connections of the pool the workers leave to others: to handlers that
// use the pool besides their transaction, and to a relay that renews its lease. Without
// spare connections all workers could wait for each other's.
const spare = 2

// mostWorkers is how many workers a handler gets that did not choose a number.
const mostWorkers = 32

// Handler says what a handler needs.
type Handler struct {
	Workers     int  // that it chose; 0 for a share of what is left
	Connections int  // that its workers need at the same time; 0 if it did not choose
	Leases      int  // connections that keep its leases
	Stream      bool // it reads a stream
}

// Check returns an error if a pool has too few connections for the handlers.
func Check(all []Handler, connections int32) error {
	need := 0
	for _, h := range all {
		need += max(h.Connections, 1) + h.Leases
	}
	if most := int(connections); need+spare > most {
		return fmt.Errorf("the workers need %d connections and %d to spare, and the pool has %d: raise pool_max_conns or lower Workers",
			need, spare, most)
	}
	return nil
}

// Workers returns the number of workers of each handler. Those that did not choose get an
// equal share of the connections that are left.
func Workers(all []Handler, connections int32) []int {
	left, open := int(connections)-spare, 0
	for _, h := range all {
		left -= h.Connections + h.Leases
		if h.Workers == 0 {
			open++
		}
	}
	workers := make([]int, len(all))
	for i, h := range all {
		workers[i] = h.Workers
		if h.Workers == 0 {
			workers[i] = min(max(left/open, 1), mostWorkers)
		}
	}
	return workers
}

// Bytes returns how many bytes of deliveries each handler of a stream may have in memory, and
// how many bytes of held events each handler may have claimed. total is for all handlers.
func Bytes(all []Handler, total int) (deliveries, held int) {
	streams := 0
	for _, h := range all {
		if h.Stream {
			streams++
		}
	}
	return max(total/max(streams, 1), Least), max(total/max(len(all), 1), Least)
}
