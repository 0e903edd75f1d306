package relay

import (
	"context"
	"fmt"
	"time"

	"github.com/postroom/postroom/eventlog"
)

const (
	// The state is recorded this often at the most, and no more than a twentieth of the
	// time is spent on it: unless nothing is in flight any more, which it could hold up,
	// and so many events would be published again after a crash.
	recordEvery    = 20 * time.Millisecond
	recordShare    = 20
	manyUnrecorded = pageSize

	// The log is pruned this often. While there is more to remove than one step
	// does, no more than a quarter of the time is spent on it: enough for more than
	// producers can write.
	pruneEvery = 10 * time.Second
	pruneShare = 4
)

// recorder tells the log what a term knows, and keeps its lease.
type recorder struct {
	relay   *Relay
	term    eventlog.Term
	attempt *leadAttempt // this term
	buffer  *recordBuffer
}

// run records progress, renews the lease where there is none, and prunes
// the log, until ctx ends. It gives up while the lease still has a quarter to
// run: nothing is sent by a relay that may no longer be the leader.
func (r *recorder) run(ctx context.Context) error {
	sure, err := r.renewFirst(ctx) // the lease is valid for its whole length from here on
	if err != nil {
		return fmt.Errorf("renew lease: %w", err)
	}
	lease := r.attempt.lease
	prune := time.Now().Add(recordEvery)
	var next time.Time // when the next recording had better begin
	for {
		renew := sure.Add(lease / 3)
		if r.relay.cfg.Retention > 0 && prune.Before(renew) {
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
		// Here, and not before it waits: an idle relay would wake up once more for it.
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
		if began := time.Now(); r.relay.cfg.Retention > 0 && !prune.After(began) {
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

// renewFirst renews the lease as soon as the term has begun: it was taken before, and may
// have to be longer. It returns from when on it lasts.
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

// leaseDeadline returns a context that ends while the lease, which lasts from the given
// time on, still has a quarter to run. unsure explains an error by that, where it is so.
func (r *recorder) leaseDeadline(ctx context.Context, sure time.Time, what string,
) (attempt context.Context, unsure func(err error) error, cancel context.CancelFunc) {
	lease := r.attempt.lease
	if !r.attempt.renewed {
		lease = r.attempt.firstLease
	}
	began := time.Now()
	// Not ctx's child: to cut a recording short would end its connection.
	attempt, cancel = context.WithDeadlineCause(context.WithoutCancel(ctx), sure.Add(lease*3/4), errLeaseUnsure)
	unsure = func(err error) error {
		if attempt.Err() == nil {
			return err
		}
		return &leaseTooShortError{lease: lease, what: what, took: time.Since(began), roundTrip: r.attempt.roundTrip, cause: err}
	}
	return attempt, unsure, cancel
}

// waitUnlessIdle waits for d, or until there is no work that a recording could hold up, and
// reports whether ctx still lives.
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

// recordOnce records what there is to record, before the lease ends that lasts from the
// given time on. It returns how many times as long as it took the next recording may
// wait: where events are written to held, reading may be waiting for it.
func (r *recorder) recordOnce(ctx context.Context, sure time.Time) (share time.Duration, err error) {
	progress, counted, recording := r.buffer.take()
	attempt, unsure, cancel := r.leaseDeadline(ctx, sure, "a recording")
	defer cancel()
	err = r.term.Record(attempt, progress)
	if attempt.Err() != nil {
		err = unsure(err)
	}
	r.relay.metrics.published(ctx, counted)
	if err != nil {
		return 0, err
	}
	if !progress.Empty() {
		r.attempt.recorded = true
	}
	r.buffer.done(recording)
	if len(progress.Held) > 0 {
		return 1, nil
	}
	return recordShare, nil
}

// prune removes what the retention no longer keeps, and reports whether there is
// more of it.
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
