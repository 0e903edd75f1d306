package relay

import (
	"time"

	"github.com/postroom/postroom"
)

// lanes decides which event may be sent next: the events of a key one at a
// time and in the order in which they were added, the others as they come. It
// is pure, and used by one goroutine.
//
// One in flight per key is what keeps the order at the broker: a publish whose
// outcome is unknown is repeated, and whatever was sent behind it would have
// been stored before the repetition.
type lanes struct {
	events  map[int64]*flight    // all that were added and are not done, by seq
	waiting map[string][]*flight // behind the head of their key
	ready   fifo[*flight]        // may be sent
	retries []*flight            // failed; sent again when due
	bytes   int                  // data of the events
	sent    int                  // how many are in flight
}

// flight is one event on its way.
type flight struct {
	postroom.Logged

	attempts int       // how often it failed
	due      time.Time // when it may be sent again
}

func newLanes() *lanes {
	return &lanes{events: make(map[int64]*flight), waiting: make(map[string][]*flight)}
}

// add takes events in the order in which they are to be published.
func (l *lanes) add(events []postroom.Logged) {
	for _, ev := range events {
		if _, ok := l.events[ev.Seq]; ok {
			continue // on its way already
		}
		f := &flight{Logged: ev}
		l.bytes += len(ev.Data)
		l.events[ev.Seq] = f
		if ev.Key == "" {
			l.ready.push(f)
			continue
		}
		queue, busy := l.waiting[ev.Key]
		if busy {
			l.waiting[ev.Key] = append(queue, f)
			continue
		}
		l.waiting[ev.Key] = nil // the key has a head, and nothing behind it
		l.ready.push(f)
	}
}

// next returns up to n events to send now, retries first: they are older.
func (l *lanes) next(n int, now time.Time) []postroom.Logged {
	var batch []postroom.Logged
	for i := 0; i < len(l.retries) && len(batch) < n; {
		if f := l.retries[i]; !f.due.After(now) {
			batch = append(batch, f.Logged)
			l.retries = append(l.retries[:i], l.retries[i+1:]...)
			continue
		}
		i++
	}
	for len(batch) < n {
		f, ok := l.ready.pop()
		if !ok {
			break
		}
		batch = append(batch, f.Logged)
	}
	l.sent += len(batch)
	return batch
}

// done takes an event off, and lets the next of its key pass.
func (l *lanes) done(seq int64) {
	f, ok := l.events[seq]
	if !ok {
		return
	}
	l.sent--
	l.bytes -= len(f.Data)
	delete(l.events, seq)
	if f.Key == "" {
		return
	}
	queue := l.waiting[f.Key]
	if len(queue) == 0 {
		delete(l.waiting, f.Key)
		return
	}
	l.ready.push(queue[0])
	l.waiting[f.Key] = queue[1:]
}

// failed keeps an event, at the head of its key, to be sent again after wait.
func (l *lanes) failed(seq int64, now time.Time, backoff postroom.Backoff) (attempts int) {
	f, ok := l.events[seq]
	if !ok {
		return 0
	}
	l.sent--
	f.attempts++
	f.due = now.Add(backoff.Delay(f.attempts))
	l.retries = append(l.retries, f)
	return f.attempts
}

// nextRetry returns when the first of the failed events is due, and whether
// there is one.
func (l *lanes) nextRetry() (at time.Time, ok bool) {
	for _, f := range l.retries {
		if !ok || f.due.Before(at) {
			at, ok = f.due, true
		}
	}
	return at, ok
}

// size returns how many events were added and are not done.
func (l *lanes) size() int { return len(l.events) }

// fifo is a queue. Its memory is reused: the front moves along the slice and
// the rest is moved down when the front half is empty.
type fifo[T any] struct {
	items []T
	front int
}

func (q *fifo[T]) push(item T) { q.items = append(q.items, item) }

func (q *fifo[T]) pop() (item T, ok bool) {
	if q.front == len(q.items) {
		return item, false
	}
	var none T
	item, q.items[q.front] = q.items[q.front], none
	q.front++
	if q.front >= 1024 && q.front*2 >= len(q.items) {
		n := copy(q.items, q.items[q.front:])
		clear(q.items[n:])
		q.items, q.front = q.items[:n], 0
	}
	return item, true
}
