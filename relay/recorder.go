package relay

import (
	"context"
	"fmt"
	"time"

	"github.com/postroom/postroom/internal/eventlog"
)

const (
	// The recorder records progress at most this often. It spends at most a twentieth of the time
	// on recordings, or half if they change the table held. It waits less if it must renew the lease.
	// If no event is in flight and at least manyUnrecorded published events are not recorded, it
	// does not wait. This delays no event, and no relay repeats these events after a crash.
	recordEvery    = 20 * time.Millisecond
	recordShare    = 20
	manyUnrecorded = pageSize

	// The recorder prunes the log this often. If one step does not remove all old events, the next
	// step comes sooner: the recorder spends up to a fifth of the time on pruning. At this rate it
	// removes more events than producers can write.
	pruneEvery = 10 * time.Second
	pruneShare = 4
)

// recorder writes the progress of a term to the log, and renews its lease.
type recorder struct {
	relay   *Relay
	term    eventlog.Term
	attempt *leadAttempt // the recorder sets the fields of the attempt
	buffer  *recordBuffer
}

// run records progress, renews the lease if there is no progress, and prunes the log, until ctx
// ends. If a write takes too long, run gives up before the last quarter of the lease, so that the
// relay sends nothing when it may no longer lead.
func (r *recorder) run(ctx context.Context) error {
	sure, err := r.renewFirst(ctx) // the lease is counted from this time
	if err != nil {
		return fmt.Errorf("renew lease: %w", err)
	}
	lease := r.attempt.lease
	prune := time.Now().Add(recordEvery)
	var next time.Time // the earliest time of the next recording
	for {
		renew := sure.Add(lease / 3)
		if r.mayPrune() && prune.Before(renew) {
			renew = prune
		}
		timer := time.NewTimer(time.Until(renew))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		case <-r.buffer.due:
			timer.Stop()
		}
		// This wait comes after the select and not before it, because otherwise an idle relay would
		// wake up twice for each renewal.
		if !r.waitUnlessIdle(ctx, time.Until(next)) {
			return nil
		}

		began := time.Now()
		share, err := r.recordOnce(ctx, sure)
		if err != nil {
			return fmt.Errorf("record: %w", err)
		}
		sure = began
		pause := min(share*time.Since(began), lease/4)
		if began := time.Now(); r.mayPrune() && !prune.After(began) {
			more, err := r.prune(ctx, sure)
			if err != nil {
				return err
			}
			prune = time.Now().Add(pruneEvery)
			if more {
				prune = time.Now().Add(pruneShare * time.Since(began))
			}
		}
		next = time.Now().Add(max(recordEvery, pause))
		if due := sure.Add(lease / 3); next.After(due) { // pruning may have taken long
			next = due
		}
	}
}

// mayPrune reports whether old events may be removed now. None are removed before the term has compared
// the streams: the broker may have lost some of them, and after a long pause all may be old.
func (r *recorder) mayPrune() bool {
	//guard:nothing-is-removed-before-the-comparison 2 true
	return r.relay.cfg.Retention > 0 && r.buffer.compared.Load()
}

// renewFirst renews the lease as soon as the term has begun, because a part of the first lease has
// passed already, and the term may need a longer lease. It returns the time from which the renewed
// lease is counted.
func (r *recorder) renewFirst(ctx context.Context) (sure time.Time, err error) {
	attempt, unsure, cancel := r.leaseDeadline(ctx, r.attempt.ledAt, "the first renewal")
	defer cancel()
	began := time.Now()
	if err := r.term.Renew(attempt, r.attempt.lease); err != nil {
		return began, unsure(err)
	}
	r.attempt.renewed = true
	return began, nil
}

// leaseDeadline returns a context that ends before the last quarter of the lease. The lease is
// counted from the given time. If the context ended, the first returned function turns an error
// into a leaseTooShortError.
func (r *recorder) leaseDeadline(ctx context.Context, sure time.Time, what string,
) (attempt context.Context, unsure func(err error) error, cancel context.CancelFunc) {
	lease := r.attempt.lease
	if !r.attempt.renewed {
		lease = r.attempt.firstLease
	}
	began := time.Now()
	// The context attempt is not a child of ctx: to cancel a recording would close its connection.
	attempt, cancel = context.WithDeadlineCause(context.WithoutCancel(ctx), sure.Add(lease*3/4), errLeaseUnsure)
	unsure = func(err error) error {
		if attempt.Err() == nil {
			return err
		}
		return &leaseTooShortError{lease: lease, what: what, took: time.Since(began), roundTrip: r.attempt.roundTrip, cause: err}
	}
	return attempt, unsure, cancel
}

// waitUnlessIdle waits for d. It stops earlier if no event is in flight and at least manyUnrecorded
// events wait to be recorded. It returns false if ctx ended.
func (r *recorder) waitUnlessIdle(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
	case <-r.buffer.idle:
	}
	return true
}

// recordOnce records the progress so far, or a part of it. It gives up before the lease ends. The
// lease is counted from the given time. The result share says how long the next recording must wait,
// as a multiple of the time that this recording took. It is small if there is more to record, or if
// the recording changed the table held: the dispatcher may have to wait for the next recording
// before it takes a page, and the next events of a key are read only after the recording of those
// before them.
func (r *recorder) recordOnce(ctx context.Context, sure time.Time) (share time.Duration, err error) {
	taken := r.buffer.take()
	attempt, unsure, cancel := r.leaseDeadline(ctx, sure, "a recording")
	defer cancel()
	err = r.term.Record(attempt, taken.progress)
	if attempt.Err() != nil {
		err = unsure(err)
	}
	r.relay.metrics.published(ctx, taken.counted)
	if err != nil {
		return 0, err
	}
	if !taken.progress.Empty() {
		r.attempt.recorded = true
	}
	held, other := r.term.Unrecorded()
	r.buffer.done(taken, held, other)
	//guard:a-recording-that-drains-held-is-soon-followed 2 false
	if len(taken.progress.Held)+held+other > 0 || taken.drained {
		//guard:the-next-events-of-a-held-key-are-read-at-once remove
		r.relay.Wake() // the next events of a key may be due now
		return 1, nil
	}
	return recordShare, nil
}

// prune removes events older than the retention. It reports whether some are left.
func (r *recorder) prune(ctx context.Context, sure time.Time) (more bool, err error) {
	attempt, unsure, cancel := r.leaseDeadline(ctx, sure, "a step of pruning")
	defer cancel()
	removed, more, err := r.term.Prune(attempt, r.relay.cfg.Retention)
	if err != nil {
		return false, fmt.Errorf("prune: %w", unsure(err))
	}
	if removed > 0 {
		r.relay.metrics.removed.Add(ctx, removed, r.relay.metrics.log)
	}
	return more, nil
}
