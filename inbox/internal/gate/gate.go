// Package gate pauses a handler that fails for nearly all events. During the pause only one
// event at a time runs, as a probe. After the first success all events run again. The
// package does no I/O and calls no handler.
package gate

import (
	"cmp"
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postroom/postroom/inbox/internal/delivery"
)

// Config says when a handler pauses: if at least Events different events were tried within Window,
// and at least four in five of them failed. A failure that is about the event itself does not count.
// New needs all fields except Off: see WithDefaults.
type Config struct {
	Off    bool          // the handler never pauses because of failures
	Events int           // how many different events must be tried within Window
	Window time.Duration // at most MaxWindow

	// Probe is the time from the beginning of the pause to the first probe. The wait doubles before
	// each further probe, up to MaxProbe.
	Probe, MaxProbe time.Duration
}

// WithDefaults returns the config with the default for each field that is zero.
func (c Config) WithDefaults() Config {
	c.Events, c.Window = cmp.Or(c.Events, 20), cmp.Or(c.Window, time.Minute)
	c.Probe = cmp.Or(c.Probe, time.Second)
	c.MaxProbe = max(cmp.Or(c.MaxProbe, time.Minute), c.Probe)
	return c
}

// Validate calls the function add for each fault of the config. Call it before WithDefaults.
func (c Config) Validate(add func(format string, args ...any)) {
	if c.Events < 0 {
		add("Pause.Events is %d, want 0 or more", c.Events)
	}
	if c.Window != 0 && (c.Window < time.Second || c.Window > MaxWindow) {
		add("Pause.Window is %s, want 1s to %s", c.Window, MaxWindow)
	}
}

// MaxWindow is the longest Window.
const MaxWindow = 10 * time.Minute

// Gate decides which events of one handler may run: all events while the gate is open, one at a
// time while the handler is paused because of failures, and none during an operator's pause. It is
// safe for concurrent use.
type Gate struct {
	cfg  Config
	shut atomic.Bool // the handler is paused, because of failures or by an operator

	mu      sync.Mutex
	window  window
	state   State
	probe   string    // the event that runs as a probe, or "": none
	due     time.Time // when the next probe is made
	wait    time.Duration
	back    map[string]int // for each event that failed more than once before the pause: how many attempts it gets back
	waiting int            // the number of workers that wait
	changed chan struct{}  // closed when waiting workers must check again
	changes chan struct{}  // has a value if the state, or the time of the next probe, has changed
}

// State says whether a handler is paused, and why.
type State struct {
	Paused bool             // the handler paused because of failures
	Since  time.Time        // when it paused because of failures
	Cause  delivery.Failure // the last failure before the pause
	Tried  int              // how many events were tried within the window before the pause
	Failed int              // how many of these events failed

	Operator bool // an operator has paused the handler
}

// IsPaused reports whether the handler is paused, because of failures or by an operator.
func (s State) IsPaused() bool { return s.Paused || s.Operator }

// New returns an open gate.
func New(cfg Config) *Gate {
	return &Gate{cfg: cfg, window: newWindow(cfg.Window), changed: make(chan struct{}), changes: make(chan struct{}, 1)}
}

// Changes returns a channel that has a value when the state, or the result of Due, has
// changed.
func (g *Gate) Changes() <-chan struct{} { return g.changes }

// State returns the state.
func (g *Gate) State() State {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.state
}

// IsOpen reports whether all events may run.
func (g *Gate) IsOpen() bool { return !g.shut.Load() }

// Pass is the permission to run one event. Call Leave when the run has ended.
type Pass struct {
	Probe bool // the event runs as a probe: no other event runs
	gate  *Gate
	event string
}

// Enter waits until the event may run. It returns false if ctx ended first.
func (g *Gate) Enter(ctx context.Context, event string) (Pass, bool) {
	if !g.shut.Load() {
		return Pass{}, true
	}
	g.mu.Lock()
	g.waiting++
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		g.waiting--
		g.mu.Unlock()
	}()
	for {
		p, ok, wait, changed := g.try(event)
		if ok {
			return p, true
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return Pass{}, false
		case <-changed:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// Try reports whether the event may run now.
func (g *Gate) Try(event string) (Pass, bool) {
	if !g.shut.Load() {
		return Pass{}, true
	}
	p, ok, _, _ := g.try(event)
	return p, ok
}

// longest limits how long a worker waits before it checks again without a change.
const longest = time.Minute

// try does what Try does. It also returns the longest wait before the next try, and a channel. When
// the channel is closed, the caller should try again at once.
func (g *Gate) try(event string) (p Pass, ok bool, wait time.Duration, changed <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch wait = time.Until(g.due); {
	case !g.state.IsPaused():
		return Pass{}, true, 0, nil
	//guard:a-pause-lets-one-run 2 false
	case g.state.Operator || g.probe != "":
		return Pass{}, false, longest, g.changed
	case wait > 0:
		return Pass{}, false, wait, g.changed
	}
	g.probe = event
	return Pass{Probe: true, gate: g, event: event}, true, 0, nil
}

// Leave ends the run of an event. If a probe ended without a result, for instance because
// the event had been decided before, the next probe may be made at once.
func (p Pass) Leave() {
	if !p.Probe {
		return
	}
	p.gate.mu.Lock()
	defer p.gate.mu.Unlock()
	if p.gate.probe == p.event {
		p.gate.probe = ""
		p.gate.wake()
	}
}

// wants reports whether a probe is due, and no worker has an event for the probe yet.
func (g *Gate) wants() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.state.Paused && !g.state.Operator && g.probe == "" && g.waiting == 0 && time.Until(g.due) <= 0
}

// Allowed returns how many events may be taken at the moment: any number, none, or one as
// a probe.
func (g *Gate) Allowed() int {
	switch {
	case g.IsOpen():
		return math.MaxInt32
	case g.wants():
		return 1
	}
	return 0
}

// Due returns how long it is until the next probe.
func (g *Gate) Due() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return max(time.Until(g.due), 0)
}

// Succeeded notes that an event was handled. A probe that succeeds ends the pause.
func (g *Gate) Succeeded(event string) {
	if g.cfg.Off {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.window.ended(event, time.Now())
	if g.state.Paused && g.probe == event {
		g.state = State{Operator: g.state.Operator}
		g.window.reset()
		g.probe, g.back = "", nil
		g.change()
	}
}

// Failed notes that an event failed, and returns how many attempts the event gets back. The
// failures that caused a pause, and the failures during the pause, together cost an event at most
// one attempt. A failure that is about the event does not count as a failure of the handler.
func (g *Gate) Failed(event string, f delivery.Failure) (back int) {
	if g.cfg.Off {
		return 0
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	if g.state.Paused {
		g.probed(event, !f.IsAboutEvent(), now)
		if f.Permanent {
			return 0
		}
		//guard:attempts-during-a-pause = @2
		back = 1 + g.back[event]
		delete(g.back, event)
		return back
	}
	//guard:bad-events-pause-no-handler false
	if f.IsAboutEvent() {
		g.window.ended(event, now)
		return 0
	}
	g.window.failed(event, now, !f.Snoozed)
	if tried, failed := g.window.counts(now); tried >= g.cfg.Events && 5*failed >= 4*tried {
		g.state.Paused, g.state.Since, g.state.Cause, g.state.Tried, g.state.Failed = true, now, f, tried, failed
		g.wait = g.cfg.Probe
		g.due, g.probe, g.back = now.Add(g.wait), "", g.window.repeated(now)
		g.change()
		back = g.back[event]
		delete(g.back, event)
	}
	return back
}

// probed notes that a probe failed. If the failure is only about the event, it says nothing about
// the cause of the pause, so the next probe may be made at once. If each such probe had to wait, a
// backlog of events that the handler refuses for good would be handled only at the slow rate of
// probes.
func (g *Gate) probed(event string, counts bool, now time.Time) {
	if g.probe != event {
		return
	}
	//guard:a-bad-event-delays-no-probe 1 = @.Add(g.wait)
	g.due, g.probe = now, ""
	if counts {
		g.wait = min(2*g.wait, g.cfg.MaxProbe)
		g.due = now.Add(g.wait)
	}
	g.change()
}

// Back returns the events that failed more than once before the pause, each with the number of
// attempts that it gets back.
func (g *Gate) Back() map[string]int {
	g.mu.Lock()
	defer g.mu.Unlock()
	back := make(map[string]int, len(g.back))
	for event, n := range g.back {
		back[event] = n
	}
	return back
}

// GaveBack notes which events have got their attempts back.
func (g *Gate) GaveBack(events []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, event := range events {
		delete(g.back, event)
	}
}

// SetOperator begins or ends an operator's pause.
func (g *Gate) SetOperator(paused bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.state.Operator != paused {
		g.state.Operator = paused
		g.change()
	}
}

// change tells the waiting workers and the watcher that the state, or the time of the next probe,
// has changed.
func (g *Gate) change() {
	g.shut.Store(g.state.IsPaused())
	g.wake()
	select {
	case g.changes <- struct{}{}:
	default: // the channel changes has a value already
	}
}

// wake makes waiting workers check again.
func (g *Gate) wake() {
	close(g.changed)
	g.changed = make(chan struct{})
}
