// Package stopwatch measures the time from the commit of an event to its acknowledgement.
package stopwatch

import (
	"slices"
	"sync"
	"time"

	"github.com/postroom/postroom/relay/broker"
)

// Times records when events were committed and acknowledged. It is safe for concurrent use.
type Times struct {
	mu        sync.Mutex
	ids       map[int64]string // the ids of events, by seq
	committed map[string]time.Time
	acks      map[string]time.Time
}

// New returns an empty stopwatch.
func New() *Times {
	t := &Times{ids: make(map[int64]string), acks: make(map[string]time.Time)}
	t.Begin()
	return t
}

// Begin forgets earlier commits. It keeps acknowledgements, because an event may be acknowledged
// before the answer to its commit arrives.
func (t *Times) Begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.committed = make(map[string]time.Time)
}

// Commit records when the producer got the answer to the commit of an event.
func (t *Times) Commit(id string, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.committed[id] = at
}

// Ack records when an event was acknowledged.
func (t *Times) Ack(id string, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.acks[id] = at
}

// Read records the seqs of events, because an acknowledgement names only the seq.
func (t *Times) Read(events []broker.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range events {
		t.ids[events[i].Seq] = events[i].ID
	}
}

// Acked records that the broker has just acknowledged the event with the given seq.
func (t *Times) Acked(seq int64) {
	at := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.acks[t.ids[seq]] = at
	delete(t.ids, seq)
}

// Complete returns the latencies in milliseconds, sorted. It also returns the ids of the committed
// events that are not acknowledged yet.
func (t *Times) Complete() (latencies []float64, missing []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	latencies = make([]float64, 0, len(t.committed))
	for id, committed := range t.committed {
		acked, ok := t.acks[id]
		if !ok {
			missing = append(missing, id)
			continue
		}
		// The acknowledgement can come before the answer to the commit. Then the latency is 0.
		latencies = append(latencies, max(0, acked.Sub(committed).Seconds()*1000))
	}
	slices.Sort(latencies)
	return latencies, missing
}
