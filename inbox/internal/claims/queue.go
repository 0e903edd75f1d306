package claims

import (
	"sync/atomic"
	"time"

	"github.com/postroom/postroom/inbox/internal/delivery"
)

// Handler says which events may be claimed for a handler, and how to run an event.
type Handler struct {
	Name            string
	Attempts        int           // how many attempts an event has
	Lease           time.Duration // how long a claim lasts
	Renewed         bool          // whether the claim is renewed while the handler runs
	Types, Subjects *string       // the types and subjects that this process takes, in the form of claim.sql
	Spared          int32         // if a claim of an event ran out, and as many claims before it, the event runs alone from then on; -1: no event does
	Running         int           // how many events can run at the same time; 0 if no more than that may be claimed

	// Allowed returns how many events may be claimed at the moment. While the handler is paused,
	// Allowed returns 0, or 1 if a probe is due. If Allowed returns 0, the runner gives back the
	// claims that no worker has begun. If Allowed is nil, only the queue's room limits the claims.
	Allowed func() int

	// Run runs an event that has to run alone, and returns when it is done. Release gives
	// a claim back.
	Run, Release func(life delivery.Lifetime, cl *Claim)
}

// Queue has the open claims of one handler: those that wait for a worker, and those that
// run.
type Queue struct {
	Handler

	waiting chan *Claim // has room for all open claims
	claimed atomic.Int32
	size    atomic.Int64 // bytes of the claimed events
	most    int64        // the runner claims nothing while the field size is at or above this limit
	ahead   *ahead       // limits how many claims wait for a worker; nil if the capacity of the channel is the only limit
	later   later        // the keys whose events are to be postponed
}

// NewQueue returns the queue of a handler. At most the given number of events may be claimed at the
// same time, and about the given number of bytes.
func NewQueue(h Handler, events, bytes int) *Queue {
	q := &Queue{Handler: h, waiting: make(chan *Claim, events), most: int64(bytes)}
	if h.Running > 0 {
		q.ahead = newAhead(events - h.Running)
	}
	return q
}

// put makes a claim wait for a worker. It does not block, because the channel has room for all open
// claims.
func (q *Queue) put(cl *Claim) {
	cl.since = time.Now()
	if q.ahead != nil {
		q.ahead.put(cl.since, len(q.waiting))
	}
	q.waiting <- cl
}

// Begin notes that a worker begins to run a claim.
func (q *Queue) Begin(cl *Claim) {
	cl.Start = time.Now()
	q.took(cl)
}

// took notes that a worker has taken a claim.
func (q *Queue) took(cl *Claim) {
	if q.ahead != nil && !cl.since.IsZero() {
		q.ahead.taken(time.Now(), cl.since)
	}
	cl.since = time.Time{}
}

// wants reports whether more events should be claimed, because few claims wait for a worker.
func (q *Queue) wants() bool {
	return q.ahead == nil || len(q.waiting) <= q.ahead.room()/2
}

// Next returns the channel of claims to run.
func (q *Queue) Next() <-chan *Claim { return q.waiting }

// Take returns a claim that waits for a worker, or nil.
func (q *Queue) Take() *Claim {
	select {
	case cl := <-q.waiting:
		q.took(cl)
		return cl
	default:
		return nil
	}
}

// Collect returns the given claim, and after it other claims that wait for a worker. The parameter
// most limits the total number of claims.
func (q *Queue) Collect(first *Claim, most int) []*Claim {
	q.took(first)
	all := []*Claim{first}
	for cl := first; len(all) < most && cl != nil; {
		if cl = q.Take(); cl != nil {
			all = append(all, cl)
		}
	}
	return all
}

// Waiting returns how many claims wait for a worker.
func (q *Queue) Waiting() int { return len(q.waiting) }

// Claimed returns how many claims are open.
func (q *Queue) Claimed() int { return int(q.claimed.Load()) }

// Cap returns how many claims may be open.
func (q *Queue) Cap() int { return cap(q.waiting) }

// Part returns how many bytes of events of one key may run in one transaction. That is the
// handler's limit of bytes, divided by the number of claims that may be open.
func (q *Queue) Part() int64 { return q.most / int64(cap(q.waiting)) }

// room returns how many more events, and how many more bytes of events, may be claimed. A statement
// can settle an event and claim the next event of its key. Then both events use room until
// Runner.Ended is called for the settled one.
func (q *Queue) room() (events int32, bytes int64) {
	//guard:nothing-is-claimed-while-a-backlog-is-postponed 3 false
	if bytes = q.most - q.size.Load(); bytes <= 0 || !q.wants() || q.later.crowded.Load() {
		return 0, max(bytes, 0)
	}
	return max(int32(q.allowed())-q.claimed.Load(), 0), bytes //nolint:gosec // a number of workers
}

// allowed returns how many claims may be open at the moment.
func (q *Queue) allowed() int {
	n := cap(q.waiting)
	if q.ahead != nil {
		n = q.Running + q.ahead.room()
	}
	if q.Allowed != nil {
		n = min(q.Allowed(), n)
	}
	return n
}

// isStuck reports whether claims wait, and no worker has taken a claim for long.
func (q *Queue) isStuck() bool { return q.ahead != nil && q.ahead.isStuck(time.Now(), len(q.waiting)) }

// isPaused reports whether nothing may be claimed.
func (q *Queue) isPaused() bool { return q.allowed() == 0 }

// Claims returns the claims for rows that a statement claimed for the handler. The parameter began
// is a time before the statement was sent, from which the lease counts.
func (q *Queue) Claims(rows []delivery.HeldEvent, began time.Time) []*Claim {
	claims := make([]*Claim, len(rows))
	for i, row := range rows {
		cl := &Claim{HeldEvent: row, queue: q, size: row.Size(), Ends: began.Add(q.Lease)}
		cl.readEvent()
		claims[i] = cl
	}
	return claims
}
