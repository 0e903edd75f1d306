// Package upkeep keeps the process registered in the database. It writes signs of life, and with
// each of them reads the database's time. It also asks which handlers operators have paused, and
// removes expired rows from the table inbox. It uses no broker and no handler.
package upkeep

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/internal/clock"
	"github.com/postroom/postroom/internal/guard"
	"github.com/postroom/postroom/internal/sleep"
)

// BeatEvery is how often a process writes a sign of life.
const BeatEvery = 10 * time.Second

// Processes reads and writes the list of processes in the database. Each call has its own
// time limit.
type Processes interface {
	// Beat writes a process's sign of life, and returns what the process learns from the database.
	Beat(ctx context.Context, id uuid.UUID, s delivery.Sign) (delivery.Beat, error)

	// Leave removes a process.
	Leave(ctx context.Context, id uuid.UUID) error

	// Unknown returns handlers that have decided events and that no process runs. It leaves out the
	// given handlers.
	Unknown(ctx context.Context, handlers []string) ([]delivery.OrphanHandler, error)
}

// Node is this process in the list of processes that run handlers. It implements
// postroom.Runner.
type Node struct {
	Clock

	cfg  NodeConfig
	id   uuid.UUID
	name string

	last atomic.Pointer[delivery.Beat] // set before any other part of the inbox runs
}

// NodeConfig has what a node needs.
type NodeConfig struct {
	Processes    Processes
	Windows      func() []delivery.Window // the windows of the node's handlers
	Paused       func() string            // the handlers that paused because of failures, as JSON
	DedupeWindow time.Duration            // the window of handlers that do not set their own
	Log          *slog.Logger
	Advise       func(error) error // adds advice to an error
}

// NewNode returns this process, with a new name.
func NewNode(cfg NodeConfig) *Node {
	n := &Node{cfg: cfg, id: uuid.New()}
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "host"
	}
	n.name = fmt.Sprintf("%s/%d/%s", guard.Clean(host, 200), os.Getpid(), n.id.String()[:8])
	return n
}

// Name returns the name of this process.
func (n *Node) Name() string { return n.name }

// Instance returns the id of this Postroom database. It returns "" before the first sign
// of life.
func (n *Node) Instance() string {
	//guard:lag-before-run true
	if beat := n.last.Load(); beat != nil {
		return beat.Instance
	}
	return ""
}

// mostSkew is how far the clock of a producer's database may be ahead of the clock of the
// inbox's database.
const mostSkew = time.Hour

// TrustsFrom returns the time from which on the table inbox is complete for a handler: if an event
// was logged after that time and is decided, the table still has its row. The time is w.Age ago. It
// is later if rows were removed that this process would have kept.
func (n *Node) TrustsFrom(w delivery.Window) time.Time {
	//guard:each-handler-has-its-age 1.1 = -29*24*time.Hour
	from, expired := n.Now().Add(-w.Age), n.last.Load().ExpiredBefore[w.Handler]
	//guard:a-longer-window-trusts-no-removed-time true
	if expired.IsZero() {
		return from
	}
	if expired = expired.Add(min(w.Keep/100, mostSkew)); expired.After(from) { // the sum allows for the skew, and so does from, because w.Age is shorter than w.Keep
		return expired
	}
	return from
}

// Run writes signs of life until ctx ends.
func (n *Node) Run(ctx context.Context) error {
	for failures := 0; ctx.Err() == nil; {
		// The end of ctx must not cancel the statement: a cancelled statement could still take
		// effect after Leave removed the row.
		switch err := n.Beat(context.WithoutCancel(ctx)); {
		case err == nil:
			failures = 0
		case ctx.Err() == nil:
			failures++
			n.cfg.Log.DebugContext(ctx, "sign of life not written", "error", err, "failures", failures)
		}
		sleep.For(ctx, BeatEvery)
	}
	//guard:a-stopping-process-needs-its-rows do n.Leave(ctx); @
	return nil
}

// Beat writes the sign of life. It also sets the clock. It reads the id of this Postroom database,
// and for each handler the time before which inbox rows were removed.
func (n *Node) Beat(ctx context.Context) error {
	before := time.Now()
	beat, err := n.cfg.Processes.Beat(ctx, n.id, n.sign())
	if err != nil {
		return err
	}
	n.last.Store(&beat)
	took := time.Since(before)
	n.set(beat.At.Add(took/2), before.Add(took))
	return nil
}

// sign returns the sign of life.
func (n *Node) sign() delivery.Sign {
	s := delivery.Sign{Name: n.name, Windows: n.cfg.Windows(), Keep: n.cfg.DedupeWindow, Paused: n.cfg.Paused()}
	for _, w := range s.Windows {
		s.Keep = max(s.Keep, w.Keep)
	}
	return s
}

// Leave removes this process. Call it when no handler runs any more.
func (n *Node) Leave(ctx context.Context) {
	if err := n.cfg.Processes.Leave(context.WithoutCancel(ctx), n.id); err != nil {
		n.cfg.Log.DebugContext(ctx, "row of this process not removed, it will expire", "error", err)
	}
}

// ListUnknown logs a warning for each handler that has decided events and that no process runs.
func (n *Node) ListUnknown(ctx context.Context) {
	handlers := []string{} // an empty array, not NULL
	for _, w := range n.cfg.Windows() {
		handlers = append(handlers, w.Handler)
	}
	all, err := n.cfg.Processes.Unknown(ctx, handlers)
	if err != nil {
		n.cfg.Log.WarnContext(ctx, "cannot look for handlers without a process", "error", n.cfg.Advise(err))
	}
	for _, u := range all {
		n.cfg.Log.WarnContext(ctx, "no process runs this handler, its events wait; was it renamed?",
			"handler", u.Handler, "held", u.Held)
	}
}

// Clock is this process's estimate of the database's clock. It is set with each sign of life. If the
// database's clock jumps ahead, the estimate goes on at a steady pace for an hour. Otherwise a wrong
// clock would make all events of the next seconds too old.
type Clock struct {
	watch clock.Watch
	last  atomic.Pointer[reading]
}

// A reading is what the database's clock showed, and when that was by this process's clock.
type reading struct{ shown, at time.Time }

func (c *Clock) set(shown, at time.Time) {
	//guard:the-estimate-of-a-clock-does-not-jump = shown
	believed := c.watch.Look(shown)
	c.last.Store(&reading{believed, at})
}

// SetAt returns when the clock was last set, which is with each sign of life, by this process's clock.
func (c *Clock) SetAt() time.Time {
	if r := c.last.Load(); r != nil {
		return r.at
	}
	return time.Time{}
}

// Now returns the estimated time of the database.
func (c *Clock) Now() time.Time {
	r := c.last.Load()
	if r == nil {
		return time.Now()
	}
	return r.shown.Add(time.Since(r.at))
}
