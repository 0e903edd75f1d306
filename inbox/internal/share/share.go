// Package share divides the resources of a process among its handlers: connections of the
// pool, and memory for events.
package share

import "fmt"

// Least is the smallest number of bytes that each handler may use for events in memory.
const Least = 2 << 20

// spare is the number of connections of the pool that the workers do not use, kept for handlers
// that use the pool besides their transaction, and for a relay that renews its lease. Without them,
// every worker could have one connection and wait for a second one for ever.
const spare = 2

// mostWorkers is the largest number of workers of a handler that did not choose a number.
const mostWorkers = 32

// Handler says what a handler needs.
type Handler struct {
	Workers     int  // the number of workers that the handler chose; 0 for a share of the remaining connections
	Connections int  // the number of connections that its workers need at the same time; 0 if not chosen
	Leases      int  // the number of connections that keep the handler's leases
	Stream      bool // the handler reads a stream
}

// Check returns an error if a pool has too few connections for the handlers.
func Check(all []Handler, connections int32) error {
	need := 0
	for _, h := range all {
		need += max(h.Connections, 1) + h.Leases
	}
	if most := int(connections); need+spare > most {
		return fmt.Errorf("the workers need %d connections and %d to spare, and the pool has %d: raise pool_max_conns in the database URL, or lower Workers",
			need, spare, most)
	}
	return nil
}

// Workers returns the number of workers of each handler. Handlers that did not choose a
// number get an equal share of the remaining connections.
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

// Bytes returns how many bytes of deliveries a handler may have in memory if it reads a stream. It
// also returns how many bytes of held events a handler may have claimed. For all handlers together,
// each of the two numbers is at most total, unless that would give a handler less than Least.
func Bytes(all []Handler, total int) (deliveries, held int) {
	streams := 0
	for _, h := range all {
		if h.Stream {
			streams++
		}
	}
	return max(total/max(streams, 1), Least), max(total/max(len(all), 1), Least)
}
