package inbox

import "sync"

// flights lets one delivery of each identity run at a time in this process: a
// second one would only wait for the first on the ledger's index, and hold a
// connection for that long. Of an ordered handler it lets one of each key run, in
// their order.
type flights struct {
	mu      sync.Mutex
	waiting map[string][]*delivery // for each in flight, what waits for it
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

// queued returns how many wait for what flies where d does.
func (f *flights) queued(d *delivery) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.waiting[d.flight])
}

// end returns the delivery that waited for d the longest, which then is in
// flight; or nil.
func (f *flights) end(d *delivery) *delivery {
	if d.flight == "" { // it flew along
		return nil
	}
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

// along returns those that wait for d, in their order, n at the most and only up to
// the first that may not: they fly with it from here on.
func (f *flights) along(d *delivery, n int, may func(*delivery) bool) []*delivery {
	f.mu.Lock()
	defer f.mu.Unlock()
	queue := f.waiting[d.flight]
	k := 0
	for k < min(n, len(queue)) && may(queue[k]) {
		queue[k].flight = ""
		k++
	}
	f.waiting[d.flight] = queue[k:]
	return queue[:k:k]
}

// back has those that flew along with d wait for it again, before all others.
func (f *flights) back(d *delivery, along []*delivery) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, other := range along {
		other.flight = d.flight
	}
	f.waiting[d.flight] = append(along[:len(along):len(along)], f.waiting[d.flight]...)
}
