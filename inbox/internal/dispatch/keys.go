package dispatch

import (
	"fmt"
	"sync"
	"time"

	"github.com/postroom/postroom/inbox/internal/delivery"
)

// Keys has the blocked keys of an ordered handler: events of these keys are held, or may be held.
// This process learns of every blocked key. It reads the held events when its term begins, and it
// notes each event that it holds. If another process runs or holds an event of a key later, the
// broker delivers that event to this process too. This process then sees that the event is a
// duplicate, and notes that the key may be blocked. So if a key is not blocked, its events run
// without a look at the table held. An event without a key waits for no other event. If a key is
// blocked, its events are held behind the held event, many in one statement. If the held event is
// tried again soon, the next delivery of the key is not held: it waits in memory. That saves two
// transactions, one to hold it and one to run it from that table.
type Keys struct {
	mu     sync.Mutex
	keys   map[string]block
	parked map[string]*waiter // for each key, the delivery that waits in memory; later deliveries of the key wait for that delivery
	later  map[string]*waiter // the deliveries that could not be held, by the names of Later
	size   int                // the bytes of the deliveries in later
	any    bool               // more keys are blocked than fit into the map, so any key may be blocked
	notes  uint64             // the number of notes made so far
}

// block has what this process knows about a key whose events may be held.
type block struct {
	retryAt time.Time // when the held event is tried again; zero if that is not known
	maybe   bool      // the key may be free: its next delivery must check whether it is
	note    uint64    // the number of this note
}

// waiter is a delivery that waits in memory: for the held event of its key, or because it could not
// be held.
type waiter struct {
	d     *delivery.Delivery
	size  int // for Later: the bytes of its message
	timer *time.Timer
}

// Room is room for deliveries in memory.
type Room struct{ Messages, Bytes int }

const (
	// MaxKeys is the largest number of keys that Keys remembers.
	MaxKeys = 100_000

	// MaxParkQueue is how many deliveries of a key may wait behind the delivery that waits in
	// memory. If more come, that delivery stops waiting in memory.
	MaxParkQueue = 6

	// Parked deliveries are in flight. If the room for deliveries in flight is full, the reader
	// waits until half of it is free (see stream.InFlight). So parked deliveries must need less
	// than half of it.
	maxParked    = 128             // keys
	maxParkBytes = 128 << 10       // the approximate bytes of parked deliveries
	longestPark  = time.Second     // if the held event's next attempt is further away than this, the delivery is not parked
	parkGrace    = longestPark / 5 // extra time for that attempt

	// laterWait is how long a delivery waits in memory if it could not even be held.
	laterWait = 5 * time.Second
)

// Hold notes that an event of a key is held, and the time of the event's next attempt. If this time
// is zero, a time that was noted before stays.
func (b *Keys) Hold(key string, retryAt time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if known, ok := b.keys[key]; ok && retryAt.IsZero() {
		retryAt = known.retryAt
	}
	b.set(key, block{retryAt: retryAt})
}

// NoteHeld notes that an event of a key was held. The parameter h says how it was held.
func (b *Keys) NoteHeld(key string, h delivery.Holding) {
	if key == "" {
		return
	}
	var retryAt time.Time
	if h.After != nil && !h.Behind {
		retryAt = time.Now().Add(*h.After)
	}
	b.Hold(key, retryAt)
}

// Doubt notes that events of a key may be held, for instance because another process decided an
// event of the key.
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

// Version returns the number of the last note about a key, or 0 if there is none.
func (b *Keys) Version(key string) uint64 {
	if key == "" {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.keys[key].note
}

// Free notes that no event of a key is held. The parameter note is the version of the key that the
// caller read earlier. If there is a newer note about the key, Free does nothing: this process may
// have begun another term since then, and may have found events of the key that other processes
// held. Free reports whether it made the note.
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

// Has reports whether events of a key are known to be held (is), or may be held (maybe).
func (b *Keys) Has(key string) (is, maybe bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	known, ok := b.keys[key]
	return ok && !known.maybe, ok || b.any
}

// IsHeld reports whether events of a key are known to be held.
func (b *Keys) IsHeld(key string) bool {
	if key == "" {
		return false
	}
	is, _ := b.Has(key)
	return is
}

// Park makes a delivery wait in memory until Unpark is called for its key. If Unpark is not called
// within parkGrace after the time of the held event's next attempt, a timer calls the function
// expired with the key. Park returns at once: false if the delivery may not wait in memory.
func (b *Keys) Park(d *delivery.Delivery, expired func(key string)) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := delivery.Bounded(d.Event.Key)
	wait := time.Until(b.keys[key].retryAt)
	if d.Parked || b.parkedBytes()+len(d.Event.Data) > maxParkBytes || wait < -parkGrace || wait > longestPark || len(b.parked) >= maxParked {
		return false
	}
	if b.parked == nil {
		b.parked = make(map[string]*waiter)
	}
	d.Parked = true // a delivery is parked only once
	b.parked[key] = &waiter{d: d, timer: time.AfterFunc(wait+parkGrace, func() { expired(key) })}
	return true
}

// Later makes a delivery, whose message has the given size, wait in memory because it could not even
// be held. After laterWait, a timer calls the function expired with a name for which Unpark returns d.
// An ordered reader cannot give back a single message: it would have to begin again at this message.
// If it did so each time, it would never read the later messages. Later reports whether the delivery
// fits into the room for all deliveries that wait so.
func (b *Keys) Later(d *delivery.Delivery, size int, room Room, expired func(name string)) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.size+size > room.Bytes || len(b.later) >= room.Messages {
		return false
	}
	if b.later == nil {
		b.later = make(map[string]*waiter)
	}
	name := fmt.Sprintf("\x00%d %d", d.Epoch(), d.Place.Seq) // no key begins with \x00
	b.later[name] = &waiter{d, size, time.AfterFunc(laterWait, func() { expired(name) })}
	b.size += size
	return true
}

// parkedBytes returns the size of the bodies of all deliveries that wait for a held event.
func (b *Keys) parkedBytes() (n int) {
	for _, p := range b.parked {
		n += len(p.d.Event.Data)
	}
	return n
}

// Unpark removes and returns the delivery that waits in memory for a key, or under a name of Later.
// It returns nil if there is none.
func (b *Keys) Unpark(key string) *delivery.Delivery {
	b.mu.Lock()
	defer b.mu.Unlock()
	from := b.parked
	if b.later[key] != nil {
		from = b.later
	}
	p := from[key]
	if p == nil {
		return nil
	}
	p.timer.Stop()
	delete(from, key)
	b.size -= p.size
	return p.d
}

// UnparkAll removes and returns all deliveries that wait in memory.
func (b *Keys) UnparkAll() []*delivery.Delivery {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []*delivery.Delivery
	for _, from := range []map[string]*waiter{b.parked, b.later} {
		for _, p := range from {
			p.timer.Stop()
			all = append(all, p.d)
		}
	}
	b.parked, b.later, b.size = nil, nil, 0
	return all
}
