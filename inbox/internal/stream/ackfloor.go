package stream

import (
	"slices"
	"sync"

	"github.com/postroom/postroom/inbox/internal/delivery"
)

// A floor is a position in the stream. Up to this position, every message that was read is decided.
type floor struct {
	mu   sync.Mutex
	at   delivery.Position
	open []readMessage // the messages above the floor that were read, in the stream's order; if several decided messages follow each other, only the last of them
}

// readMessage is a message that was read, and whether it is decided.
type readMessage struct {
	delivery.Position

	decided bool
}

// begin notes a message that was read.
func (f *floor) begin(m delivery.Position) {
	f.mu.Lock()
	defer f.mu.Unlock()
	//planted:floor-before-it-is-decided do f.at = m
	f.open = append(f.open, readMessage{Position: m})
}

// decided notes that a message is decided and need not be read again.
func (f *floor) decided(seq uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	i, found := slices.BinarySearchFunc(f.open, seq, func(p readMessage, seq uint64) int {
		switch {
		case p.Seq < seq:
			return -1
		case p.Seq > seq:
			return 1
		}
		return 0
	})
	if !found {
		return
	}
	f.open[i].decided = true
	if i+1 < len(f.open) && f.open[i+1].decided { // if several decided messages follow each other, open keeps only the last
		f.open = slices.Delete(f.open, i, i+1)
	}
	if i > 0 && f.open[i-1].decided {
		f.open = slices.Delete(f.open, i-1, i)
	}
	n := 0
	for n < len(f.open) && f.open[n].decided {
		f.at = f.open[n].Position
		n++
	}
	f.open = f.open[n:]
}

// reset sets the floor to a message, and forgets which messages were read.
func (f *floor) reset(m delivery.Position) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at, f.open = m, nil
}

// now returns the floor's position.
func (f *floor) now() delivery.Position {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.at
}

// idle reports whether every message that was read is decided.
func (f *floor) idle() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.open) == 0
}

// size returns how many messages above the floor were read and are not decided. The number may be a
// few too high, because f.open also has decided messages.
func (f *floor) size() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return int64(len(f.open))
}

// raise moves the floor up to a message. Call it only if the handler has decided all of its
// messages up to that one. If a message was read and is not decided yet, raise does nothing.
func (f *floor) raise(m delivery.Position) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.open) == 0 && m.Seq > f.at.Seq {
		f.at = m
	}
}
