package inbox

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/postroom/postroom/inbox/internal/upkeep"
)

// State is what an inbox does at the moment.
type State string

// The states of an inbox.
const (
	// Stopped means that Run has not been called, or has returned.
	Stopped State = "stopped"

	// Starting means that the inbox checks whether it can start, or waits until an outage ends.
	Starting State = "starting"

	// Running means that the inbox handles events.
	Running State = "running"

	// Draining means that the inbox's context ended, and the inbox waits for running handlers.
	Draining State = "draining"
)

// Health describes an inbox at one moment. Times are by the process's clock. The time of something
// that has not happened since Run began is zero. It is a [postroom.Health].
type Health struct {
	State State
	Since time.Time // when State began

	// Connected reports whether there is a connection to the broker. It is true if no handler reads a
	// stream.
	Connected bool

	// Faults has an error for each handler that could not read its stream at its last try.
	Faults []error

	// Paused are the names of the handlers that are paused in this process, by an operator or
	// because of failures, in the order of the alphabet.
	Paused []string

	// RecordedAt is when this process last wrote its sign of life to the database.
	RecordedAt time.Time

	// Err is the last error of the inbox's own work, and ErrAt is its time. Both stay set after the
	// inbox has recovered. Errors of handlers are not among them.
	Err   error
	ErrAt time.Time

	began, taken time.Time // when Run began, and when this Health was made
}

// Live returns nil while Run is running. If it returns an error, restart the process. During an outage
// it returns nil: the inbox waits until the outage ends.
func (h Health) Live() error {
	if h.State == Stopped || h.State == "" {
		return errors.New("the inbox does not run")
	}
	return nil
}

// quietAfter is how old a sign of life may be: three of them are missing then.
const quietAfter = 3 * upkeep.BeatEvery

// Ready returns nil if the inbox works, and otherwise the reason why not. The inbox works if it is
// running and connected, and has written a sign of life within the last 30 seconds. A handler that is
// paused, or that cannot read its stream, does not count, because the other handlers work.
func (h Health) Ready() error {
	quiet := h.taken.Sub(h.RecordedAt)
	switch {
	case h.State != Running && h.Err != nil:
		return fmt.Errorf("the inbox is %s: %w", cmp.Or(h.State, Stopped), h.Err)
	case h.State != Running:
		return fmt.Errorf("the inbox is %s", cmp.Or(h.State, Stopped))
	case !h.Connected:
		return errors.New("no connection to the broker")
	case quiet > quietAfter:
		return fmt.Errorf("the inbox has not reached its database for %s", quiet.Round(time.Second))
	}
	return nil
}

// MarshalJSON encodes the health as an object. Its names are those of the fields, with underscores.
// Errors are texts.
func (h Health) MarshalJSON() ([]byte, error) {
	t := struct {
		State      State     `json:"state"`
		Since      time.Time `json:"since,omitzero"`
		Connected  bool      `json:"connected"`
		Faults     []string  `json:"faults,omitempty"`
		Paused     []string  `json:"paused,omitempty"`
		RecordedAt time.Time `json:"recorded_at,omitzero"`
		Err        string    `json:"err,omitempty"`
		ErrAt      time.Time `json:"err_at,omitzero"`
	}{State: h.State, Since: h.Since, Connected: h.Connected, Paused: h.Paused, RecordedAt: h.RecordedAt, ErrAt: h.ErrAt}
	for _, fault := range h.Faults {
		t.Faults = append(t.Faults, fault.Error())
	}
	if h.Err != nil {
		t.Err = h.Err.Error()
	}
	return json.Marshal(t) //nolint:wrapcheck // strings and times
}

// Health returns the state of the inbox. It does no I/O, and may be called at any time after the last
// handler is registered.
func (in *Inbox) Health() Health {
	h := in.state.snapshot()
	h.Connected = in.nc == nil || in.nc.IsConnected() || !slices.ContainsFunc(in.loops, func(c *loop) bool { return c.sub.Stream != "" })
	if at := in.node.SetAt(); !h.began.IsZero() && at.After(h.began) {
		h.RecordedAt = at
	}
	for handler, g := range in.gates {
		if g.State().IsPaused() {
			h.Paused = append(h.Paused, handler)
		}
	}
	slices.Sort(h.Paused)
	return h
}

// healthState has the values that Health returns. It is safe for concurrent use.
type healthState struct {
	mu     sync.Mutex
	health Health
	faults map[string]error // by handler
}

// begin forgets the last Run. Call drain when the context of this Run has ended.
func (v *healthState) begin() (drain func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	began := time.Now()
	v.health, v.faults = Health{State: Starting, Since: began, began: began}, make(map[string]error)
	return func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		if v.health.State == Stopped || !v.health.began.Equal(began) { // Run has returned, and perhaps begun again
			return
		}
		v.health.State, v.health.Since = Draining, time.Now()
	}
}

// set sets the state. After Draining, it sets no state but Stopped.
func (v *healthState) set(s State) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.health.State == Draining && s != Stopped {
		return
	}
	v.health.State, v.health.Since = s, time.Now()
}

// failed notes an error.
func (v *healthState) failed(err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.health.Err, v.health.ErrAt = err, time.Now()
}

// reads notes whether a handler reads its stream. The error says why it does not.
func (v *healthState) reads(handler string, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if err == nil {
		delete(v.faults, handler)
		return
	}
	v.faults[handler] = fmt.Errorf("handler %s: %w", handler, err)
}

func (v *healthState) snapshot() Health {
	v.mu.Lock()
	defer v.mu.Unlock()
	h := v.health
	h.State, h.taken = cmp.Or(h.State, Stopped), time.Now()
	for _, handler := range slices.Sorted(maps.Keys(v.faults)) {
		h.Faults = append(h.Faults, v.faults[handler])
	}
	return h
}
