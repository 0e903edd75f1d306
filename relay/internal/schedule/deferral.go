package schedule

import (
	"cmp"
	"container/heap"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/broker"
	"github.com/postroom/postroom/eventlog"
)

const (
	// An event that the broker refuses while others pass is held after this
	// time, or as soon as refused events, and what waits behind them, are a quarter
	// of all that may be read.
	patience   = 5 * time.Second
	holdShare  = 4
	countEvery = 100 * time.Millisecond

	// Attempts that an event has, over a quarter of an hour: what the broker refuses is
	// often mended by a change of the stream, which somebody has to notice first. And how
	// long one waits in held after a failure that is no attempt.
	maxAttempts = postroom.DefaultAttempts
	heldWait    = 30 * time.Second
)

var (
	// retryBackoff is the schedule of an event that failed while others of its stream
	// pass. It is repeated for as long as it takes, or held.
	retryBackoff = postroom.Backoff{
		50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second,
	}

	// probeBackoff is the schedule by which a stream that is out is probed.
	probeBackoff = retryBackoff

	// attemptBackoff is the schedule of events in held.
	attemptBackoff = postroom.DefaultBackoff()

	// heldBackoff is the schedule in held of what is no attempt.
	heldBackoff = postroom.Backoff{heldWait}
)

// deferrals is what leaves the scheduler for held, and the keys that wait for it.
type deferrals struct {
	held     []eventlog.Holding
	returned []int64
	blocked  map[string]*blockedKey // keys that have events in held
	fresh    []*blockedKey          // of these, since it was last taken

	refused            int // events that were refused, and what waits behind them, when last counted
	countedAt, sweptAt time.Time
}

// Block is a key that has events in held. Later ones follow them there.
type blockedKey struct {
	recording int64 // the number of the recording that stores the last of them
	fresh     bool
}

// deferBehindKey holds an event whose key has events in held, and reports whether it
// did.
func (l *deferrals) deferBehindKey(seq int64, key string) bool {
	b, ok := l.blocked[key]
	if ok {
		l.held = append(l.held, eventlog.Holding{Seq: seq, Key: key})
		l.markFresh(b)
	}
	return ok
}

func (l *deferrals) markFresh(b *blockedKey) {
	if !b.fresh {
		b.fresh = true
		l.fresh = append(l.fresh, b)
	}
}

// Failed keeps an event that was not stored, to be sent again, or holds it. It
// returns how often the event failed since it was read, and what is held of it.
func (l *Scheduler) Failed(f *Entry, o broker.Outcome, now time.Time) (tries int, held *eventlog.Failure) {
	s := l.endFlight(f, o.Stream)
	if o.Class >= broker.Unavailable {
		l.releaseKey(f)
	}
	f.tries++
	tries = f.tries
	if o.Class >= broker.Unavailable && f.refusedAt.IsZero() {
		f.refusedAt = f.Sent
	}
	switch {
	case o.Class == broker.Permanent, l.mayHold(f, s, o.Class) && (f.Held || l.exhausted(f, now)):
		held = l.moveToHeld(f, o)
	case o.Class <= broker.Unavailable && s != nil && !s.storedAt.After(f.Sent):
		s.addFailed(f, now)
	default:
		f.due = now.Add(retryBackoff.Delay(f.tries))
		heap.Push(&l.retries, f)
	}
	if s != nil && s.unavailable && o.Class > broker.Unavailable {
		s.recover(&l.ready) // it answers, or is gone
	}
	return tries, held
}

// mayHold reports whether an event of the given class may go to held. An outage
// holds nothing: others have to pass, of the same stream where it is the stream
// that is not available. Where no stream takes an event it is enough that others
// have one: they may stand behind more such events than may be read. So may those
// that would pass where all that is read is refused, which is then no attempt. Of
// rewinds so little is read that one which is refused makes way in any case, and
// nothing else does.
func (l *Scheduler) mayHold(f *Entry, s *stream, c broker.Class) bool {
	if f.IsRepublished() && c != broker.Refused {
		return false
	}
	switch c {
	case broker.Unavailable:
		return s != nil && s.storedAt.After(f.refusedAt)
	case broker.Unroutable:
		return l.covered || l.storedAt.After(f.refusedAt)
	case broker.Refused:
		return l.storedAt.After(f.refusedAt) || l.full() || f.IsRepublished()
	}
	return false
}

// full reports whether so much is read that others may stand behind it, unread.
func (l *Scheduler) full() bool { return l.size >= l.limit/2 || l.bytes >= MaxBytes/2 }

// exhausted reports whether an event was refused for long enough, or refused events
// take so much room that it has to make way.
func (l *Scheduler) exhausted(f *Entry, now time.Time) bool {
	return now.Sub(f.refusedAt) >= patience || l.overQuota(now)
}

// overQuota reports whether refused events, and what waits behind them, are a
// quarter of all that may be read. They are counted now and then, and only where
// so much is read.
func (l *Scheduler) overQuota(now time.Time) bool {
	if l.size < l.limit/holdShare {
		return false
	}
	if now.Sub(l.countedAt) >= countEvery {
		l.countedAt, l.refused = now, 0
		for _, f := range l.retries {
			if f.refusedAt.IsZero() {
				continue
			}
			for g := f; g != nil; g = g.next {
				l.refused++
			}
		}
	}
	return l.refused >= l.limit/holdShare
}

// MakeRoom has refused events tried once more at once where they take too much
// room: their outcome decides.
func (l *Scheduler) MakeRoom(now time.Time) {
	if len(l.retries) == 0 || now.Sub(l.sweptAt) < countEvery || !l.overQuota(now) {
		return
	}
	l.sweptAt = now
	for _, f := range l.retries {
		if !f.refusedAt.IsZero() {
			f.due = now
		}
	}
	heap.Init(&l.retries)
}

// moveToHeld moves an event to held, and with it those of its key that wait for it.
func (l *Scheduler) moveToHeld(f *Entry, o broker.Outcome) *eventlog.Failure {
	failure := &eventlog.Failure{Class: o.ErrorType(), Text: o.Err.Error(), Attempts: f.Attempts}
	switch {
	case o.Class == broker.Permanent:
		failure.Attempts++
		failure.Dead = true
	case o.Class == broker.Refused && l.storedAt.After(f.refusedAt):
		failure.Attempts++
		failure.Dead = failure.Attempts >= cmp.Or(f.LastAttempt, maxAttempts)
		failure.After = attemptBackoff.Delay(failure.Attempts)
	default:
		failure.After = heldBackoff.Delay(1)
	}
	key := f.OrderKey()
	holding := eventlog.Holding{Seq: f.Seq, Key: key, Failure: failure}
	if f.IsRepublished() {
		holding.Rewind = f.Rewind
	}
	l.held = append(l.held, holding)
	if key != "" {
		l.blockKey(key, f.next)
	}
	l.release(f)
	return failure
}

// blockKey has the events of a key that wait, and all later ones, follow its
// head to held.
func (l *Scheduler) blockKey(key string, waiting *Entry) {
	b, ok := l.blocked[key]
	if !ok {
		b = &blockedKey{}
		l.blocked[key] = b
	}
	l.markFresh(b)
	delete(l.keys, key)
	var repeats []eventlog.Logged // they wait for nobody that is held
	for f := waiting; f != nil; {
		switch {
		case f.IsRepublished():
			repeats = append(repeats, f.Logged)
		case f.Held:
			l.returned = append(l.returned, f.Seq)
		default:
			l.held = append(l.held, eventlog.Holding{Seq: f.Seq, Key: key})
		}
		next := f.next
		l.release(f)
		f = next
	}
	l.putBack(repeats)
}

// TakeHeld returns what is to be recorded next, by the recording of the given
// number, and forgets it.
func (l *deferrals) TakeHeld(recording int64) (held []eventlog.Holding, returned []int64) {
	for _, b := range l.fresh {
		b.recording, b.fresh = recording, false
	}
	held, returned = l.held, l.returned
	l.held, l.returned, l.fresh = nil, nil, nil
	return held, returned
}

// Block notes which keys had events in held when the recording of the given
// number was the last. Others are free again, unless a later recording holds
// events of theirs.
func (l *deferrals) Block(keys []string, recorded int64) {
	stored := make(map[string]struct{}, len(keys))
	for _, key := range keys {
		stored[key] = struct{}{}
		if l.blocked[key] == nil {
			l.blocked[key] = &blockedKey{recording: recorded}
		}
	}
	for key, b := range l.blocked {
		if _, ok := stored[key]; !ok && !b.fresh && b.recording <= recorded {
			delete(l.blocked, key)
		}
	}
}

// HasHeld reports whether something is to be recorded as held or returned.
func (l *deferrals) HasHeld() bool { return len(l.held)+len(l.returned) > 0 }

// HasBlocked reports whether some keys have events in held.
func (l *deferrals) HasBlocked() bool { return len(l.blocked) > 0 }
