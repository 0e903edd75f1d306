package schedule

import "github.com/postroom/postroom/eventlog"

// republishes is what a scheduler knows of events of rewinds. They go through the lanes of
// their keys, one in flight for each as all others, as long as they are stored. But
// they were published before, and so hold up nobody: one that the broker does not take
// leaves its lane. Nor do they wait for one that is held.
type republishes struct {
	cancelled map[int64]struct{}  // rewinds whose events are sent no more
	dropped   []eventlog.Repeated // of them
	gone      int                 // events of rewinds that left the lanes since it was last asked
	goneBytes int                 // and their data
}

// IsRepublished reports whether an event is read from the log for a rewind. One that is read
// from held is as all others there.
func (f *Entry) IsRepublished() bool { return f.Rewind != 0 && !f.Held }

// releaseKey lets the next of its key pass an event of a rewind.
func (l *Scheduler) releaseKey(f *Entry) {
	key := f.OrderKey()
	if !f.IsRepublished() || key == "" {
		return
	}
	if f.next == nil {
		delete(l.keys, key)
	} else {
		l.ready.push(f.next)
	}
	f.next, f.Unordered = nil, true
}

// putBack adds events that were released and have not left.
func (l *Scheduler) putBack(events []eventlog.Logged) {
	for i := range events {
		l.gone--
		l.goneBytes -= len(events[i].Data)
	}
	l.Add(events)
}

// Cancel has the events of a rewind sent no more.
func (l *republishes) Cancel(rewind int64) {
	if l.cancelled == nil {
		l.cancelled = make(map[int64]struct{})
	}
	l.cancelled[rewind] = struct{}{}
}

// dropCancelled takes an event that was about to be sent off where its rewind was cancelled, and
// reports whether it did.
func (l *Scheduler) dropCancelled(f *Entry) bool {
	if _, ok := l.cancelled[f.Rewind]; !ok || !f.IsRepublished() {
		return false
	}
	l.releaseKey(f)
	l.dropped = append(l.dropped, eventlog.Repeated{Rewind: f.Rewind, Seq: f.Seq, Dropped: true})
	l.release(f)
	return true
}

// countGone counts an event of a rewind that leaves the lanes.
func (l *republishes) countGone(f *Entry) {
	if f.IsRepublished() {
		l.gone++
		l.goneBytes += len(f.Data)
	}
}

// TakeGone returns how many events of rewinds left the lanes, and their bytes, and which
// of them were dropped, since it was last called.
func (l *republishes) TakeGone() (events, bytes int, dropped []eventlog.Repeated) {
	events, bytes, dropped = l.gone, l.goneBytes, l.dropped
	l.gone, l.goneBytes, l.dropped = 0, 0, nil
	return events, bytes, dropped
}

// HasGone reports whether events of rewinds left since it was last asked which.
func (l *republishes) HasGone() bool { return l.gone > 0 }
