package claims

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postroom/postroom/inbox/internal/delivery"
)

// The type later has the keys of one handler whose events cannot run now. If an event is postponed,
// it becomes due after the events of its key that were postponed earlier.
type later struct {
	crowded atomic.Bool // more due events of these keys may have to be postponed before the next claim

	mu   sync.Mutex
	keys map[string]keyWait   // how the due events of each key are to be postponed
	sent map[string]keyWait   // a copy of keys, which the method asked made last
	ends map[string]time.Time // the earliest time for the next postponed event of a key
}

// keyWait says how the due events of a key are postponed.
type keyWait struct {
	due   time.Time     // events that were due at this time are postponed
	until time.Time     // when the first of these events is due again
	pace  time.Duration // the time from each of these events to the next
}

// mostPostponed is how many events one statement looks at.
const mostPostponed = 1000

// Later asks the runner to postpone the events that have the key of a claim and were due when the
// claim was made. The parameter first is the time until the first of them is due again, and pace is
// the time from each to the next. The runner postpones them before it claims again.
func (q *Queue) Later(cl *Claim, first, pace time.Duration) {
	due, key := cl.Ends.Add(-q.Lease), cl.Event.Key
	q.later.mu.Lock()
	defer q.later.mu.Unlock()
	if q.later.keys == nil {
		q.later.keys, q.later.ends = make(map[string]keyWait), make(map[string]time.Time)
	}
	w := keyWait{due: due, until: time.Now().Add(first), pace: pace}
	if known := q.later.keys[key]; known.until.After(w.until) {
		w.until = known.until
	}
	q.later.keys[key] = w
}

// asked returns the postponement for which the calls of Later asked.
func (l *later) asked(now time.Time) (p delivery.Postponement) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.ends, func(_ string, end time.Time) bool { return end.Before(now) })
	l.sent = maps.Clone(l.keys)
	for _, key := range slices.Sorted(maps.Keys(l.keys)) {
		w := l.keys[key]
		//guard:what-is-postponed-stands-in-line false
		if end := l.ends[key]; end.After(w.until) {
			w.until = end
		}
		p.Keys, p.First, p.Pace = append(p.Keys, key), append(p.First, max(w.until.Sub(now), 0)), append(p.Pace, w.pace)
		p.Since = append(p.Since, max(now.Sub(w.due), 0))
	}
	return p
}

// done notes how many events of each key were postponed. It reports whether these keys may have
// more due events, which a claim would find before all other events.
func (l *later) done(now time.Time, p delivery.Postponement, moved map[string]int) (more bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	sum := 0
	for i, key := range p.Keys {
		sum += moved[key]
		l.ends[key] = now.Add(p.First[i] + time.Duration(moved[key])*p.Pace[i])
	}
	if more = sum == mostPostponed; !more {
		// A key stays if a worker called Later for it meanwhile: l.sent lacks the new entry.
		//guard:a-key-is-postponed-again = clear(@1)
		maps.DeleteFunc(l.keys, func(key string, w keyWait) bool { return l.sent[key] == w })
	}
	return more
}

// postpone postpones the events for which Later was called, so that a claim does not find them. It
// reports whether there may be more such events. Until all of them are postponed, the runner claims
// nothing for their handler.
func (r *Runner) postpone(ctx context.Context) (crowded bool, err error) {
	for _, q := range r.queues {
		began := time.Now()
		p, more := q.later.asked(began), false
		if len(p.Keys) > 0 {
			moved, err := r.cfg.Ledger.Postpone(ctx, q.Name, p, mostPostponed)
			if err != nil {
				return false, err
			}
			more = q.later.done(began, p, moved)
		}
		q.later.crowded.Store(more)
		crowded = crowded || more
	}
	return crowded, nil
}
