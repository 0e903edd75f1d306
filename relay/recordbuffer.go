package relay

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/relay/broker"
	"github.com/postroom/postroom/relay/internal/position"
)

// recordBuffer collects what the next recording writes to the log. The dispatcher and the
// verifier add to the buffer, and the recorder empties it.
type recordBuffer struct {
	mu            sync.Mutex // guards the next seven fields
	progress      eventlog.Progress
	counted       counts
	nextRecording int64       // the number of the next recording
	drained       bool        // an event of progress was published from the table held
	takenHeld     int64       // how many events for the table held the recordings so far have taken
	unfinished    []takenHeld // the recordings whose events are not all in the table held
	positions     position.Set

	heldEvents    atomic.Int64 // events that wait to be written to the table held, here or in the term
	lastRecording atomic.Int64 // the number of the last recording after which the table held had all events for it

	compared atomic.Bool // the streams were compared when the term began, and all lost events are recorded

	due       chan struct{}   // signals that there is something to record
	saved     chan struct{}   // signals that a recording ended
	idle      chan struct{}   // signals that nothing is in flight, and manyUnrecorded or more events wait to be recorded
	roomFreed chan<- struct{} // signals that fewer than maxHeldEvents events wait for the table held
}

func newRecordBuffer(room chan<- struct{}) *recordBuffer {
	return &recordBuffer{
		nextRecording: 1, positions: make(position.Set), roomFreed: room,
		due: make(chan struct{}, 1), saved: make(chan struct{}, 1), idle: make(chan struct{}, 1),
	}
}

// takenHeld is a recording, and recordBuffer.takenHeld after it.
type takenHeld struct{ recording, events int64 }

// recording is what one recording writes.
type recording struct {
	progress eventlog.Progress
	counted  counts
	number   int64
	held     int64 // the events that waited to be written to the table held
	drained  bool  // it removes events from the table held
}

// take empties the buffer.
func (u *recordBuffer) take() recording {
	u.mu.Lock()
	defer u.mu.Unlock()
	taken := recording{progress: u.progress, counted: u.counted, number: u.nextRecording, held: u.heldEvents.Load(), drained: u.drained}
	u.takenHeld += int64(len(u.progress.Held))
	u.unfinished = append(u.unfinished, takenHeld{u.nextRecording, u.takenHeld})
	u.progress, u.counted, u.drained = eventlog.Progress{}, counts{}, false
	u.nextRecording++
	return taken
}

// done notes that a recording ended without an error, and how many events and other changes it left
// to the next recordings.
func (u *recordBuffer) done(taken recording, held, other int) {
	//guard:events-that-a-recording-left-still-wait = u.heldEvents.Add(-taken.held)
	waiting := u.heldEvents.Add(int64(held) - taken.held)
	if waiting < maxHeldEvents && waiting+taken.held-int64(held) >= maxHeldEvents {
		signal(u.roomFreed) // the dispatcher may take pages again
	}
	if held+other > 0 {
		signal(u.due)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	//guard:a-key-waits-for-the-recording-of-all-its-events 2 = u.unfinished[0].events <= u.takenHeld
	for len(u.unfinished) > 0 && u.unfinished[0].events <= u.takenHeld-int64(held) { // the events are stored in the order in which they were taken
		u.lastRecording.Store(u.unfinished[0].recording)
		u.unfinished = u.unfinished[1:]
	}
	signal(u.saved)
}

// addStored adds acknowledged events, and moves the positions of streams. The parameter drained says
// whether one of the events was read from the table held. The result many reports whether at least
// manyUnrecorded events wait to be recorded. The result suspicious reports whether a stream must be
// compared.
func (u *recordBuffer) addStored(acked []int64, drained bool, repeated []eventlog.RepublishResult, ends *position.Acks, counted counts) (many, suspicious bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.progress.Published = append(u.progress.Published, acked...)
	u.drained = u.drained || drained
	moved, suspicious := u.positions.Advance(ends)
	u.progress.Positions = position.Merge(u.progress.Positions, moved)
	u.progress.Republished = append(u.progress.Republished, repeated...)
	u.counted.add(counted)
	return len(u.progress.Published) >= manyUnrecorded, suspicious
}

// addHeld adds events for the table held. It calls the function taken with the number of the next
// recording. This function returns events that go to the table, and events that stay there.
func (u *recordBuffer) addHeld(taken func(recording int64) (held []eventlog.Deferral, returned []int64)) {
	u.mu.Lock()
	held, returned := taken(u.nextRecording)
	u.progress.Held = append(u.progress.Held, held...)
	u.progress.Returned = append(u.progress.Returned, returned...)
	u.counted.held += int64(len(held))
	u.heldEvents.Add(int64(len(held)))
	u.mu.Unlock()
	signal(u.due)
}

// addDropped adds events of cancelled republishes, which are no longer sent.
func (u *recordBuffer) addDropped(dropped []eventlog.RepublishResult) {
	u.mu.Lock()
	u.progress.Republished = append(u.progress.Republished, dropped...)
	u.mu.Unlock()
	signal(u.due)
}

// markUnverified adds positions that must be compared before they may move.
func (u *recordBuffer) markUnverified(all []broker.StreamPosition) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.positions.AddUnverified(all)
}

// markVerified notes that a stream lost nothing, and when the stream was created.
func (u *recordBuffer) markVerified(name string, created time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.progress.Positions = position.Merge(u.progress.Positions, u.positions.Verified(name, created))
}

// lastPositions returns a copy of the positions.
func (u *recordBuffer) lastPositions() []broker.StreamPosition {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.positions.Snapshot()
}

// markLost notes that a stream lost events, and where it ends now.
func (u *recordBuffer) markLost(name string, end broker.StreamPosition) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.positions.Lost(name, end)
}

// requeueLost adds the events that a stream lost, which must be published again, and the stream's new
// position. It returns after the recording has ended.
func (u *recordBuffer) requeueLost(ctx context.Context, stream string, lost, late []int64) error {
	u.mu.Lock()
	u.progress.Lost = append(u.progress.Lost, lost...)
	u.progress.LostBehindKey = append(u.progress.LostBehindKey, late...)
	u.progress.Positions = position.Merge(u.progress.Positions, []broker.StreamPosition{u.positions.Repaired(stream)})
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
