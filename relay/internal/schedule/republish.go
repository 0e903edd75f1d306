package schedule

import "github.com/postroom/postroom/eventlog"

// republishes is what a scheduler knows of events of republishes. While the broker stores them,
// they keep the order of their keys as all others do. But they were published before, so
// they must not delay others: one that the broker does not take no longer blocks its key.
// They do not wait for held events of their key.
type republishes struct {
	cancelled map[int64]struct{}         // republishes that were cancelled
	dropped   []eventlog.RepublishResult // events of cancelled republishes
	gone      int                        // events of republishes that left since TakeGone
	goneBytes int                        // bytes of their data
}

// IsRepublished reports whether an event was read from the log for a republish. If it was read
// from held, it is treated as any other.
func (e *Entry) IsRepublished() bool { return e.RepublishID != 0 && !e.Held }

// releaseKey lets the next event of its key pass an event of a republish.
func (l *Scheduler) releaseKey(e *Entry) {
	key := e.OrderKey()
	if !e.IsRepublished() || key == "" {
		return
	}
	if e.next == nil {
		delete(l.keys, key)
	} else {
		l.ready.push(e.next)
	}
	e.next, e.Unordered = nil, true
}

// putBack adds events again that were released but do not leave the scheduler.
func (l *Scheduler) putBack(events []eventlog.Event) {
	for i := range events {
		l.gone--
		l.goneBytes -= len(events[i].Data)
	}
	l.Add(events)
}

// Cancel stops sending the events of a republish.
func (l *republishes) Cancel(republish int64) {
	if l.cancelled == nil {
		l.cancelled = make(map[int64]struct{})
	}
	l.cancelled[republish] = struct{}{}
}

// dropCancelled removes an event that is about to be sent if its republish was cancelled, and
// reports whether it did.
func (l *Scheduler) dropCancelled(e *Entry) bool {
	if _, ok := l.cancelled[e.RepublishID]; !ok || !e.IsRepublished() {
		return false
	}
	l.releaseKey(e)
	l.dropped = append(l.dropped, eventlog.RepublishResult{RepublishID: e.RepublishID, Seq: e.Seq, Dropped: true})
	l.release(e)
	return true
}

// countGone counts an event of a republish that leaves the scheduler.
func (l *republishes) countGone(e *Entry) {
	if e.IsRepublished() {
		l.gone++
		l.goneBytes += len(e.Data)
	}
}

// TakeGone returns how many events of republishes left since the last call, the bytes of their
// data, and those that were dropped.
func (l *republishes) TakeGone() (events, bytes int, dropped []eventlog.RepublishResult) {
	events, bytes, dropped = l.gone, l.goneBytes, l.dropped
	l.gone, l.goneBytes, l.dropped = 0, 0, nil
	return events, bytes, dropped
}

// HasGone reports whether events of republishes left since TakeGone.
func (l *republishes) HasGone() bool { return l.gone > 0 }
