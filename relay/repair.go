package relay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/postroom/postroom/broker"
	"github.com/postroom/postroom/eventlog"
	"github.com/postroom/postroom/internal/guard"
	"github.com/postroom/postroom/internal/pause"
	"github.com/postroom/postroom/reconcile"
)

// errLost ends a term in which a stream lost events. The next term begins with a repair.
var errLost = errors.New("the broker has lost events that it had acknowledged")

// Loss describes what a stream lost.
type Loss struct {
	Stream  string
	Verdict broker.Verdict
	FoundAt time.Time // when the relay noticed the loss

	// Events is the number of events of the log that were missing. RepairedAt is when the relay
	// recorded that these events must be published again. Until then, both are zero.
	Events     int
	RepairedAt time.Time

	// OutOfOrder is how many of the missing events will come after later events of their
	// key, because the later events were published before the relay noticed the loss.
	// Ordered handlers hold events that come out of order.
	OutOfOrder int
}

// verifier checks whether the broker lost events, and repairs the loss.
type verifier struct {
	relay   *Relay
	term    eventlog.Term
	buffer  *recordBuffer
	recheck chan struct{} // signals that a stream may have lost messages

	// The set unrepaired has the streams whose repair failed in this term. The other streams do not wait
	// for them any longer. The time failedAt is when the last of these repairs failed.
	unrepaired map[string]bool
	failedAt   time.Time
}

const (
	// repairPatience is how long after a loss was noticed no event is published while the repair fails.
	// In this time most outages end, and then the lost events come before the new ones.
	repairPatience = 10 * time.Second

	// repairAgain is the shortest time between a repair that failed and the term that tries it again.
	repairAgain = 30 * time.Second

	// At most maxComparisons streams are compared at once, and all of them within compareTimeout.
	maxComparisons = 64
	compareTimeout = 15 * time.Second
)

// verifyFirst runs before anything is published. It compares the streams with the positions that
// the last leader recorded, and repairs each loss. If a stream does not answer, verifyLoop compares
// this stream later, and the other streams do not wait for it. Nor do they wait longer than
// repairPatience for a stream that cannot be repaired.
func (a *verifier) verifyFirst(ctx context.Context) error {
	recorded := a.term.Positions()
	a.buffer.markUnverified(recorded)
	if !a.relay.preflight.abilities.Verifies {
		return nil
	}
	for _, c := range a.compare(ctx, recorded) {
		switch {
		case c.err != nil && (ctx.Err() != nil || !a.relay.connected()):
			return c.err
		case c.err != nil:
			a.relay.state.setErr(c.err)
			a.relay.cfg.Logger.WarnContext(ctx, "stream not compared", "stream", c.at.Stream, "error", c.err)
			signal(a.recheck)
		case c.lost():
			if err := a.repair(ctx, c.at, c.state); err != nil {
				return err
			}
		}
	}
	return nil
}

// verifyLoop compares the streams with their positions again and again until ctx ends,
// because a cluster can lose messages while the connection stays open. It returns an
// error if a stream lost messages.
func (a *verifier) verifyLoop(ctx context.Context) error {
	if !a.relay.preflight.abilities.Verifies {
		return nil
	}
	for looked := time.Now().Add(-time.Second); a.waitForCheck(ctx, looked); looked = time.Now() {
		if len(a.unrepaired) > 0 && time.Since(a.failedAt) >= repairAgain {
			return fmt.Errorf("%w: not all of them are found yet", errLost)
		}
		for _, c := range a.compare(ctx, a.buffer.lastPositions()) {
			switch {
			case c.err != nil:
				a.relay.cfg.Logger.DebugContext(ctx, "stream not compared", "stream", c.at.Stream, "error", c.err)
				signal(a.recheck)
			//guard:a-term-outlives-a-repair-that-failed 2 true
			case c.lost() && !a.unrepaired[c.at.Stream]:
				return fmt.Errorf("%w: stream %s: %s", errLost, c.at.Stream, c.state.Verdict)
			}
		}
	}
	return nil
}

// comparison is what a comparison of a stream with a position showed.
type comparison struct {
	at    eventlog.StreamPosition
	state broker.StreamState
	err   error
}

// lost reports whether the stream lost messages. A missing stream may come back with all its messages.
func (c comparison) lost() bool {
	return c.err == nil && c.state.Verdict != broker.Intact && c.state.Verdict != broker.Missing
}

// compare compares streams with their positions, many at once, because each that does not answer takes
// the whole time limit of its request. It returns after at most compareTimeout. It marks a stream as
// verified as soon as that has answered: a later acknowledgement could make it unverified again.
func (a *verifier) compare(ctx context.Context, places []eventlog.StreamPosition) []comparison {
	//guard:all-comparisons-have-one-time-limit 2 = time.Hour
	ctx, cancel := context.WithTimeout(ctx, compareTimeout)
	defer cancel()
	all := make([]comparison, len(places))
	var compared sync.WaitGroup
	//guard:streams-that-do-not-answer-are-waited-for-at-once 2 = 1
	room := make(chan struct{}, maxComparisons)
	for i, at := range places {
		room <- struct{}{}
		compared.Go(func() {
			defer func() { <-room }()
			c := &all[i]
			c.at, c.err = at, guard.ErrGoexit // even if the publisher calls runtime.Goexit
			c.err = guardedCall(func() (err error) {
				c.state, err = a.relay.pub.Compare(ctx, at)
				return err
			})
			if c.err == nil && c.state.Verdict == broker.Intact {
				a.buffer.markVerified(at.Stream, c.state.Last.Created)
			}
		})
	}
	compared.Wait()
	return all
}

// waitForCheck waits until Config.CheckEvery has passed since the last check. If a stream must be
// checked again, it waits only until one second has passed. It returns false if ctx ended.
func (a *verifier) waitForCheck(ctx context.Context, looked time.Time) bool {
	timer := time.NewTimer(time.Until(looked.Add(a.relay.cfg.CheckEvery)))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	case <-a.recheck:
		return pause.For(ctx, time.Until(looked.Add(time.Second)))
	}
}

// repair finds the events that a stream lost, and records that the relay must publish them again:
// the events that inOrder returns come before newer events, and a republish publishes the others. If
// the events cannot be found, and the other streams may go on, it only notes that.
func (a *verifier) repair(ctx context.Context, at eventlog.StreamPosition, s broker.StreamState) error {
	r := a.relay
	loss, isNew := r.state.addLoss(at.Stream, s.Verdict)
	if isNew {
		r.metrics.lost(ctx, s.Verdict)
		r.cfg.Logger.ErrorContext(ctx, "broker lost events",
			"stream", at.Stream, "reason", string(s.Verdict), "seq", at.Seq, "last_seq", s.Last.Seq)
	}
	began := time.Now()
	found, err := reconcile.FindLost(ctx, r.log, r.pub, s)
	//guard:a-stream-that-cannot-be-repaired-stops-no-other false
	if err != nil && ctx.Err() == nil && r.connected() && time.Since(loss.FoundAt) >= repairPatience && staysVisible(at, s) {
		r.state.setErr(err)
		r.cfg.Logger.ErrorContext(ctx, "lost events not found", "stream", at.Stream, "error", err)
		a.unrepaired[at.Stream], a.failedAt = true, time.Now()
		return nil
	}
	if err != nil {
		return fmt.Errorf("repair stream %s: %w", at.Stream, err)
	}
	if err := a.buffer.requeueLost(ctx, found, s.Last); err != nil {
		return fmt.Errorf("repair stream %s: %w", at.Stream, err)
	}
	r.metrics.repaired.Add(ctx, int64(len(found.Missing)))
	loss.Events, loss.OutOfOrder, loss.RepairedAt = len(found.Missing), len(found.OutOfOrder), time.Now()
	r.state.setRepaired(loss)
	r.cfg.Logger.WarnContext(ctx, "lost events will be published again", "stream", at.Stream,
		"events", loss.Events, "out_of_order", loss.OutOfOrder, "compared", found.Compared, "messages", found.Messages, "took", time.Since(began).Round(time.Millisecond))
	return nil
}

// staysVisible reports whether later comparisons with the position show the loss too, even if the
// stream stores new messages meanwhile. If one of these took the place of the message at the position,
// and is itself replaced or consumed, the loss could be taken for a message that the stream removed.
func staysVisible(at eventlog.StreamPosition, s broker.StreamState) bool {
	//guard:a-loss-that-could-be-forgotten-is-repaired-first true
	return s.Verdict == broker.Recreated || at.MessageID != "" && s.Limits && !s.Replaces
}

// inOrder returns the missing events whose key has no later event in the stream.
func inOrder(found reconcile.Result) []int64 {
	return slices.DeleteFunc(slices.Clone(found.Missing), func(seq int64) bool {
		_, late := slices.BinarySearch(found.OutOfOrder, seq)
		return late
	})
}
