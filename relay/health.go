package relay

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/relay/broker"
)

// State is what a relay does at the moment.
type State string

// The states of a relay.
const (
	// Stopped means that Run has not been called, or has returned.
	Stopped State = "stopped"

	// Starting means that the relay checks whether it can lead, or waits until an outage ends.
	Starting State = "starting"

	// Standby means that another relay leads.
	Standby State = "standby"

	// Paused means that an operator has paused the relays of the log.
	Paused State = "paused"

	// Leading means that the relay publishes.
	Leading State = "leading"

	// Draining means that the relay's context ended, and the relay waits for the
	// acknowledgements of what it sent.
	Draining State = "draining"
)

// Health describes a relay at one moment. Times are by the process's clock. The time of something
// that has not happened since Run began is zero. It is a [postroom.Health].
type Health struct {
	State State
	Since time.Time // when State began

	// Connected reports whether there is a connection to the broker, as far as the publisher knows.
	Connected bool

	// StreamsOKAt is when a check of the streams last found no fault. A stream without room
	// for more events ([broker.ErrFull]) does not count as a fault here.
	StreamsOKAt time.Time

	// Faults are the faults of the streams: risks that Config.AcceptRisks does not list, and
	// errors that match [broker.ErrNoStream] or [broker.ErrFull].
	Faults []error

	// UnavailableStreams are the names of the streams that take no events at the moment.
	UnavailableStreams []string

	// Losses has the last loss of each stream that lost events.
	Losses []Loss

	// Lag is how far behind the relay was at LagMeasuredAt. Only a leader measures it.
	Lag           Lag
	LagMeasuredAt time.Time

	// RecordedAt is when this relay last recorded progress or renewed its lease.
	RecordedAt time.Time

	// Err is the last error, and ErrAt is its time. Both stay set after the relay has recovered.
	Err   error
	ErrAt time.Time

	taken    time.Time
	lease    time.Duration
	measured eventlog.Lag // Lag, and what only the gauges report
}

// Live returns nil while Run is running. If it returns an error, restart the process.
// During an outage it returns nil: the relay waits until the outage ends.
func (h Health) Live() error {
	if h.State == Stopped || h.State == "" {
		return errors.New("the relay does not run")
	}
	return nil
}

// Ready returns nil if the relay works, and otherwise the reason why not. The relay works if it is
// connected, a check of its streams has passed since Run began, and it leads, is on standby or is
// paused. A leader must have recorded progress or renewed its lease within the time of the lease.
func (h Health) Ready() error {
	quiet := h.taken.Sub(h.RecordedAt)
	works := h.State == Leading || h.State == Standby || h.State == Paused
	switch {
	case !works && h.Err != nil:
		return fmt.Errorf("the relay is %s: %w", cmp.Or(h.State, Stopped), h.Err)
	case !works:
		return fmt.Errorf("the relay is %s", cmp.Or(h.State, Stopped))
	case !h.Connected:
		return errors.New("no connection to the broker")
	case h.StreamsOKAt.IsZero() && len(h.Faults) > 0:
		return errors.Join(h.Faults...)
	case h.StreamsOKAt.IsZero():
		return errors.New("the streams were not checked yet")
	case h.State == Leading && quiet > h.lease:
		return fmt.Errorf("the relay leads and has recorded nothing for %s", quiet.Round(time.Millisecond))
	}
	return nil
}

// MarshalJSON encodes the health as an object. Its names are those of the fields, with underscores.
// Errors are texts, and Age is age_seconds.
func (h Health) MarshalJSON() ([]byte, error) {
	type loss struct {
		Stream     string         `json:"stream"`
		Verdict    broker.Verdict `json:"verdict"`
		FoundAt    time.Time      `json:"found_at"`
		Events     int            `json:"events"`
		RepairedAt time.Time      `json:"repaired_at,omitzero"`
		OutOfOrder int            `json:"out_of_order"`
	}
	type lag struct {
		Age       float64 `json:"age_seconds"`
		Events    int64   `json:"events"`
		Appended  int64   `json:"appended"`
		Scheduled int64   `json:"scheduled"`
		Retrying  int64   `json:"retrying"`
		Waiting   int64   `json:"waiting"`
		Dead      int64   `json:"dead"`
	}
	type text struct {
		State              State     `json:"state"`
		Since              time.Time `json:"since,omitzero"`
		Connected          bool      `json:"connected"`
		Faults             []string  `json:"faults,omitempty"`
		RecordedAt         time.Time `json:"recorded_at,omitzero"`
		Err                string    `json:"err,omitempty"`
		ErrAt              time.Time `json:"err_at,omitzero"`
		StreamsOKAt        time.Time `json:"streams_ok_at,omitzero"`
		UnavailableStreams []string  `json:"unavailable_streams,omitempty"`
		Losses             []loss    `json:"losses,omitempty"`
		Lag                *lag      `json:"lag,omitempty"`
		LagMeasuredAt      time.Time `json:"lag_measured_at,omitzero"`
	}
	t := text{
		State: h.State, Since: h.Since, Connected: h.Connected, RecordedAt: h.RecordedAt, ErrAt: h.ErrAt,
		StreamsOKAt: h.StreamsOKAt, UnavailableStreams: h.UnavailableStreams, LagMeasuredAt: h.LagMeasuredAt,
	}
	for _, fault := range h.Faults {
		t.Faults = append(t.Faults, fault.Error())
	}
	for _, l := range h.Losses {
		t.Losses = append(t.Losses, loss(l))
	}
	if h.Err != nil {
		t.Err = h.Err.Error()
	}
	if l := h.Lag; !h.LagMeasuredAt.IsZero() {
		t.Lag = &lag{l.Age.Seconds(), l.Events, l.Appended, l.Scheduled, l.Retrying, l.Waiting, l.Dead}
	}
	return json.Marshal(t) //nolint:wrapcheck // strings, numbers and times
}

// Health returns the state of the relay. It does no I/O and may be called at any time.
func (r *Relay) Health() Health {
	h := r.state.snapshot()
	h.Connected = r.connected()
	h.lease = max(h.lease, r.cfg.Lease)
	return h
}

func (r *Relay) connected() bool { return r.pub.Connected() }

// healthState has the values that Health returns.
type healthState struct {
	mu     sync.Mutex
	health Health
	passed bool // since Run began, a check of the streams found no fault that keeps the relay from starting
}

// watch begins to update the health state during a Run. Call end when Run returns.
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

// reset forgets the last Run.
func (v *healthState) reset() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.health, v.passed = Health{State: Starting, Since: time.Now()}, false
}

// setState sets the state. After Draining, it sets no state but Stopped.
func (v *healthState) setState(s State) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.health.State == s || v.health.State == Draining && s != Stopped {
		return
	}
	v.health.State, v.health.Since, v.health.UnavailableStreams = s, time.Now(), nil
	if s == Leading {
		v.health.RecordedAt = v.health.Since // the relay took the lease just now
	}
}

// beginTerm notes that a term begins, and the length of its lease.
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

// setUnavailable sets which streams take no events.
func (v *healthState) setUnavailable(streams []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.health.UnavailableStreams = streams
}

// addLoss adds the loss of a stream. isNew is false if the repair of the same loss failed
// before and starts again.
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

// setRepaired stores the result of a repair.
func (v *healthState) setRepaired(loss Loss) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for i := range v.health.Losses {
		if v.health.Losses[i].Stream == loss.Stream {
			v.health.Losses[i] = loss
		}
	}
}

func (v *healthState) setLag(b eventlog.Lag) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.health.Lag, v.health.measured, v.health.LagMeasuredAt = newLag(b), b, time.Now()
}

func (v *healthState) setErr(err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.health.Err, v.health.ErrAt = err, time.Now()
}

// setFaults stores the faults that a check of the streams found, and reports whether they
// differ from those of the last check.
func (v *healthState) setFaults(faults []error) (changed bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	same := slices.EqualFunc(v.health.Faults, faults, func(a, b error) bool { return a.Error() == b.Error() })
	v.health.Faults, v.passed = faults, true
	if !slices.ContainsFunc(faults, func(f error) bool { return !errors.Is(f, broker.ErrFull) }) { // a full stream is not a fault of the set-up
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

// healthTerm notes in the health state when its term recorded progress or renewed its lease.
type healthTerm struct {
	eventlog.Term

	state *healthState
}

// Renew is described in [eventlog.Term].
func (o healthTerm) Renew(ctx context.Context, lease time.Duration) error {
	err := o.Term.Renew(ctx, lease)
	if err == nil {
		o.state.setRecorded()
	}
	return err
}

// Record is described in [eventlog.Term].
func (o healthTerm) Record(ctx context.Context, p eventlog.Progress) error {
	err := o.Term.Record(ctx, p)
	if err == nil {
		o.state.setRecorded()
	}
	return err
}
