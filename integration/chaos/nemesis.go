//go:build linux || darwin

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/postroom/postroom/integration/chaos/internal/workload"
	"github.com/postroom/postroom/integration/checker"
	"github.com/postroom/postroom/integration/rig"
	"github.com/postroom/postroom/internal/childproc"
)

// A nemesis injects faults. It ends each fault before the next fault of the same lane.
type nemesis struct {
	*stage

	ctx context.Context // ends when the time is up; after that, nemesis still ends the faults that have begun
}

// faults has the faults that are still to be injected, and the number of those that were.
type faults struct {
	plan     [lanes][]fault // the rest of the plan
	injected atomic.Int64

	load
}

// load is the work that the rig adds just before faults strike.
type load struct {
	bursts    sync.Mutex // only one burst runs at a time
	lastBurst time.Time
	instance  string // the id of the handlers' database
}

// torment carries the plan out until ctx ends. If it is called again, it continues with the rest of
// the plan. Before it returns, it ends every fault.
func torment(ctx context.Context, s *stage) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	n := &nemesis{stage: s, ctx: ctx}
	var all sync.WaitGroup
	for lane := range s.plan {
		all.Go(func() {
			for len(s.plan[lane]) > 0 {
				f := s.plan[lane][0]
				if !childproc.Sleep(ctx, f.after) {
					return
				}
				s.plan[lane] = s.plan[lane][1:]
				if err := n.inject(f); err != nil {
					fail(fmt.Errorf("%s: %w", f.kind.name, err))
					return
				}
			}
		})
	}
	all.Wait()
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.DeadlineExceeded) && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

func (n *nemesis) inject(f fault) error {
	r := checker.Record{What: checker.Fault, Phase: checker.Invoked, Shape: f.kind.name, ID: fmt.Sprintf("%s for %s", f.kind.name, f.lasts.Round(time.Millisecond))}
	n.burst(f)
	r.Counts = n.inFlight()
	n.journal.Note(r)
	if err := f.kind.do(n, f); err != nil {
		return err
	}
	r.Phase = checker.OK
	n.journal.Note(r)
	n.injected.Add(1)
	return nil
}

// pause waits while a fault lasts.
func (n *nemesis) pause(f fault) { childproc.Sleep(n.ctx, f.lasts) }

// work returns a context for the end of a fault. It does not end together with n.ctx.
func (n *nemesis) work() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(n.ctx), 2*rig.Patience)
}

// victim chooses a member of one of the given kinds.
func (n *nemesis) victim(f fault, kinds ...string) *member {
	of := n.crew.of(kinds...)
	return of[f.luck%uint64(len(of))]
}

// hit chooses the process that a fault affects, such as a relay for "kill relay".
func (n *nemesis) hit(f fault) *member {
	switch f.kind.name {
	case "kill producer", "stop producer":
		return n.victim(f, workload.Producers)
	case "kill relay", "stop relay":
		return n.victim(f, workload.Relays)
	case "kill operator", "stop operator":
		return n.victim(f, workload.Operators)
	}
	return n.victim(f, workload.Handlers()...)
}

func (n *nemesis) kill(f fault) error {
	return n.killed(f, n.hit(f))
}

// killed kills processes at the same time, and then starts new processes in their places. If faults
// of two lanes affect the same processes, the faults happen one after the other.
func (n *nemesis) killed(f fault, all ...*member) error {
	for _, m := range all { // each fault locks members in the order of the crew, so that two faults cannot deadlock
		m.struck.Lock()
		defer m.struck.Unlock()
	}
	for _, m := range all {
		m.Kill()
	}
	n.pause(f)
	var errs []error
	for _, m := range all {
		errs = append(errs, m.Start())
	}
	return errors.Join(errs...)
}

func (n *nemesis) stop(f fault) error { return n.stopped(f, n.hit(f)) }

// stopped stops a process for a while.
func (n *nemesis) stopped(f fault, m *member) error {
	m.struck.Lock()
	defer m.struck.Unlock()
	child := m.Now()
	if err := child.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	n.pause(f)
	return child.Signal(syscall.SIGCONT)
}
