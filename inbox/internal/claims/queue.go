package claims

import (
	"sync/atomic"
	"time"

	"github.com/postroom/postroom/inbox/internal/delivery"
)

// Handler says what may be claimed for a handler, and what runs it.
type Handler struct {
	Name            string
	Attempts        int           // that an event has in all
	Lease           time.Duration // of a claim
	Renewed         bool          // whether it is renewed while the handler runs
	Types, Subjects *string       // that this process takes, as claim.sql has them
	Spared          int32         // after how many claims that ran out an event runs alone

	// Run runs an event that has to run alone, to its end, and Release gives a claim back.
	Run, Release func(life delivery.Lifetime, cl *Claim)
}

// Queue has the claims of one handler that are not answered: those that wait for a
// worker, and those that run.
type Queue struct {
	Handler

	waiting chan *Claim // has room for all that are not answered
	claimed atomic.Int32
	size    atomic.Int64 // of the claimed, in bytes
	most    int64        // what that may be, as far as it is claimed at once
}

// NewQueue returns the queue of a handler of which so many events may be claimed at a time,
// with so many bytes.
func NewQueue(h Handler, events, bytes int) *Queue {
	return &Queue{Handler: h, waiting: make(chan *Claim, events), most: int64(bytes)}
}

// Next has the claims that are to be run.
func (q *Queue) Next() <-chan *Claim { return q.waiting }

// Waiting is how many wait for a worker.
func (q *Queue) Waiting() int { return len(q.waiting) }

// Claimed is how many are claimed and not answered, and Cap how many may be.
func (q *Queue) Claimed() int { return int(q.claimed.Load()) }

// Cap is how many may be claimed.
func (q *Queue) Cap() int { return cap(q.waiting) }

// Part is how many bytes may run together in one key: what each worker has of the
// handler's share.
func (q *Queue) Part() int64 { return q.most / int64(cap(q.waiting)) }

// room is how many more events may be claimed, and of how many bytes. A claim that passes
// on to the next of its key counts twice for a moment.
func (q *Queue) room() (events int32, bytes int64) {
	if bytes = q.most - q.size.Load(); bytes <= 0 {
		return 0, 0
	}
	return max(int32(cap(q.waiting))-q.claimed.Load(), 0), bytes //nolint:gosec // a number of workers
}

// Claims returns what was claimed for the handler. The lease is counted from before the
// statement was sent.
func (q *Queue) Claims(rows []delivery.HeldEvent, began time.Time) []*Claim {
	claims := make([]*Claim, len(rows))
	for i, row := range rows {
		cl := &Claim{HeldEvent: row, queue: q, size: row.Size(), Ends: began.Add(q.Lease)}
		cl.readEvent()
		claims[i] = cl
	}
	return claims
}
