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
)

// State is what a relay is doing.
type State string

// The states of a relay.
const (
	// Stopped: Run is not under way.
	Stopped State = "stopped"

	// Starting: it is finding out whether it can lead, or waits out an outage.
	Starting State = "starting"

	// Standby: another relay leads.
	Standby State = "standby"

	// Leading: it publishes.
	Leading State = "leading"

	// Draining: its context ended, and it finishes what it sent.
	Draining State = "draining"
)

// Health is how a relay is at one moment. Times are the process's own, zero for
// what has not happened since Run began.
//
// Wide because it is a report, which one look shows.
type Health struct {
	State State
	Since time.Time // when State began

	// Connected reports whether there is a connection to the broker, where the
	// publisher can tell.
	Connected bool

	// StreamsOKAt is when the streams were last found to be as they should be, with room for
	// events or without.
	StreamsOKAt time.Time

	// Faults are what is wrong with the streams: what the publisher found that
	// Config.Accept does not hold, or an error that matches [broker.ErrNoStream] or
	// [broker.ErrFull].
	Faults []error

	// UnavailableStreams are the names of the streams that take nothing at the moment.
	UnavailableStreams []string

	// Losses are what streams were found to have lost, the last of each.
	Losses []Loss

	// Lag is how far behind the relay was when it was last measured, and
	// Measured is when. Only a leader measures.
	Lag           eventlog.Backlog
	LagMeasuredAt time.Time

	// RecordedAt is when this relay last recorded progress or renewed its lease.
	RecordedAt time.Time

	// Err is what last went wrong, and ErrAt when. It stays after it was
	// survived.
	Err   error
	ErrAt time.Time

	taken time.Time
	lease time.Duration
}

// Live returns nil while Run is under way. Where it is not, nothing but a new
// start helps. An outage does not make a relay dead: it waits.
func (h Health) Live() error {
	if h.State == Stopped || h.State == "" {
		return errors.New("the relay does not run")
	}
	return nil
}

// Ready returns nil for a relay that does its part: it is connected, it found
// its streams as they should be at least once since Run began, and it leads and
// recorded within its lease, or it stands by. Otherwise it says why not.
func (h Health) Ready() error {
	quiet := h.taken.Sub(h.RecordedAt)
	switch {
	case h.State != Leading && h.State != Standby && h.Err != nil:
		return fmt.Errorf("the relay is %s: %w", h.State, h.Err)
	case h.State != Leading && h.State != Standby:
		return fmt.Errorf("the relay is %s", h.State)
	case !h.Connected:
		return errors.New("no connection to the broker")
	case h.StreamsOKAt.IsZero() && len(h.Faults) > 0:
		return errors.Join(h.Faults...)
	case h.StreamsOKAt.IsZero():
		return errors.New("the streams could not be checked yet")
	case h.State == Leading && quiet > h.lease:
		return fmt.Errorf("the relay leads and has recorded nothing for %s", quiet.Round(time.Millisecond))
	}
	return nil
}

// Health returns how the relay is. It does no I/O and may be called at any
// time, by anyone.
func (r *Relay) Health() Health {
	h := r.state.snapshot()
	h.Connected = r.connected()
	h.lease = max(h.lease, r.cfg.Lease)
	return h
}

func (r *Relay) connected() bool { return r.pub.Connected() }

// healthState is what Health tells.
type healthState struct {
	mu     sync.Mutex
	health Health
	passed bool // nothing refused the relay since Run began
}

// watch keeps the health state while Run is under way, and returns what ends that.
func (r *Relay) watch(ctx context.Context) (end func()) {
	r.state.reset()
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		r.preflight.watch(ctx)
		r.state.setState(Draining)
	})
	watching.Go(func() { r.measure(ctx) })
	return func() {
		cancel()
		watching.Wait()
		r.state.setState(Stopped)
	}
}

// reset forgets the former Run.
func (v *healthState) reset() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.health, v.passed = Health{State: Starting, Since: time.Now()}, false
}

// setState notes a state. Draining ends only with Run.
func (v *healthState) setState(s State) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.health.State == s || v.health.State == Draining && s != Stopped {
		return
	}
	v.health.State, v.health.Since, v.health.UnavailableStreams = s, time.Now(), nil
	if s == Leading {
		v.health.RecordedAt = v.health.Since // the lease was taken just now
	}
}

// beginTerm notes that a term begins, and for how long its lease lasts.
func (v *healthState) beginTerm(lease time.Duration) {
	v.setState(Leading)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.health.lease = lease
}

func (v *healthState) setRecorded() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.health.RecordedAt = time.Now()
}

// setUnavailable notes which streams take nothing.
func (v *healthState) setUnavailable(streams []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.health.UnavailableStreams = streams
}

// addLoss notes that a stream lost something, and reports whether that is news: a repair
// that failed is begun again.
func (v *healthState) addLoss(stream string, verdict broker.Verdict) (loss Loss, isNew bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	i := slices.IndexFunc(v.health.Losses, func(l Loss) bool { return l.Stream == stream })
	if i >= 0 && v.health.Losses[i].Verdict == verdict && v.health.Losses[i].RepairedAt.IsZero() {
		return v.health.Losses[i], false
	}
	if i >= 0 {
		v.health.Losses = slices.Delete(v.health.Losses, i, i+1)
	}
	loss = Loss{Stream: stream, Verdict: verdict, FoundAt: time.Now()}
	v.health.Losses = append(v.health.Losses, loss)
	return loss, true
}

// setRepaired notes the end of a repair.
func (v *healthState) setRepaired(loss Loss) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for i := range v.health.Losses {
		if v.health.Losses[i].Stream == loss.Stream {
			v.health.Losses[i] = loss
		}
	}
}

func (v *healthState) setLag(b eventlog.Backlog) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.health.Lag, v.health.LagMeasuredAt = b, time.Now()
}

func (v *healthState) setErr(err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.health.Err, v.health.ErrAt = err, time.Now()
}

// setFaults notes the faults of a look at the streams, and reports whether they are
// others than before. A relay without any before has nothing to report.
func (v *healthState) setFaults(faults []error) (changed bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	same := slices.EqualFunc(v.health.Faults, faults, func(a, b error) bool { return a.Error() == b.Error() })
	v.health.Faults, v.passed = faults, true
	if !slices.ContainsFunc(faults, func(f error) bool { return !errors.Is(f, broker.ErrFull) }) { // room is no matter of the set-up
		v.health.StreamsOKAt = time.Now()
	}
	return !same
}

func (v *healthState) passedCheck() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.passed
}

func (v *healthState) hasFaults() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.health.Faults) > 0
}

func (v *healthState) snapshot() Health {
	v.mu.Lock()
	defer v.mu.Unlock()
	h := v.health
	h.Faults, h.UnavailableStreams, h.Losses = slices.Clone(h.Faults), slices.Clone(h.UnavailableStreams), slices.Clone(h.Losses)
	h.taken = time.Now()
	if h.State == "" {
		h.State = Stopped
	}
	return h
}

// healthTerm is a term whose recordings the health state note.
type healthTerm struct {
	eventlog.Term

	state *healthState
}

// Renew renews, as [eventlog.Term] describes.
func (o healthTerm) Renew(ctx context.Context, lease time.Duration) error {
	err := o.Term.Renew(ctx, lease)
	if err == nil {
		o.state.setRecorded()
	}
	return err
}

// Record records, as [eventlog.Term] describes.
func (o healthTerm) Record(ctx context.Context, p eventlog.Progress) error {
	err := o.Term.Record(ctx, p)
	if err == nil {
		o.state.setRecorded()
	}
	return err
}

// Lag returns how far behind the relay is, as its log says now: whoever leads. It asks the
// database, and is safe for concurrent use; [Relay.Health] has what was measured last.
func (r *Relay) Lag(ctx context.Context) (eventlog.Backlog, error) { return r.log.Backlog(ctx) }
