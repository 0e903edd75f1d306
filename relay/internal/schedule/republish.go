package schedule

import "github.com/postroom/postroom/eventlog"

// repeating is what a scheduler knows of events of rewinds. They go through the lanes of
// their keys, one in flight for each as all others, as long as they are stored. But
// they were published before, and so hold up nobody: one that the broker does not take
// leaves its lane. Nor do they wait for one that is held.
type repeating struct {
	cancelled map[int64]struct{}  // rewinds whose events are sent no more
	dropped   []eventlog.Repeated // of them
	gone      int                 // events of rewinds that left the lanes since it was last asked
	goneBytes int                 // and their data
}

// Repeats reports whether an event is read from the log for a rewind. One that is read
// from held is as all others there.
func (f *Entry) Repeats() bool { return f.Rewind != 0 && !f.Held }

// loosen lets the next of its key pass an event of a rewind.
func (l *Scheduler) loosen(f *Entry) {
	key := f.OrderKey()
	if !f.Repeats() || key == "" {
		return
	}
	if f.next == nil {
		delete(l.keys, key)
	} else {
		l.ready.push(f.next)
	}
	f.next, f.Unordered = nil, true
}

// addAgain adds events that were released and have not left.
func (l *Scheduler) addAgain(events []eventlog.Logged) {
	for i := range events {
		l.gone--
		l.goneBytes -= len(events[i].Data)
	}
	l.Add(events)
}

// Cancel has the events of a rewind sent no more.
func (l *repeating) Cancel(rewind int64) {
	if l.cancelled == nil {
		l.cancelled = make(map[int64]struct{})
	}
	l.cancelled[rewind] = struct{}{}
}

// drop takes an event that was about to be sent off where its rewind was cancelled, and
// reports whether it did.
func (l *Scheduler) drop(f *Entry) bool {
	if _, ok := l.cancelled[f.Rewind]; !ok || !f.Repeats() {
		return false
	}
	l.loosen(f)
	l.dropped = append(l.dropped, eventlog.Repeated{Rewind: f.Rewind, Seq: f.Seq, Dropped: true})
	l.release(f)
	return true
}

// left counts an event of a rewind that leaves the lanes.
func (l *repeating) left(f *Entry) {
	if f.Repeats() {
		l.gone++
		l.goneBytes += len(f.Data)
	}
}

// TakeGone returns how many events of rewinds left the lanes, and their bytes, and which
// of them were dropped, since it was last called.
func (l *repeating) TakeGone() (events, bytes int, dropped []eventlog.Repeated) {
	events, bytes, dropped = l.gone, l.goneBytes, l.dropped
	l.gone, l.goneBytes, l.dropped = 0, 0, nil
	return events, bytes, dropped
}

// HasGone reports whether events of rewinds left since it was last asked which.
func (l *repeating) HasGone() bool { return l.gone > 0 }
