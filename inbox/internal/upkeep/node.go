// Package upkeep keeps a process's place among those that run handlers, and the ledger's
// size: it writes signs of life, takes the database's time from them, and removes rows that
// have expired. It knows no broker and no handler.
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
	"github.com/postroom/postroom/internal/guard"
	"github.com/postroom/postroom/internal/pause"
)

// beatEvery is how often a process says that it lives.
const beatEvery = 10 * time.Second

// Processes are the processes of a database. Each call has a time of its own.
type Processes interface {
	// Beat writes a process's sign of life, and returns what it learns by that.
	Beat(ctx context.Context, id uuid.UUID, name string, handlers []string, dedupeWindow, maxEventAge time.Duration) (delivery.Beat, error)

	// Leave removes a process.
	Leave(ctx context.Context, id uuid.UUID) error

	// Unknown returns the handlers, besides the given ones, that nobody runs.
	Unknown(ctx context.Context, handlers []string) ([]delivery.Orphaned, error)
}

// Node is this process among those that run handlers. It implements
// postroom.Runner.
type Node struct {
	Clock

	cfg  NodeConfig
	id   uuid.UUID
	name string

	last atomic.Pointer[delivery.Beat] // set before anything else runs
}

// NodeConfig is what a node works with.
type NodeConfig struct {
	Processes                 Processes
	Handlers                  func() []string
	DedupeWindow, MaxEventAge time.Duration
	Log                       *slog.Logger
	Advise                    func(error) error // adds what to do about it
}

// NewNode returns this process, under a name of its own.
func NewNode(cfg NodeConfig) *Node {
	n := &Node{cfg: cfg, id: uuid.New()}
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "host"
	}
	n.name = fmt.Sprintf("%s/%d/%s", guard.Clean(host, 200), os.Getpid(), n.id.String()[:8])
	return n
}

// Name is the name of this process.
func (n *Node) Name() string { return n.name }

// Instance is the id of this Postroom, once the process has said that it lives.
func (n *Node) Instance() string { return n.last.Load().Instance }

// mostSkew is how far the clock of a producer's database may be ahead of the ledger's.
const mostSkew = time.Hour

// TrustsFrom is the time since which the ledger has a row of each event that was logged and
// decided: MaxEventAge ago, or later if rows were removed that this process would have kept.
func (n *Node) TrustsFrom() time.Time {
	from, expired := n.Now().Add(-n.cfg.MaxEventAge), n.last.Load().ExpiredBefore
	if expired.IsZero() {
		return from
	}
	if expired = expired.Add(min(n.cfg.DedupeWindow/100, mostSkew)); expired.After(from) { // MaxEventAge leaves a hundredth, too
		return expired
	}
	return from
}

// Run says that this process lives until ctx ends.
func (n *Node) Run(ctx context.Context) error {
	for failures := 0; ctx.Err() == nil; {
		// One that was cut off could still be carried out after the row is removed.
		if err := n.Beat(context.WithoutCancel(ctx)); err != nil && ctx.Err() == nil {
			failures++
			n.cfg.Log.DebugContext(ctx, "sign of life not written", "error", err, "failures", failures)
		}
		pause.For(ctx, beatEvery)
	}
	n.leave(ctx)
	return nil
}

// Beat writes the sign of life, sets the clock, and reads who this Postroom is and what of
// the ledger was removed.
func (n *Node) Beat(ctx context.Context) error {
	before := time.Now()
	beat, err := n.cfg.Processes.Beat(ctx, n.id, n.name, n.cfg.Handlers(), n.cfg.DedupeWindow, n.cfg.MaxEventAge)
	if err != nil {
		return err
	}
	n.last.Store(&beat)
	n.set(beat.At.Sub(before.Add(time.Since(before) / 2)))
	return nil
}

func (n *Node) leave(ctx context.Context) {
	if err := n.cfg.Processes.Leave(context.WithoutCancel(ctx), n.id); err != nil {
		n.cfg.Log.DebugContext(ctx, "row of this process not removed; it will be forgotten", "error", err)
	}
}

// ListUnknown warns of events that are held for handlers that nobody runs.
func (n *Node) ListUnknown(ctx context.Context) {
	all, err := n.cfg.Processes.Unknown(ctx, n.cfg.Handlers())
	if err != nil {
		n.cfg.Log.WarnContext(ctx, "cannot look for handlers without a process", "error", n.cfg.Advise(err))
	}
	for _, u := range all {
		n.cfg.Log.WarnContext(ctx, "no process runs this handler: what is held for it stays, and new events do not reach it; was it renamed?",
			"handler", u.Handler, "held", u.Held)
	}
}

// Clock is the database's, as far as this process knows.
type Clock struct{ ahead atomic.Int64 }

func (c *Clock) set(ahead time.Duration) { c.ahead.Store(int64(ahead)) }

// Now is the time.
func (c *Clock) Now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }
