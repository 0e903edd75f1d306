package relay

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postroom/postroom/eventlog"
	"github.com/postroom/postroom/reconcile"
)

// recordBuffer is what a term knows and the log does not yet: dispatcher and verifier note it,
// the recorder takes it.
type recordBuffer struct {
	mu            sync.Mutex // guards the next four
	progress      eventlog.Progress
	counted       counts
	nextRecording int64 // the number of the next recording
	positions     positions

	heldEvents    atomic.Int64 // events that wait to be written to held
	lastRecording atomic.Int64 // the number of the last recording

	due       chan struct{}   // there is something to record
	saved     chan struct{}   // something was recorded
	idle      chan struct{}   // nothing is in flight, and much is to be recorded
	roomFreed chan<- struct{} // few wait to be written to held again
}

func newRecordBuffer(room chan<- struct{}) *recordBuffer {
	return &recordBuffer{
		nextRecording: 1, positions: make(positions), roomFreed: room,
		due: make(chan struct{}, 1), saved: make(chan struct{}, 1), idle: make(chan struct{}, 1),
	}
}

// take returns what is to be recorded, and clears it, and the number of the
// recording.
func (u *recordBuffer) take() (p eventlog.Progress, counted counts, recording int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	p, counted, recording = u.progress, u.counted, u.nextRecording
	u.progress, u.counted = eventlog.Progress{}, counts{}
	u.nextRecording++
	if u.heldEvents.Swap(0) >= maxHeldEvents {
		signal(u.roomFreed) // the dispatcher may read again
	}
	return p, counted, recording
}

// done notes that a recording was made.
func (u *recordBuffer) done(recording int64) {
	u.lastRecording.Store(recording)
	signal(u.saved)
}

// addStored notes what the broker has, where streams end by that, and what became of
// others. many reports whether much is to be recorded, suspicious whether a stream has to
// be looked at.
func (u *recordBuffer) addStored(acked []int64, repeated []eventlog.Repeated, ends *ackRanges, counted counts) (many, suspicious bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.progress.Published = append(u.progress.Published, acked...)
	moved, suspicious := u.positions.advance(ends)
	u.progress.Places = mergePositions(u.progress.Places, moved)
	u.progress.Repeated = append(u.progress.Repeated, repeated...)
	u.counted.add(counted)
	return len(u.progress.Published) >= manyUnrecorded, suspicious
}

// addHeld notes what goes to held, and back there. taken returns that for the recording in
// which it will be.
func (u *recordBuffer) addHeld(taken func(recording int64) (held []eventlog.Holding, returned []int64)) {
	u.mu.Lock()
	held, returned := taken(u.nextRecording)
	u.progress.Held = append(u.progress.Held, held...)
	u.progress.Returned = append(u.progress.Returned, returned...)
	u.counted.held += int64(len(held))
	u.heldEvents.Add(int64(len(held)))
	u.mu.Unlock()
	signal(u.due)
}

// addDropped notes events of rewinds that are not sent any more.
func (u *recordBuffer) addDropped(dropped []eventlog.Repeated) {
	u.mu.Lock()
	u.progress.Repeated = append(u.progress.Repeated, dropped...)
	u.mu.Unlock()
	signal(u.due)
}

// markUnverified takes places in that have to be compared first.
func (u *recordBuffer) markUnverified(all []eventlog.Place) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, at := range all {
		u.positions[at.Stream] = &position{Place: at, unverified: true}
	}
}

// markVerified notes that a stream has what it had, and when it was created.
func (u *recordBuffer) markVerified(name string, created time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.progress.Places = mergePositions(u.progress.Places, u.positions.verified(name, created))
}

// lastPositions returns the places as they are.
func (u *recordBuffer) lastPositions() []eventlog.Place {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.positions.snapshot()
}

// requeueLost has events recorded as not published, with the place at which their stream ends
// now, and returns when that is done.
func (u *recordBuffer) requeueLost(ctx context.Context, found reconcile.Result, now eventlog.Place) error {
	u.mu.Lock()
	u.progress.Owed = append(u.progress.Owed, inOrder(found)...)
	u.progress.Late = append(u.progress.Late, found.OutOfOrder...)
	u.progress.Places = mergePositions(u.progress.Places, []eventlog.Place{now})
	u.positions[now.Stream] = &position{Place: now}
	recording := u.nextRecording
	u.mu.Unlock()
	signal(u.due)
	for u.lastRecording.Load() < recording {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-u.saved:
		}
	}
	return nil
}
