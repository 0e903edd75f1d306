package inbox

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox/internal/ledger"
	"github.com/postroom/postroom/internal/guard"
)

// beatEvery is how often a process says that it lives.
const beatEvery = 10 * time.Second

// node is this process among those that run handlers. It implements
// postroom.Runner.
type node struct {
	inbox *Inbox
	id    uuid.UUID
	name  string

	instance atomic.Pointer[string] // the id of this Postroom; set before anything else runs
}

func newNode(in *Inbox) *node {
	n := &node{inbox: in, id: uuid.New()}
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "host"
	}
	n.name = fmt.Sprintf("%s/%d/%s", guard.Clean(host, 200), os.Getpid(), n.id.String()[:8])
	return n
}

// Run says that this process lives until ctx ends.
func (n *node) Run(ctx context.Context) error {
	for failures := 0; ctx.Err() == nil; {
		// One that was cut off could still be carried out after the row is removed.
		if err := n.beat(context.WithoutCancel(ctx)); err != nil && ctx.Err() == nil {
			failures++
			n.inbox.cfg.Logger.DebugContext(ctx, "sign of life not written", "error", err, "failures", failures)
		}
		sleep(ctx, beatEvery)
	}
	n.leave(ctx)
	return nil
}

// beat writes the sign of life, sets the clock, and reads who this Postroom is.
func (n *node) beat(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, ledger.WritePatience)
	defer cancel()
	before := time.Now()
	at, instance, err := n.inbox.db.Beat(ctx, n.id, n.name, n.inbox.names(), n.inbox.cfg.Ledger, n.inbox.cfg.AgeGate)
	if err != nil {
		return err
	}
	n.instance.Store(&instance)
	n.inbox.clock.set(at.Sub(before.Add(time.Since(before) / 2)))
	return nil
}

func (n *node) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ledger.RollbackPatience)
	defer cancel()
	if err := n.inbox.db.Leave(ctx, n.id); err != nil {
		n.inbox.cfg.Logger.DebugContext(ctx, "row of this process not removed; it will be forgotten", "error", err)
	}
}

// listUnknown warns of events that are held for handlers that nobody runs.
func (n *node) listUnknown(ctx context.Context) {
	all, err := n.inbox.db.Unknown(ctx, n.inbox.names())
	if err != nil {
		n.inbox.cfg.Logger.WarnContext(ctx, "handlers that nobody runs could not be looked for", "error", n.inbox.advise(err))
	}
	for _, u := range all {
		n.inbox.cfg.Logger.WarnContext(ctx, "no process runs this handler: what is held for it stays, and new events do not reach it; was it renamed?",
			"handler", u.Handler, "held", u.Held)
	}
}

// checkLedger compares this process with the others that live.
func (in *Inbox) checkLedger(ctx context.Context) error {
	other, err := in.db.Disagrees(ctx, in.cfg.Ledger, in.cfg.AgeGate)
	if other == nil {
		return err
	}
	return postroom.Refuse(fmt.Errorf("%w: %s has Ledger %s and AgeGate %s, this one %s and %s: a process must keep rows for longer than any other trusts them",
		ErrLedger, other.Name, other.Ledger, other.Gate, in.cfg.Ledger, in.cfg.AgeGate))
}

// clock is the database's, as far as this process knows.
type clock struct{ ahead atomic.Int64 }

func (c *clock) set(ahead time.Duration) { c.ahead.Store(int64(ahead)) }

func (c *clock) now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }
