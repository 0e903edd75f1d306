package inbox_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
)

// orphanGate stops a process before it reads its own claims, and tells when the process has claimed
// events after that.
type orphanGate struct {
	armed                   atomic.Bool
	reached, leave, claimed chan struct{}
	reach, claim            sync.Once
}

func (g *orphanGate) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	if g.armed.Load() && strings.Contains(d.SQL, "Called  by Claims.Orphans.") {
		g.reach.Do(func() {
			close(g.reached)
			<-g.leave
		})
	}
	return ctx
}

func (g *orphanGate) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (g *orphanGate) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (g *orphanGate) TraceBatchQuery(_ context.Context, _ *pgx.Conn, d pgx.TraceBatchQueryData) {
	if strings.Contains(d.SQL, "Called  by Claims.Claim.") {
		select {
		case <-g.leave:
			g.claim.Do(func() { close(g.claimed) })
		default:
		}
	}
}

func (g *orphanGate) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// The answer to a claim was lost, and the process gives back the claims that it does not know of.
// Meanwhile a worker claims the next event of a key. The process does not give back that claim.
func TestClaimOfAWorkerIsNoOrphan(t *testing.T) {
	t.Parallel()
	g := &orphanGate{reached: make(chan struct{}), leave: make(chan struct{}), claimed: make(chan struct{})}
	b := newBenchOn(t, poolWith(t, func(cfg *pgxpool.Config) { cfg.ConnConfig.Tracer, cfg.MaxConns = g, 20 }), devtest.NATS(t))
	first, second := make(chan struct{}), make(chan struct{})
	firstEnds, secondEnds := make(chan struct{}), make(chan struct{})
	var runs atomic.Int32
	b.in.HandleExternal(b.ordered("o", inbox.HoldKey), func(ctx context.Context, a *inbox.Attempt) error {
		if a.Event.ID == "k-00000" {
			close(first)
			<-firstEnds
			return nil
		}
		if runs.Add(1) == 1 {
			close(second)
		}
		_, err := inbox.Step(ctx, a, "pay", func(context.Context, string) ([]byte, error) {
			<-secondEnds
			return nil, nil
		})
		return err
	})
	b.publishKey("k", 0)
	b.publishKey("k", 1)
	b.run()
	<-first
	b.eventuallyStates("o", map[string]string{"k-00000": "claimed", "k-00001": "waiting"})
	g.armed.Store(true)
	inbox.LoseAnswer(b.in)
	<-g.reached
	close(firstEnds) // the worker settles the first event and claims the second
	<-second
	close(g.leave)
	<-g.claimed
	close(secondEnds)
	b.eventually("the second event to be decided", func() bool { return b.heldCount("o") == b.dead("o") })
	if dead, n := b.dead("o"), runs.Load(); dead != 0 || n != 1 {
		t.Errorf("%d events are dead, and the second ran %d times, want none and once", dead, n)
	}
}
