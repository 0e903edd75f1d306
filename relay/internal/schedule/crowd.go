package schedule

import (
	"slices"

	"github.com/postroom/postroom/relay/broker"
)

const (
	// The events of a key are sent one after the other. If they make up a quarter (1/crowdShare) of all
	// events that may be read, the later ones are put back into the log, so that those of other keys
	// find room. They are read again when half of those that are here are sent.
	crowdShare = 4

	// At most askMost events are read again at once.
	askMost = 1000

	// While putBackShare times as many events as may be read are put back, no new events are read.
	putBackShare = 10
)

// keyQueue has the events of a key that may be sent only one after the other.
type keyQueue struct {
	last          *Entry // nil if all events of the key are put back
	events, bytes int

	later []int64 // the seqs of events that are put back into the log
	asked []int64 // those of them that are being read again
}

// isPutBack reports whether some events of the key are put back into the log. If so, no later event of
// the key may be sent before them.
func (q keyQueue) isPutBack() bool { return len(q.later)+len(q.asked) > 0 }

// crowd has the keys with too many events.
type crowd struct {
	crowded   map[string]struct{} // keys that have events in keyQueue.later
	askedKeys []string            // keys that have events in keyQueue.asked
	count     int                 // events that are put back
	putBack   []int64             // those that were put back since TakePutBack

	// How many events may still be put back: none until the broker has stored an event. So an outage
	// fills the memory, and the relay reads no further.
	mayPutBack int
}

// putBackCrowded puts an event back into the log if too many events of its key are here. It reports
// whether it did.
func (l *Scheduler) putBackCrowded(seq int64, key string) bool {
	q := l.keys[key]
	crowded := q.events >= l.limit/crowdShare || q.bytes >= MaxBytes/crowdShare
	//guard:a-hot-key-leaves-room true
	if !q.isPutBack() && (!crowded || l.mayPutBack == 0) {
		return false
	}
	l.mayPutBack = max(0, l.mayPutBack-1)
	q.later = append(q.later, seq)
	l.keys[key] = q
	l.crowded[key] = struct{}{}
	l.count++
	l.putBack = append(l.putBack, seq)
	return true
}

// TakePutBack returns the events that were put back into the log since the last call.
func (l *crowd) TakePutBack() []int64 {
	taken := l.putBack
	l.putBack = nil
	return taken
}

// IsPutBackFull reports whether so many events are put back that no new ones may be read.
func (l *Scheduler) IsPutBackFull() bool { return l.count/putBackShare >= l.limit }

// IsReadingAgain reports whether events are being read again: Ask has returned them, and AddAgain did
// not get them.
func (l *crowd) IsReadingAgain() bool { return len(l.askedKeys) > 0 }

// Ask returns the seqs of events that were put back and must be read again now, ascending. There are
// none while other events are being read again.
func (l *Scheduler) Ask() (seqs []int64) {
	if l.IsReadingAgain() {
		return nil
	}
	for key := range l.crowded {
		q := l.keys[key]
		if q.events >= l.limit/crowdShare/2 || q.bytes >= MaxBytes/crowdShare/2 {
			continue
		}
		n := min(len(q.later), max(1, l.limit/crowdShare/2), askMost-len(seqs))
		if n == 0 {
			break
		}
		q.asked, q.later = q.later[:n:n], q.later[n:]
		l.keys[key] = q
		l.askedKeys = append(l.askedKeys, key)
		seqs = append(seqs, q.asked...)
		if len(q.later) == 0 {
			delete(l.crowded, key)
		}
	}
	slices.Sort(seqs)
	return seqs
}

// AddAgain adds the events that were read again: of those that Ask returned, all up to the given seq.
// The others are put back again.
func (l *Scheduler) AddAgain(events []broker.Event, through int64) {
	for i := range events {
		ev := &events[i]
		key := ev.OrderKey()
		//guard:an-event-that-was-refused-meanwhile-is-not-added false
		if !slices.Contains(l.keys[key].asked, ev.Seq) { // its key was blocked meanwhile, and the event goes to the table held
			continue
		}
		l.append(ev, key)
	}
	for _, key := range l.askedKeys {
		q := l.keys[key]
		rest := slices.DeleteFunc(q.asked, func(seq int64) bool { return seq <= through })
		l.count -= len(q.asked) - len(rest)
		q.asked, q.later = nil, append(rest, q.later...)
		l.setQueue(key, q)
	}
	l.askedKeys = l.askedKeys[:0]
}

// setQueue stores the queue of a key, if it is not empty.
func (l *Scheduler) setQueue(key string, q keyQueue) {
	if q.last == nil && !q.isPutBack() {
		delete(l.keys, key)
		return
	}
	l.keys[key] = q
	if len(q.later) > 0 {
		l.crowded[key] = struct{}{}
	}
}

// forget removes the events of a key's queue that are put back, and returns their seqs.
func (l *Scheduler) forget(key string, q *keyQueue) []int64 {
	//guard:a-key-that-is-held-is-not-asked-for remove
	delete(l.crowded, key)
	seqs := append(slices.Clone(q.asked), q.later...)
	l.count -= len(seqs)
	q.asked, q.later = nil, nil
	return seqs
}

// leave removes an event from the queue of its key. The next event of the key stays.
func (l *Scheduler) leave(e *Entry, key string) {
	q := l.keys[key]
	q.events, q.bytes = q.events-1, q.bytes-e.size
	if e.next == nil {
		q.last = nil
	}
	l.setQueue(key, q)
}
