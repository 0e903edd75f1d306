package schedule

import (
	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/relay/broker"
)

// republishes is what a scheduler knows of events of republishes. As long as the broker takes these
// events, they keep the order of their keys, as all events do. But they were published before, so
// they must not delay other events: if the broker does not take such an event, the event no longer
// blocks its key. Events of republishes do not wait for held events of their key.
type republishes struct {
	cancelled map[int64]struct{}         // the ids of cancelled republishes
	dropped   []eventlog.RepublishResult // events of cancelled republishes
	gone      int                        // events of republishes that left since TakeGone
	goneBytes int                        // the bytes of these events
}

// IsRepublished reports whether an event was read from the log for a republish. It returns false if
// the event was read from the table held.
func (e *Entry) IsRepublished() bool { return e.RepublishID != 0 && !e.Held }

// releaseKey makes the next event of the key of e ready, without waiting for e. It does so only if
// e is an event of a republish.
func (l *Scheduler) releaseKey(e *Entry) {
	key := e.OrderKey()
	if !e.IsRepublished() || key == "" {
		return
	}
	l.leave(e, key)
	if e.next != nil {
		l.ready.push(e.next)
	}
	e.next, e.Unordered = nil, true
}

// addAgain adds events again that were released but must stay in the scheduler.
func (l *Scheduler) addAgain(events []broker.Event) {
	for i := range events {
		l.gone--
		l.goneBytes -= events[i].Size()
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

// dropCancelled removes an event if its republish was cancelled, and reports whether it did. The
// method send calls dropCancelled first.
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
		l.goneBytes += e.size
	}
}

// TakeGone returns how many events of republishes left the scheduler since the last call, their
// bytes, and which of these events were dropped.
func (l *republishes) TakeGone() (events, bytes int, dropped []eventlog.RepublishResult) {
	events, bytes, dropped = l.gone, l.goneBytes, l.dropped
	l.gone, l.goneBytes, l.dropped = 0, 0, nil
	return events, bytes, dropped
}

// HasGone reports whether events of republishes left the scheduler since TakeGone.
func (l *republishes) HasGone() bool { return l.gone > 0 }
