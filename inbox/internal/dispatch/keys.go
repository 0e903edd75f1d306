package dispatch

import (
	"sync"
	"time"

	"github.com/postroom/postroom/inbox/internal/delivery"
)

// Keys are the keys of an ordered handler of which something is held, or may be, as
// far as this process knows. It knows of all of them: what was held when its term
// began it has read, what it holds it notes, and what another decided since it meets as
// a duplicate. So an event of any other key needs no look at what is held. An event without
// a key waits for none. What comes for a blocked key is held behind it, many events at a
// time; or waits here, if the next attempt at what is held is near: that is less work than
// two transactions.
type Keys struct {
	mu     sync.Mutex
	keys   map[string]block
	parked map[string]*parked // what waits here for a key, with all that waits for it
	any    bool               // there are more keys than are remembered
	notes  uint64             // made so far
}

// block is what is known of a key of which something may be held.
type block struct {
	again time.Time // when what is held is tried again; zero where not known
	maybe bool      // it may be free by now, or always was: the next of it is to look
	note  uint64    // which this one is
}

type parked struct {
	d     *delivery.Delivery
	timer *time.Timer
}

const (
	// MaxKeys is how many keys are remembered.
	MaxKeys = 100_000

	// MaxParkQueue is how many events may wait for the one that waits for its key.
	MaxParkQueue = 6

	// What waits here is in hand, and may be less than half of that: see stream.InFlight.
	maxParked    = 128             // keys
	maxParkBytes = 128 << 10       // data of what waits for its key, by and large
	longestPark  = time.Second     // until the next attempt at what is held
	parkGrace    = longestPark / 5 // for that attempt
)

// Hold notes that something of a key is held, which is tried again at the given time,
// or not by itself.
func (b *Keys) Hold(key string, again time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if known, ok := b.keys[key]; ok && again.IsZero() {
		again = known.again
	}
	b.set(key, block{again: again})
}

// NoteHeld notes how an event of a key was held.
func (b *Keys) NoteHeld(key string, h delivery.Holding) {
	if key == "" {
		return
	}
	var again time.Time
	if h.After != nil && !h.Behind {
		again = time.Now().Add(*h.After)
	}
	b.Hold(key, again)
}

// Doubt notes that something of a key may be held, or no longer: another process decided
// an event of it.
func (b *Keys) Doubt(key string) {
	if key == "" {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.set(key, block{maybe: true})
}

func (b *Keys) set(key string, as block) {
	if b.keys == nil {
		b.keys = make(map[string]block)
	}
	if _, known := b.keys[key]; !known && len(b.keys) >= MaxKeys {
		b.any = true
		return
	}
	b.notes++
	as.note = b.notes
	b.keys[key] = as
}

// Version returns which note is the last of a key; 0 where there is none.
func (b *Keys) Version(key string) uint64 {
	if key == "" {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.keys[key].note
}

// Free notes that nothing of a key is held, unless something was noted since: this process
// may have begun another term, and have learned then what others held meanwhile. It
// reports whether it did.
func (b *Keys) Free(key string, note uint64) bool {
	if key == "" {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.keys[key].note != note {
		return false
	}
	delete(b.keys, key)
	return true
}

// Has reports whether something of a key is held, and whether that may be so.
func (b *Keys) Has(key string) (is, maybe bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	known, ok := b.keys[key]
	return ok && !known.maybe, ok || b.any
}

// IsHeld reports whether something of a key is held, as far as is known.
func (b *Keys) IsHeld(key string) bool {
	if key == "" {
		return false
	}
	is, _ := b.Has(key)
	return is
}

// Park has a delivery wait here, until over is called with its key or the next attempt
// should have been made. It reports whether it may.
func (b *Keys) Park(d *delivery.Delivery, over func(key string)) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := delivery.Bounded(d.Event.Key)
	wait := time.Until(b.keys[key].again)
	if d.Parked || b.parkedBytes()+len(d.Event.Data) > maxParkBytes || wait < -parkGrace || wait > longestPark || len(b.parked) >= maxParked {
		return false
	}
	if b.parked == nil {
		b.parked = make(map[string]*parked)
	}
	d.Parked = true // once
	b.parked[key] = &parked{d, time.AfterFunc(wait+parkGrace, func() { over(key) })}
	return true
}

// parkedBytes is how much data what waits here has.
func (b *Keys) parkedBytes() (n int) {
	for _, p := range b.parked {
		n += len(p.d.Event.Data)
	}
	return n
}

// Unpark returns what waits here for a key, or nil. It waits no longer.
func (b *Keys) Unpark(key string) *delivery.Delivery {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.parked[key]
	if p == nil {
		return nil
	}
	p.timer.Stop()
	delete(b.parked, key)
	return p.d
}

// UnparkAll returns everything that waits here.
func (b *Keys) UnparkAll() []*delivery.Delivery {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []*delivery.Delivery
	for _, p := range b.parked {
		p.timer.Stop()
		all = append(all, p.d)
	}
	b.parked = nil
	return all
}
