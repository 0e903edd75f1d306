package relay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/internal/guard"
	"github.com/postroom/postroom/internal/reconcile"
	"github.com/postroom/postroom/internal/sleep"
	"github.com/postroom/postroom/relay/broker"
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

	// OutOfOrder is how many of the missing events come after later events of their key, or may do
	// so, because later events were published before the relay knew which events were missing.
	// Ordered handlers hold these events.
	OutOfOrder int
}

// verifier checks whether the broker lost events, and repairs the loss.
type verifier struct {
	relay   *Relay
	term    eventlog.Term
	buffer  *recordBuffer
	recheck chan struct{} // signals that a stream may have lost messages

	unrepaired map[string]*lossSearch // the streams that lost events which are not found yet
	searches   sync.WaitGroup         // the searches that run, and those that wait
	room       chan struct{}          // the searches that run
	ended      chan searchEnd
}

func newVerifier(r *Relay, term eventlog.Term, notes *recordBuffer, suspicion chan struct{}) verifier {
	return verifier{
		relay: r, term: term, buffer: notes, recheck: suspicion,
		unrepaired: make(map[string]*lossSearch), ended: make(chan searchEnd),
		//guard:few-searches-run-at-a-time 2 = 1000
		room: make(chan struct{}, maxSearches),
	}
}

const (
	// repairPatience is how long after a loss was noticed no event is published while the lost events
	// are not found. In this time most outages end, and most searches, and then the lost events come
	// before the new ones.
	repairPatience = 10 * time.Second

	// repairAgain is the time between a search that failed and the next one, while events are published.
	repairAgain = 30 * time.Second

	// At most maxSearches searches run at once, so that a long one does not delay a short one, and the
	// database has time for other work.
	maxSearches = 2

	// At most maxComparisons streams are compared at once, and all of them within compareTimeout.
	maxComparisons = 64
	compareTimeout = 15 * time.Second
)

// verifyFirst runs before anything is published. It compares the streams with the positions that
// the last leader recorded, and repairs each loss. If a stream does not answer, verifyLoop compares
// this stream later, and the other streams do not wait for it. Nor do they wait longer than
// repairPatience for the repair of a stream.
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
			a.noteLoss(ctx, c.at, c.state)
		}
	}
	return a.repairFirst(ctx)
}

// verifyLoop compares the streams with their positions again and again until ctx ends,
// because a cluster can lose messages while the connection stays open. It returns an
// error if a stream lost messages. It does not compare streams that are not repaired yet.
func (a *verifier) verifyLoop(ctx context.Context) error {
	if !a.relay.preflight.abilities.Verifies {
		return nil
	}
	for looked := time.Now().Add(-time.Second); a.waitForCheck(ctx, looked); looked = time.Now() {
		//guard:a-term-outlives-a-search = a.buffer.lastPositions()
		known := slices.DeleteFunc(a.buffer.lastPositions(), func(at broker.StreamPosition) bool { return a.unrepaired[at.Stream] != nil })
		for _, c := range a.compare(ctx, known) {
			switch {
			case c.err != nil:
				a.relay.cfg.Logger.DebugContext(ctx, "stream not compared", "stream", c.at.Stream, "error", c.err)
				signal(a.recheck)
			case c.lost():
				return fmt.Errorf("%w: stream %s: %s", errLost, c.at.Stream, c.state.Verdict)
			}
		}
	}
	return nil
}

// comparison is what a comparison of a stream with a position showed.
type comparison struct {
	at    broker.StreamPosition
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
func (a *verifier) compare(ctx context.Context, places []broker.StreamPosition) []comparison {
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
// checked again, it waits only until one second has passed. Meanwhile it records what searches have
// found. It returns false if ctx ended.
func (a *verifier) waitForCheck(ctx context.Context, looked time.Time) bool {
	timer := time.NewTimer(time.Until(looked.Add(a.relay.cfg.CheckEvery)))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
			return true
		case <-a.recheck:
			return sleep.For(ctx, time.Until(looked.Add(time.Second)))
		case end := <-a.ended:
			a.repairLate(ctx, end)
		}
	}
}

// lossSearch is a search for the events that a stream lost.
type lossSearch struct {
	at    broker.StreamPosition
	state broker.StreamState // when the loss was noticed
	loss  Loss
}

// searchEnd is the end of a search.
type searchEnd struct {
	*lossSearch

	found reconcile.Result
	took  time.Duration
	err   error
}

// noteLoss notes that a stream lost events, and begins to search for them.
func (a *verifier) noteLoss(ctx context.Context, at broker.StreamPosition, s broker.StreamState) {
	r := a.relay
	loss, isNew := r.state.addLoss(at.Stream, s.Verdict)
	if isNew {
		r.metrics.lost(ctx, s.Verdict)
		r.cfg.Logger.ErrorContext(ctx, "broker lost events",
			"stream", at.Stream, "reason", string(s.Verdict), "seq", at.Seq, "last_seq", s.Last.Seq)
	}
	a.buffer.markLost(at.Stream, s.Last)
	a.unrepaired[at.Stream] = &lossSearch{at, s, loss}
	a.search(ctx, a.unrepaired[at.Stream], 0)
}

// search searches for the events that a stream lost, in a goroutine of its own: the complete log may
// have to be read. The search begins after the given wait, and after others have ended if maxSearches
// run. The channel ended gets its result.
func (a *verifier) search(ctx context.Context, s *lossSearch, wait time.Duration) {
	a.searches.Go(func() {
		if !sleep.For(ctx, wait) {
			return
		}
		select {
		case a.room <- struct{}{}:
			defer func() { <-a.room }()
		case <-ctx.Done():
			return
		}
		began := time.Now()
		found, err := guard.Apart(0, func() (reconcile.Result, error) { return reconcile.FindLost(ctx, a.relay.log, a.relay.pub, s.state) }) // even if the publisher calls runtime.Goexit
		select {
		case a.ended <- searchEnd{s, found, time.Since(began), guard.Seal(err)}:
		case <-ctx.Done():
		}
	})
}

// repairFirst waits for the searches that verifyFirst began. It waits no longer than repairPatience after
// the last loss was noticed, unless new messages could hide the loss.
func (a *verifier) repairFirst(ctx context.Context) error {
	var noticed time.Time
	for _, s := range a.unrepaired {
		if s.loss.FoundAt.After(noticed) {
			noticed = s.loss.FoundAt
		}
	}
	left := time.Until(noticed.Add(repairPatience))
	patience := time.NewTimer(left)
	defer patience.Stop()
	for patient := left > 0; a.mustWait(patient); {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		//guard:a-long-search-stops-no-other-stream remove
		case <-patience.C:
			patient = false
		case end := <-a.ended:
			switch {
			//guard:a-stream-that-cannot-be-repaired-stops-no-other = end.err != nil
			case end.err != nil && (!end.staysVisible() || !a.relay.connected()):
				return fmt.Errorf("repair stream %s: %w", end.at.Stream, end.err)
			case end.err != nil && patient:
				a.relay.state.setErr(end.err)
				a.search(ctx, end.lossSearch, time.Second)
				continue
			}
			if err := a.repair(ctx, end, end.found.OutOfOrder); err != nil {
				return err
			}
		}
	}
	for stream := range a.unrepaired {
		a.relay.cfg.Logger.WarnContext(ctx, "lost events not found yet", "stream", stream)
	}
	return nil
}

// mustWait reports whether the term must wait for a search before it publishes. If it is not patient,
// it waits only for losses that new messages could hide.
func (a *verifier) mustWait(patient bool) bool {
	for _, s := range a.unrepaired {
		if patient || !s.staysVisible() {
			return true
		}
	}
	return false
}

// repair records that the relay must publish the events again that a search found: those in the slice
// late by a republish, and the others before newer events. If the search failed, repair begins another.
func (a *verifier) repair(ctx context.Context, end searchEnd, late []int64) error {
	r, loss, stream := a.relay, end.loss, end.at.Stream
	if end.err != nil {
		r.state.setErr(end.err)
		r.cfg.Logger.ErrorContext(ctx, "lost events not found", "stream", stream, "error", end.err)
		a.search(ctx, end.lossSearch, repairAgain)
		return nil
	}
	if err := a.buffer.requeueLost(ctx, stream, without(end.found.Missing, late), late); err != nil {
		return fmt.Errorf("repair stream %s: %w", stream, err)
	}
	delete(a.unrepaired, stream)
	r.metrics.repaired.Add(ctx, int64(len(end.found.Missing)))
	loss.Events, loss.OutOfOrder, loss.RepairedAt = len(end.found.Missing), len(late), time.Now()
	r.state.setRepaired(loss)
	r.cfg.Logger.WarnContext(ctx, "lost events will be published again", "stream", stream,
		"events", loss.Events, "out_of_order", loss.OutOfOrder, "compared", end.found.Compared, "messages", end.found.Messages, "took", end.took.Round(time.Millisecond))
	return nil
}

// repairLate does what repair does, while events are published. Later events of the keys of the lost
// ones may be published already, so all lost events that have a key are late.
func (a *verifier) repairLate(ctx context.Context, end searchEnd) {
	//guard:lost-events-that-are-found-late-are-late = end.found.OutOfOrder
	late := end.found.Keyed
	if err := a.repair(ctx, end, late); err != nil {
		return // the term ends
	}
	a.noteCompared()
	signal(a.recheck) // the stream may have lost events meanwhile
}

// noteCompared notes whether all lost events are found, so that old events may be removed from the log.
func (a *verifier) noteCompared() {
	//guard:nothing-is-removed-while-lost-events-are-not-found 1 true
	a.buffer.compared.Store(len(a.unrepaired) == 0)
}

// staysVisible reports whether later comparisons with the position show the loss too, even if the
// stream stores new messages meanwhile. If one of these took the place of the message at the position,
// and is itself replaced or consumed, the loss could be taken for a message that the stream removed.
func (s *lossSearch) staysVisible() bool {
	//guard:a-loss-that-could-be-forgotten-is-repaired-first true
	return s.state.Verdict == broker.Recreated || s.at.MessageID != "" && s.state.Limits && !s.state.Replaces
}

// without returns the seqs that are not in the slice others. Both are ascending.
func without(seqs, others []int64) []int64 {
	return slices.DeleteFunc(slices.Clone(seqs), func(seq int64) bool {
		_, other := slices.BinarySearch(others, seq)
		return other
	})
}
