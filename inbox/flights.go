package inbox

import "sync"

// flights lets one delivery of each identity run at a time in this process: a
// second one would only wait for the first on the ledger's index, and hold a
// connection for that long.
type flights struct {
	mu      sync.Mutex
	waiting map[string][]*delivery // for each identity in flight, what waits for it
}

func newFlights() *flights { return &flights{waiting: make(map[string][]*delivery)} }

// begin reports whether d may run. Where not, it waits until end returns it.
func (f *flights) begin(d *delivery) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	queue, flying := f.waiting[d.flight]
	if flying {
		f.waiting[d.flight] = append(queue, d)
		return false
	}
	f.waiting[d.flight] = nil
	return true
}

// end returns the delivery that waited for d the longest, which then is in
// flight; or nil.
func (f *flights) end(d *delivery) *delivery {
	f.mu.Lock()
	defer f.mu.Unlock()
	queue := f.waiting[d.flight]
	if len(queue) == 0 {
		delete(f.waiting, d.flight)
		return nil
	}
	f.waiting[d.flight] = queue[1:]
	return queue[0]
}
