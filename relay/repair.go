package relay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/postroom/postroom/broker"
	"github.com/postroom/postroom/eventlog"
	"github.com/postroom/postroom/internal/pause"
	"github.com/postroom/postroom/reconcile"
)

// errLost ends a term in which a stream was found without what it had. The next begins
// with its repair.
var errLost = errors.New("the broker has lost events that it had acknowledged")

// Loss is what a stream was found to have lost.
type Loss struct {
	Stream  string
	Verdict broker.Verdict
	FoundAt time.Time // when it was found

	// Events is how many events of the log were missing, and Repaired when they were
	// noted to be published again, before anything new; zero until then.
	Events     int
	RepairedAt time.Time

	// OutOfOrder is how many of them come after later events of their key, which were
	// published before the loss was noticed. Ordered handlers hold them.
	OutOfOrder int
}

// verifier sees to it that the broker has what it had.
type verifier struct {
	relay   *Relay
	term    eventlog.Term
	buffer  *recordBuffer
	recheck chan struct{} // a stream may not have what it had
}

// verifyFirst compares the streams with what they had when the last relay recorded, before
// anything is published, and has published again what they lost. A stream that does
// not answer does not hold up the others: it is compared when it does.
func (a *verifier) verifyFirst(ctx context.Context) error {
	recorded := a.term.Places()
	a.buffer.markUnverified(recorded)
	if !a.relay.preflight.abilities.Verifies {
		return nil
	}
	for _, at := range recorded {
		state, err := a.relay.pub.Compare(ctx, at)
		switch {
		case err != nil && (ctx.Err() != nil || !a.relay.connected()):
			return err
		case err != nil:
			a.relay.state.setErr(err)
			a.relay.cfg.Logger.WarnContext(ctx, "a stream could not be compared with what it had; it is as soon as it answers", "stream", at.Stream, "error", err)
			signal(a.recheck)
		case state.Verdict == broker.Intact:
			a.buffer.markVerified(at.Stream, state.Last.Created)
		case state.Verdict != broker.Missing: // a stream that is gone may come back, with all that it had
			if err := a.repair(ctx, at, state); err != nil {
				return err
			}
		}
	}
	return nil
}

// verifyLoop compares the streams with their places again and again until ctx ends: a
// cluster can lose what it had while the connection stays. It returns an error where
// one of them did.
func (a *verifier) verifyLoop(ctx context.Context) error {
	if !a.relay.preflight.abilities.Verifies {
		return nil
	}
	for looked := time.Now().Add(-time.Second); a.waitForCheck(ctx, looked); looked = time.Now() {
		for _, at := range a.buffer.lastPositions() {
			state, err := a.relay.pub.Compare(ctx, at)
			switch {
			case err != nil:
				a.relay.cfg.Logger.DebugContext(ctx, "a stream could not be compared with what it had", "stream", at.Stream, "error", err)
				signal(a.recheck)
			case state.Verdict == broker.Intact:
				a.buffer.markVerified(at.Stream, state.Last.Created)
			case state.Verdict != broker.Missing:
				return fmt.Errorf("%w: stream %s: %s", errLost, at.Stream, state.Verdict)
			}
		}
	}
	return nil
}

// waitForCheck waits for Config.CheckEvery since the last look, or for a second where a
// stream is suspected, and reports whether ctx still lives.
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

// repair finds what a stream has lost, and has it published again before anything new.
func (a *verifier) repair(ctx context.Context, at eventlog.Place, s broker.StreamState) error {
	r := a.relay
	loss, isNew := r.state.addLoss(at.Stream, s.Verdict)
	if isNew {
		r.metrics.lost(ctx, s.Verdict)
		r.cfg.Logger.ErrorContext(ctx, "the broker has lost events that it had acknowledged; they are looked for, and published again before anything new",
			"stream", at.Stream, "reason", string(s.Verdict), "seq", at.Seq, "last_seq", s.Last.Seq)
	}
	began := time.Now()
	found, err := reconcile.FindLost(ctx, r.log, r.pub, s)
	if err != nil {
		return fmt.Errorf("repair stream %s: %w", at.Stream, err)
	}
	if err := a.buffer.requeueLost(ctx, found, s.Last); err != nil {
		return fmt.Errorf("repair stream %s: %w", at.Stream, err)
	}
	r.metrics.repaired.Add(ctx, int64(len(found.Missing)))
	loss.Events, loss.OutOfOrder, loss.RepairedAt = len(found.Missing), len(found.OutOfOrder), time.Now()
	r.state.setRepaired(loss)
	r.cfg.Logger.WarnContext(ctx, "what the broker has lost is published again", "stream", at.Stream,
		"events", loss.Events, "late", loss.OutOfOrder, "compared", found.Compared, "messages", found.Messages, "took", time.Since(began).Round(time.Millisecond))
	return nil
}

// inOrder returns what can be published again in the order of its key.
func inOrder(found reconcile.Result) []int64 {
	return slices.DeleteFunc(slices.Clone(found.Missing), func(seq int64) bool {
		_, late := slices.BinarySearch(found.OutOfOrder, seq)
		return late
	})
}
