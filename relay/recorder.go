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

// take returns what is to be recorded, and clears it, and the number of the
// recording.
func (l *leader) take() (p eventlog.Progress, counted counts, recording int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, counted, recording = l.progress, l.counted, l.recording
	l.progress, l.counted = eventlog.Progress{}, counts{}
	l.recording++
	if l.holding.Swap(0) >= maxHolding {
		signal(l.news) // conduct may read again
	}
	return p, counted, recording
}

// keepRecord records progress, renews the lease where there is none, and prunes
// the log, until ctx ends. It gives up while the lease still has a quarter to
// run: nothing is sent by a relay that may no longer be the leader.
func (l *leader) keepRecord(ctx context.Context) error {
	sure, err := l.renewFirst(ctx) // the lease is valid for its whole length from here on
	if err != nil {
		return fmt.Errorf("renew lease: %w", err)
	}
	lease := l.now.lease
	prune := time.Now().Add(recordEvery)
	var next time.Time // when the next recording had better begin
	for {
		renew := sure.Add(lease / 3)
		if l.relay.cfg.Retention > 0 && prune.Before(renew) {
			renew = prune
		}
		timer := time.NewTimer(time.Until(renew))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		case <-l.record:
			timer.Stop()
		}
		// Here, and not before it waits: an idle relay would wake up once more for it.
		if !l.pause(ctx, time.Until(next)) {
			return nil
		}

		began := time.Now()
		share, err := l.recordOnce(ctx, sure)
		if err != nil {
			return fmt.Errorf("record: %w", err)
		}
		sure = began
		pause := min(share*time.Since(began), lease/4)
		if began := time.Now(); l.relay.cfg.Retention > 0 && !prune.After(began) {
			more, err := l.prune(ctx, sure)
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
func (l *leader) renewFirst(ctx context.Context) (sure time.Time, err error) {
	attempt, unsure, cancel := l.beforeLeaseEnds(ctx, l.now.led, "the first renewal")
	defer cancel()
	began := time.Now()
	if err := l.term.Renew(attempt, l.now.lease); err != nil {
		return began, unsure(err)
	}
	l.now.renewed = true
	return began, nil
}

// beforeLeaseEnds returns a context that ends while the lease, which lasts from the given
// time on, still has a quarter to run. unsure explains an error by that, where it is so.
func (l *leader) beforeLeaseEnds(ctx context.Context, sure time.Time, what string,
) (attempt context.Context, unsure func(err error) error, cancel context.CancelFunc) {
	lease := l.now.lease
	if !l.now.renewed {
		lease = l.now.taken
	}
	began := time.Now()
	// Not ctx's child: to cut a recording short would end its connection.
	attempt, cancel = context.WithDeadlineCause(context.WithoutCancel(ctx), sure.Add(lease*3/4), errLeaseUnsure)
	unsure = func(err error) error {
		if attempt.Err() == nil {
			return err
		}
		return &shortLease{lease: lease, what: what, took: time.Since(began), roundTrip: l.now.roundTrip, cause: err}
	}
	return attempt, unsure, cancel
}

// pause waits for d, or until there is no work that a recording could hold up, and
// reports whether ctx still lives.
func (l *leader) pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
	case <-l.quiet:
	}
	return true
}

// recordOnce records what there is to record, before the lease ends that lasts from the
// given time on. It returns how many times as long as it took the next recording may
// wait: where events are written to held, reading may be waiting for it.
func (l *leader) recordOnce(ctx context.Context, sure time.Time) (share time.Duration, err error) {
	progress, counted, recording := l.take()
	attempt, unsure, cancel := l.beforeLeaseEnds(ctx, sure, "a recording")
	defer cancel()
	err = l.term.Record(attempt, progress)
	if attempt.Err() != nil {
		err = unsure(err)
	}
	l.relay.metrics.published(ctx, counted)
	if err != nil {
		return 0, err
	}
	if !progress.Empty() {
		l.now.recorded = true
	}
	l.recorded.Store(recording)
	signal(l.noted)
	if len(progress.Held) > 0 {
		return 1, nil
	}
	return recordShare, nil
}

// prune removes what the retention no longer keeps, and reports whether there is
// more of it.
func (l *leader) prune(ctx context.Context, sure time.Time) (more bool, err error) {
	attempt, unsure, cancel := l.beforeLeaseEnds(ctx, sure, "a step of pruning")
	defer cancel()
	removed, more, err := l.term.Prune(attempt, l.relay.cfg.Retention)
	if err != nil {
		return false, fmt.Errorf("prune: %w", unsure(err))
	}
	if removed > 0 {
		l.relay.metrics.removed.Add(ctx, removed, l.relay.metrics.log)
	}
	return more, nil
}
