package schedule

import (
	"cmp"
	"container/heap"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/relay/broker"
)

const (
	// If the broker refuses an event but stores others, the event is held after this time.
	// It is held at once if refused events and the events that wait behind them make up a
	// quarter (holdShare) of all events that may be read.
	patience   = 5 * time.Second
	holdShare  = 4
	countEvery = 100 * time.Millisecond

	// The attempts of an event take about a quarter of an hour, because often a person must notice
	// the problem and change the stream. heldWait is how long an event waits in the table held
	// after a failure that does not count as an attempt.
	heldWait = 30 * time.Second
)

var maxAttempts = len(postroom.DefaultBackoff()) + 1

var (
	// retryBackoff has the waits of a failed event that is not parked at an unavailable stream.
	retryBackoff = postroom.Backoff{
		50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second,
	}

	// probeBackoff has the waits between two probes of an unavailable stream.
	probeBackoff = retryBackoff

	// attemptBackoff has the waits between the attempts of an event in the table held.
	attemptBackoff = postroom.DefaultBackoff()

	// heldBackoff has the wait in the table held after a failure that does not count as an attempt.
	heldBackoff = postroom.Backoff{heldWait}
)

// deferrals has the events that go to the table held, and the keys that have events in that table.
type deferrals struct {
	held     []eventlog.Deferral
	returned []int64                // seqs of events that were read from the table held and stay there
	blocked  map[string]*blockedKey // keys that have events in the table held
	fresh    []*blockedKey          // the blocked keys that got events since the last TakeHeld
	recorded int64                  // see SetRecorded

	parked load // events that wait here although their keys have events in the table held

	refused            int // the number of refused events and of the events that wait behind them, at countedAt
	countedAt, sweptAt time.Time
}

// blockedKey is a key with events in the table held. Its later events go there too, until all those
// of the table are read. As the writers of the key go on meanwhile, the table might never be empty.
// So when the last event of the key in that table is read, later events wait here (parked) for the
// few that are on their way to the table. When these are read too, the key is open: all its events
// are here, in their order.
type blockedKey struct {
	recording int64 // the number of the recording (one write of results to the log) that stores the last event of the key in the table held
	fresh     bool  // no recording has taken the last event of the key for the table held
	draining  bool  // all events that the table held had are read; some may be on their way to it
	open      bool  // the events in the table held are here, too, and no others are on their way to it

	last   int64 // the last event of the key that was read from the table held, or passed to it
	parked []broker.Event
	bytes  int // of parked
}

// isOnItsWay reports whether events of the key may be missing in what was read after the recording
// with the given number.
func (b *blockedKey) isOnItsWay(recorded int64) bool { return b.fresh || b.recording > recorded }

// SetRecorded sets which recording had stored its events in the table held before the next events to
// add were read: the one with this number, and all before it.
func (l *deferrals) SetRecorded(number int64) { l.recorded = max(l.recorded, number) }

// keepBack keeps an event back if its key has events in the table held, or too many events here. It
// reports whether it did.
func (l *Scheduler) keepBack(ev *broker.Event, key string) bool {
	b := l.blocked[key]
	switch {
	case b == nil || b.open || l.keys[key].isPutBack():
		return l.putBackCrowded(ev.Seq, key)
	//guard:a-key-leaves-held-while-its-writers-go-on false
	//guard:a-late-event-goes-to-held-before-those-that-are-there 2 true
	case b.draining && ev.Seq > b.last && !l.isCrowded(key, b) && l.parked.size < l.limit/holdShare && l.parked.bytes < MaxBytes/holdShare:
		l.park(b, ev)
		return true
	}
	l.hold(l.defers(key), eventlog.Deferral{Seq: ev.Seq, Key: key})
	return true
}

// hold passes an event of a blocked key to the table held.
func (l *deferrals) hold(b *blockedKey, d eventlog.Deferral) {
	l.held = append(l.held, d)
	b.last = max(b.last, d.Seq)
	if !b.fresh {
		b.fresh = true
		l.fresh = append(l.fresh, b)
	}
}

// isCrowded reports whether so many events of a blocked key are here that others may find no room.
func (l *Scheduler) isCrowded(key string, b *blockedKey) bool {
	q := l.keys[key]
	return q.events+len(b.parked) >= l.limit/crowdShare || q.bytes+b.bytes >= MaxBytes/crowdShare
}

// defers blocks a key whose next event goes to the table held. Its parked events go there before.
func (l *Scheduler) defers(key string) *blockedKey {
	b := l.blocked[key]
	b.open, b.draining = false, false
	for _, ev := range l.unpark(b) {
		l.hold(b, eventlog.Deferral{Seq: ev.Seq, Key: key})
	}
	return b
}

// park keeps an event of a blocked key here.
func (l *Scheduler) park(b *blockedKey, ev *broker.Event) {
	size := ev.Size()
	b.parked = append(b.parked, *ev)
	b.bytes += size
	for _, all := range []*load{&l.load, &l.parked} {
		all.size++
		all.bytes += size
	}
}

// unpark removes the parked events of a key, and returns them.
func (l *Scheduler) unpark(b *blockedKey) []broker.Event {
	parked := b.parked
	for _, all := range []*load{&l.load, &l.parked} {
		all.size -= len(parked)
		all.bytes -= b.bytes
	}
	b.parked, b.bytes = nil, 0
	return parked
}

// readLastHeld notes that the last event of a key in the table held was read.
func (l *Scheduler) readLastHeld(key string, seq int64) {
	b := l.blocked[key]
	if b != nil {
		b.last = max(b.last, seq)
	}
	switch {
	case b == nil || b.open:
	//guard:a-key-opens-when-all-its-events-are-here false
	case b.isOnItsWay(l.recorded):
		b.draining = true
	default:
		l.reopen(key, b)
	}
}

// reopen lets the parked events of a key, and later ones, follow those that are here.
func (l *Scheduler) reopen(key string, b *blockedKey) {
	b.open, b.draining = true, false
	parked := l.unpark(b)
	for i := range parked {
		l.append(&parked[i], key)
	}
}

// Failed takes back an event that was not stored, to send it again or move it to the table held. It
// returns how many times the event has failed since it was read. If it moves the event, it also
// returns the failure. It moves no event from behind an event that was sent in the same batch and
// has no outcome: the failed event is sent again with or after that event.
func (l *Scheduler) Failed(e *Entry, o broker.Outcome, now time.Time) (tries int, held *eventlog.Failure) {
	s := l.endFlight(e, o.Stream)
	//guard:refused-behind-one-in-flight false
	if e.withPrevious { // the previous event of its key has no outcome yet, and e waits for that event
		return e.tries, nil
	}
	if o.Class >= broker.Unavailable {
		l.releaseKey(e)
	}
	e.tries++
	tries = e.tries
	if o.Class >= broker.Unavailable && e.refusedAt.IsZero() {
		e.refusedAt = e.Sent
	}
	switch {
	case o.Class == broker.Permanent, l.mayHold(e, s, o.Class) && (e.Held || l.exhausted(e, now)):
		held = l.moveToHeld(e, o)
	case o.Class <= broker.Unavailable && s != nil && !s.storedAt.After(e.Sent):
		s.addFailed(e, now)
	default:
		e.due = now.Add(retryBackoff.Delay(e.tries))
		heap.Push(&l.retries, e)
	}
	if s != nil && s.unavailable && o.Class > broker.Unavailable {
		s.recover(&l.ready) // the stream answers, or no longer exists
	}
	return tries, held
}

// mayHold reports whether an event whose outcome has the given class may go to the table held. In
// an outage no event goes there: the broker must have stored other events since this event failed.
//
//   - Unavailable: the same stream must have stored other events.
//   - Unroutable: other events must have been stored, or at least one subject must have a stream.
//     Without the second case, unroutable events could take all room. Then no other event would
//     be read and stored, and the first case would never come.
//   - Refused: the broker must have stored other events, or so many events must have been read that
//     other events may not fit. In the second case the failure does not count as an attempt.
//   - Of these classes, only Refused lets an event of a republish go to the table held. Then the
//     broker need not have stored other events, because the relay reads few events of a republish
//     at a time: if refused events stayed, they would stop the other events of the republish.
func (l *Scheduler) mayHold(e *Entry, s *stream, c broker.Class) bool {
	if e.IsRepublished() && c != broker.Refused {
		return false
	}
	switch c {
	case broker.Unavailable:
		return s != nil && s.storedAt.After(e.refusedAt)
	case broker.Unroutable:
		return l.covered || l.storedAt.After(e.refusedAt)
	case broker.Refused:
		return l.storedAt.After(e.refusedAt) || l.full() || e.IsRepublished()
	}
	return false
}

// full reports whether so many events are read that others may not fit.
func (l *Scheduler) full() bool { return l.size >= l.limit/2 || l.bytes >= MaxBytes/2 }

// exhausted reports whether an event must go to the table held, because it was refused for long
// enough, or because refused events take too much room.
func (l *Scheduler) exhausted(e *Entry, now time.Time) bool {
	return now.Sub(e.refusedAt) >= patience || l.overQuota(now)
}

// overQuota reports whether refused events, with the events that wait behind them, are a quarter of
// all events that may be read. It counts these events only if the scheduler has that many events in
// all, and at most once in countEvery.
func (l *Scheduler) overQuota(now time.Time) bool {
	if l.size < l.limit/holdShare {
		return false
	}
	if now.Sub(l.countedAt) >= countEvery {
		l.countedAt, l.refused = now, 0
		for _, e := range l.retries {
			if e.refusedAt.IsZero() {
				continue
			}
			for g := e; g != nil; g = g.next {
				l.refused++
			}
		}
	}
	return l.refused >= l.limit/holdShare
}

// MakeRoom makes refused events due at once if they take too much room. If they fail again, they go
// to the table held.
func (l *Scheduler) MakeRoom(now time.Time) {
	if len(l.retries) == 0 || now.Sub(l.sweptAt) < countEvery || !l.overQuota(now) {
		return
	}
	l.sweptAt = now
	for _, e := range l.retries {
		if !e.refusedAt.IsZero() {
			e.due = now
		}
	}
	heap.Init(&l.retries)
}

// moveToHeld moves an event to the table held, together with the events of its key that wait for
// that event.
func (l *Scheduler) moveToHeld(e *Entry, o broker.Outcome) *eventlog.Failure {
	failure := &eventlog.Failure{Class: o.ErrorType(), Text: o.Err.Error(), Attempts: e.Attempts}
	switch {
	case o.Class == broker.Permanent:
		failure.Attempts++
		failure.Dead = true
	case o.Class == broker.Refused && l.storedAt.After(e.refusedAt):
		failure.Attempts++
		failure.Dead = failure.Attempts >= cmp.Or(e.LastAttempt, maxAttempts)
		failure.After = attemptBackoff.Delay(failure.Attempts)
	default:
		failure.After = heldBackoff.Delay(1)
	}
	key := e.OrderKey()
	holding := eventlog.Deferral{Seq: e.Seq, Key: key, Failure: failure}
	if e.IsRepublished() {
		holding.RepublishID = e.RepublishID
	}
	if key == "" {
		l.held = append(l.held, holding)
	} else {
		l.blockKey(key, holding, e.next)
	}
	l.release(e)
	return failure
}

// blockKey moves an event and the waiting events of its key to the table held. Later events of the key
// follow.
func (l *Scheduler) blockKey(key string, first eventlog.Deferral, waiting *Entry) {
	q := l.keys[key]
	delete(l.keys, key)
	b := l.blocked[key]
	if b == nil {
		b = &blockedKey{}
		l.blocked[key] = b
	}
	l.hold(b, first)
	var repeats []broker.Event // events of republishes, which do not wait for held events
	for e := waiting; e != nil; {
		switch {
		case e.IsRepublished():
			repeats = append(repeats, e.Event)
		case e.Held:
			l.returned = append(l.returned, e.Seq)
		default:
			l.hold(b, eventlog.Deferral{Seq: e.Seq, Key: key})
		}
		next := e.next
		l.release(e)
		e = next
	}
	for _, seq := range l.forget(key, &q) {
		l.hold(b, eventlog.Deferral{Seq: seq, Key: key})
	}
	l.defers(key)
	l.addAgain(repeats)
}

// TakeHeld returns the events that the recording with the given number must store in the table
// held, and the events that stay there. It forgets these events.
func (l *deferrals) TakeHeld(recording int64) (held []eventlog.Deferral, returned []int64) {
	for _, b := range l.fresh {
		b.recording, b.fresh = recording, false
	}
	held, returned = l.held, l.returned
	l.held, l.returned, l.fresh = nil, nil, nil
	return held, returned
}

// Block blocks the given keys, which had events in the table held after the recording with the
// given number. It releases each other key, unless a later recording moves its events there.
func (l *Scheduler) Block(keys []string, recorded int64) {
	stored := make(map[string]struct{}, len(keys))
	for _, key := range keys {
		stored[key] = struct{}{}
		if l.blocked[key] == nil {
			l.blocked[key] = &blockedKey{}
		}
	}
	for key, b := range l.blocked {
		if _, ok := stored[key]; !ok && !b.isOnItsWay(recorded) {
			l.reopen(key, b)
			delete(l.blocked, key)
		}
	}
}

// HasHeld reports whether TakeHeld has anything to return.
func (l *deferrals) HasHeld() bool { return len(l.held)+len(l.returned) > 0 }

// HasBlocked reports whether some keys have events in the table held.
func (l *deferrals) HasBlocked() bool { return len(l.blocked) > 0 }
