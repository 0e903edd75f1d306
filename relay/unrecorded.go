package relay

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postroom/postroom/eventlog"
	"github.com/postroom/postroom/reconcile"
)

// unrecorded is what a term knows and the log does not yet: conduct and attest note it,
// the recorder takes it.
type unrecorded struct {
	mu        sync.Mutex // guards the next four
	progress  eventlog.Progress
	counted   counts
	recording int64 // the number of the next recording
	places    places

	holding  atomic.Int64 // events that wait to be written to held
	recorded atomic.Int64 // the number of the last recording

	due   chan struct{}   // there is something to record
	noted chan struct{}   // something was recorded
	quiet chan struct{}   // nothing is in flight, and much is to be recorded
	room  chan<- struct{} // few wait to be written to held again
}

func newUnrecorded(room chan<- struct{}) *unrecorded {
	return &unrecorded{
		recording: 1, places: make(places), room: room,
		due: make(chan struct{}, 1), noted: make(chan struct{}, 1), quiet: make(chan struct{}, 1),
	}
}

// take returns what is to be recorded, and clears it, and the number of the
// recording.
func (u *unrecorded) take() (p eventlog.Progress, counted counts, recording int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	p, counted, recording = u.progress, u.counted, u.recording
	u.progress, u.counted = eventlog.Progress{}, counts{}
	u.recording++
	if u.holding.Swap(0) >= maxHolding {
		signal(u.room) // conduct may read again
	}
	return p, counted, recording
}

// done notes that a recording was made.
func (u *unrecorded) done(recording int64) {
	u.recorded.Store(recording)
	signal(u.noted)
}

// stored notes what the broker has, where streams end by that, and what became of
// others. many reports whether much is to be recorded, suspicious whether a stream has to
// be looked at.
func (u *unrecorded) stored(acked []int64, repeated []eventlog.Repeated, ends *ends, counted counts) (many, suspicious bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.progress.Published = append(u.progress.Published, acked...)
	moved, suspicious := u.places.learn(ends)
	u.progress.Places = move(u.progress.Places, moved)
	u.progress.Repeated = append(u.progress.Repeated, repeated...)
	u.counted.add(counted)
	return len(u.progress.Published) >= manyUnrecorded, suspicious
}

// hold notes what goes to held, and back there. taken returns that for the recording in
// which it will be.
func (u *unrecorded) hold(taken func(recording int64) (held []eventlog.Holding, returned []int64)) {
	u.mu.Lock()
	held, returned := taken(u.recording)
	u.progress.Held = append(u.progress.Held, held...)
	u.progress.Returned = append(u.progress.Returned, returned...)
	u.counted.held += int64(len(held))
	u.holding.Add(int64(len(held)))
	u.mu.Unlock()
	signal(u.due)
}

// drop notes events of rewinds that are not sent any more.
func (u *unrecorded) drop(dropped []eventlog.Repeated) {
	u.mu.Lock()
	u.progress.Repeated = append(u.progress.Repeated, dropped...)
	u.mu.Unlock()
	signal(u.due)
}

// doubt takes places in that have to be compared first.
func (u *unrecorded) doubt(all []eventlog.Place) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, at := range all {
		u.places[at.Stream] = &place{Place: at, doubted: true}
	}
}

// trust notes that a stream has what it had, and when it was created.
func (u *unrecorded) trust(name string, created time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.progress.Places = move(u.progress.Places, u.places.kept(name, created))
}

// ends returns the places as they are.
func (u *unrecorded) ends() []eventlog.Place {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.places.snapshot()
}

// owe has events recorded as not published, with the place at which their stream ends
// now, and returns when that is done.
func (u *unrecorded) owe(ctx context.Context, found reconcile.Findings, now eventlog.Place) error {
	u.mu.Lock()
	u.progress.Owed = append(u.progress.Owed, inOrder(found)...)
	u.progress.Late = append(u.progress.Late, found.Late...)
	u.progress.Places = move(u.progress.Places, []eventlog.Place{now})
	u.places[now.Stream] = &place{Place: now}
	recording := u.recording
	u.mu.Unlock()
	signal(u.due)
	for u.recorded.Load() < recording {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-u.noted:
		}
	}
	return nil
}
