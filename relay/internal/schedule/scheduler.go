// Package schedule decides which event a relay may send next. It keeps the order of each
// key. If the broker does not take an event, later events of its key wait. If a stream is
// unavailable, its events wait. The package is pure: no I/O, no clock, no goroutines.
package schedule

import (
	"container/heap"
	"time"

	"github.com/postroom/postroom/internal/wire"
	"github.com/postroom/postroom/relay/broker"
)

// MaxBytes limits the data and the headers of events that are read and not yet published. The last
// page may exceed this limit a little.
const MaxBytes = 64 << 20

// Scheduler decides which event may be sent next. Events of a key are sent one at a time, or
// together in one atomic batch, in the order in which they were added. Events without a key are
// sent as they come. Only one goroutine may use a Scheduler.
//
// Without atomic batches, only one event of a key is in flight, to keep the order at the broker.
// The reason is that the relay repeats a publish with an unknown outcome. If a later event of the
// key were in flight, the broker could store the later event before the repetition.
type Scheduler struct {
	limit    int                 // the largest number of events that may be read and not published
	keys     map[string]keyQueue // the events of each key
	ready    fifo[*Entry]        // events that may be sent
	retries  retries             // events that failed, to be sent again when due
	storedAt time.Time           // when the broker last stored any event
	free     []*Entry            // entries for reuse

	batching bool // events go in atomic batches, several of a key in one batch
	loaded   int  // bytes in the batch that is being made

	load
	streamTable
	deferrals   // events for the table held
	crowd       // keys with too many events
	republishes // events of republishes
}

// load counts the events in a scheduler.
type load struct {
	size  int // events that were added and are not done
	sent  int // events in flight
	bytes int // bytes of data and headers of all events
}

// Size returns the number of events that were added and are not done.
func (l *load) Size() int { return l.size }

// InFlight returns the number of events that were sent and have no outcome.
func (l *load) InFlight() int { return l.sent }

// Bytes returns the bytes of data and headers of all events that were added and are not done.
func (l *load) Bytes() int { return l.bytes }

// streamTable has the scheduler's knowledge of streams.
type streamTable struct {
	routes  map[string]*stream // the streams by subject, learned from outcomes
	streams map[string]*stream // the streams by name
	covered bool               // at least one subject has a stream
}

// SetCovered sets whether at least one subject has a stream.
func (r *streamTable) SetCovered(some bool) { r.covered = some }

// TakeStored calls the function tell for each stream with the number of events that the stream
// stored since the last call. It returns the names of the unavailable streams, in random order.
func (r *streamTable) TakeStored(tell func(stream string, events int64)) (out []string) {
	for name, s := range r.streams {
		if s.stored > 0 {
			tell(name, s.stored)
			s.stored = 0
		}
		if s.unavailable {
			out = append(out, name)
		}
	}
	return out
}

// Entry is an event in the scheduler: its message and its state.
type Entry struct {
	broker.Message

	Sent  time.Time // when the event was last sent
	Batch any       // what the relay knows of the batch in which the event was last sent

	size         int       // bytes of data and headers
	next         *Entry    // the next event of its key
	stream       *stream   // the stream to which the event was sent, if known
	refusedAt    time.Time // the time of the first sending that the broker refused or could not take
	due          time.Time // when the event may be sent again
	tries        int       // how often the event failed since it was read
	inFlight     bool      // the event was sent, and has no outcome
	withPrevious bool      // the event was sent in one batch with the previous event of its key
}

// EntryOf returns the entry of a message that was passed to the publisher.
func EntryOf(m *broker.Message) *Entry { return m.Owner.(*Entry) }

// Copy says which copy of the event is sent: the first copy, the copy of a replay or of a
// republish, or a copy in place of a lost one. Each copy has a different message id.
func (e *Entry) Copy() wire.Copy {
	return wire.Copy{Replays: e.Replays, RepublishID: e.RepublishID, Lost: e.LostSeq}
}

// New returns a scheduler for up to limit events. If batching is true, the events are sent in
// atomic batches.
func New(limit int, batching bool) *Scheduler {
	return &Scheduler{
		limit: limit, batching: batching, keys: make(map[string]keyQueue),
		streamTable: streamTable{routes: make(map[string]*stream), streams: make(map[string]*stream)},
		deferrals:   deferrals{blocked: make(map[string]*blockedKey)},
		crowd:       crowd{crowded: make(map[string]struct{})},
	}
}

// Add adds events, in the order in which they must be published.
func (l *Scheduler) Add(events []broker.Event) {
	for i := range events {
		ev := &events[i]
		key := ev.OrderKey()
		//guard:behind-what-is-held false
		if key != "" && !ev.Held && ev.RepublishID == 0 && l.keepBack(ev, key) {
			continue
		}
		l.append(ev, key)
		if ev.LastHeld && key != "" {
			l.readLastHeld(key, ev.Seq)
		}
	}
}

// append adds an event behind the others of its key.
func (l *Scheduler) append(ev *broker.Event, key string) {
	e := l.entry()
	e.Event, e.size = *ev, ev.Size()
	l.size++
	l.bytes += e.size
	if key == "" {
		l.ready.push(e)
		return
	}
	q := l.keys[key]
	if q.last != nil {
		//guard:one-in-flight-for-each-key do @; l.ready.push(e)
		q.last.next = e
	} else {
		l.ready.push(e)
	}
	q.last, q.events, q.bytes = e, q.events+1, q.bytes+e.size
	l.keys[key] = q
}

// Next returns up to n events to send now. Retries come first, because they are older.
func (l *Scheduler) Next(n int, now time.Time) []*broker.Message {
	if n <= 0 {
		return nil
	}
	var batch []*broker.Message
	l.loaded = 0
	for l.fits(batch, n) && len(l.retries) > 0 && !l.retries[0].due.After(now) {
		batch = l.sendKey(batch, heap.Pop(&l.retries).(*Entry), n, now)
	}
	for _, s := range l.streams {
		for room := s.probes(now); room > 0 && l.fits(batch, n); room-- {
			e, _ := s.parked.pop()
			batch = l.send(batch, e, now)
		}
	}
	if batch == nil {
		batch = make([]*broker.Message, 0, min(n, l.ready.len()))
	}
	for l.fits(batch, n) {
		e, ok := l.ready.pop()
		if !ok {
			break
		}
		if s := l.routes[e.Subject]; s != nil && s.full() {
			l.releaseKey(e)
			s.parked.push(e)
			continue
		}
		batch = l.sendKey(batch, e, n, now)
	}
	return batch
}

// fits reports whether another event may be added to a batch of up to n events.
func (l *Scheduler) fits(batch []*broker.Message, n int) bool {
	return len(batch) < n && (!l.batching || len(batch) < broker.MaxBatch && l.loaded < broker.MaxBatchBytes)
}

// sendKey sends an event and, in atomic batches, the events of its key that wait behind it. It
// sends a waiting event only if the event goes to the same stream, and so into the same batch, and
// if this stream is available. It sends no event that still has no outcome, because the caller has
// requeued only a part of its batch. An event of a republish goes without the waiting events: if the
// broker does not take this event, releaseKey makes the next waiting event ready.
func (l *Scheduler) sendKey(batch []*broker.Message, e *Entry, n int, now time.Time) []*broker.Message {
	//guard:repeats-go-by-themselves 3 false
	byItself := !l.batching || e.Isolated || e.IsRepublished()
	batch = l.send(batch, e, now)
	if byItself || e.stream != nil && e.stream.unavailable {
		return batch
	}
	//guard:sent-twice-at-once 2 true
	for g := e.next; g != nil && !g.inFlight && !g.IsRepublished() && l.fits(batch, n); g = g.next {
		if g.Subject != e.Subject && (e.stream == nil || l.routes[g.Subject] != e.stream) {
			break
		}
		batch = l.send(batch, g, now)
		g.withPrevious = true
	}
	return batch
}

func (l *Scheduler) send(batch []*broker.Message, e *Entry, now time.Time) []*broker.Message {
	if l.dropCancelled(e) {
		return batch
	}
	e.Sent, e.stream = now, l.routes[e.Subject]
	e.inFlight, e.withPrevious = true, false
	if e.AckGroup = ""; e.stream != nil && !e.stream.unavailable && e.tries == 0 && !e.Held && e.next == nil { // an event with a next event of its key is in no group, because the next event would wait for the complete group
		e.AckGroup = e.stream.name
	}
	l.loaded += e.size
	if e.stream != nil {
		e.stream.sent++
	}
	l.sent++
	return append(batch, &e.Message)
}

// endFlight notes that an event is no longer in flight, and that the stream with the given name
// takes the subject of the event. It returns that stream, or e.stream if the given name is empty.
func (l *Scheduler) endFlight(e *Entry, name string) *stream {
	l.sent--
	e.inFlight = false
	if e.stream != nil {
		e.stream.sent--
	}
	if name == "" || e.stream != nil && e.stream.name == name {
		return e.stream
	}
	s, ok := l.streams[name]
	if !ok {
		s = &stream{name: name}
		l.streams[name] = s
	}
	if len(l.routes) >= maxRoutes { // the subjects may contain ids: forget all
		clear(l.routes)
	}
	l.routes[e.Subject] = s
	return s
}

// maxRoutes is the number of subjects for which the scheduler remembers the stream.
const maxRoutes = 10_000

// Done removes an event that was published, and makes the next event of its key ready.
func (l *Scheduler) Done(e *Entry, name string, now time.Time) {
	s := l.endFlight(e, name)
	l.storedAt = now
	l.mayPutBack = l.limit / crowdShare
	if s != nil {
		s.storedAt = now
		s.stored++
		if s.unavailable {
			s.recover(&l.ready)
		}
	}
	if key := e.OrderKey(); key != "" {
		l.leave(e, key)
		if e.next != nil {
			l.releaseNext(e.next)
		}
	}
	l.release(e)
}

// releaseNext makes an event ready after the previous event of its key was stored, unless
// both were sent together.
func (l *Scheduler) releaseNext(e *Entry) {
	e.withPrevious = false
	if !e.inFlight {
		l.ready.push(e)
	}
}

// ReturnBlocked takes back an event that was not stored because an earlier event of its key was not
// stored. The blocked event is sent again together with the earlier event or after it.
func (l *Scheduler) ReturnBlocked(e *Entry) {
	l.endFlight(e, "")
	if !e.withPrevious { // the earlier event has been stored since then
		l.ready.push(e)
	}
}

// Requeue takes back events that Next returned but that were not sent.
func (l *Scheduler) Requeue(batch []*broker.Message) {
	for _, m := range batch {
		e := EntryOf(m)
		l.endFlight(e, "")
		if e.withPrevious { // the previous event of its key is in the batch too
			continue
		}
		e.due = e.Sent
		heap.Push(&l.retries, e)
	}
}

// NextRetry returns the time at which the next failed event, or the next round of probes, is due.
// The result ok is false if neither exists.
func (l *Scheduler) NextRetry() (at time.Time, ok bool) {
	if len(l.retries) > 0 {
		at, ok = l.retries[0].due, true
	}
	for _, s := range l.streams {
		if s.unavailable && s.parked.len() > 0 && s.sent < maxProbes && (!ok || s.nextProbe.Before(at)) {
			at, ok = s.nextProbe, true
		}
	}
	return at, ok
}

// entry returns an empty entry with its own message.
func (l *Scheduler) entry() *Entry {
	var e *Entry
	if n := len(l.free); n > 0 {
		e = l.free[n-1]
		l.free = l.free[:n-1]
	} else {
		e = &Entry{}
	}
	e.Owner = e
	return e
}

// release removes an event from the scheduler.
func (l *Scheduler) release(e *Entry) {
	l.size--
	l.bytes -= e.size
	l.countGone(e)
	*e = Entry{}
	l.free = append(l.free, e)
}

// retries is a heap, with the event that is due first at the front.
type retries []*Entry

func (r retries) Len() int           { return len(r) }
func (r retries) Less(i, j int) bool { return r[i].due.Before(r[j].due) }
func (r retries) Swap(i, j int)      { r[i], r[j] = r[j], r[i] }
func (r *retries) Push(f any)        { *r = append(*r, f.(*Entry)) }

func (r *retries) Pop() any {
	last := len(*r) - 1
	f := (*r)[last]
	(*r)[last] = nil
	*r = (*r)[:last]
	return f
}

// fifo is a queue. It reuses its memory: the front moves along the slice, and the items
// move down when the front half is empty.
type fifo[T any] struct {
	items []T
	front int
}

func (q *fifo[T]) len() int { return len(q.items) - q.front }

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
