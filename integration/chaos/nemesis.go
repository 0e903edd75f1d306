//go:build linux || darwin

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"

	"github.com/postroom/postroom/integration/checker"
	"github.com/postroom/postroom/internal/fleet"
)

// nemesis injects faults, and takes each back before its lane goes on.
type nemesis struct {
	*stage

	ctx context.Context // ends when the time is up; what was begun is taken back
}

// load is what the rig adds to the producers' just before faults strike.
type load struct {
	bursts    sync.Mutex // one at a time
	lastBurst time.Time
	instance  string // of the handlers' database
}

// torment works the plan off until ctx ends, and goes on where it stood when it is
// called again. Afterwards everything that it did is taken back.
func (s *stage) torment(ctx context.Context) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	n := &nemesis{stage: s, ctx: ctx}
	var all sync.WaitGroup
	for lane := range s.plan {
		all.Go(func() {
			for len(s.plan[lane]) > 0 {
				f := s.plan[lane][0]
				if !fleet.Sleep(ctx, f.after) {
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
	n.journal.note(r)
	if err := f.kind.do(n, f); err != nil {
		return err
	}
	r.Phase = checker.OK
	n.journal.note(r)
	n.injected.Add(1)
	return nil
}

// pause lets a fault last.
func (n *nemesis) pause(f fault) { fleet.Sleep(n.ctx, f.lasts) }

// work is the time to take a fault back in.
func (n *nemesis) work() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(n.ctx), 2*patience)
}

// victim chooses one of some kinds.
func (n *nemesis) victim(f fault, kinds ...string) *member {
	of := n.crew.of(kinds...)
	return of[f.luck%uint64(len(of))]
}

// hit is the member that a fault of processes means.
func (n *nemesis) hit(f fault) *member {
	switch f.kind.name {
	case "kill producer", "stop producer":
		return n.victim(f, producers)
	case "kill relay", "stop relay":
		return n.victim(f, relays)
	case "kill operator", "stop operator":
		return n.victim(f, operators)
	}
	return n.victim(f, handlers()...)
}

func (n *nemesis) kill(f fault) error {
	return n.killed(f, n.hit(f))
}

// killed kills processes at once, and starts others in their places. Faults of two lanes
// may be about the same ones: they come one after the other then.
func (n *nemesis) killed(f fault, all ...*member) error {
	for _, m := range all { // each fault has them in the order of the crew
		m.struck.Lock()
		defer m.struck.Unlock()
	}
	for _, m := range all {
		m.kill()
	}
	n.pause(f)
	var errs []error
	for _, m := range all {
		errs = append(errs, m.start())
	}
	return errors.Join(errs...)
}

func (n *nemesis) stop(f fault) error { return n.stopped(f, n.hit(f)) }

// stopped stops a process for a while.
func (n *nemesis) stopped(f fault, m *member) error {
	m.struck.Lock()
	defer m.struck.Unlock()
	child := m.now()
	if err := child.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	n.pause(f)
	return child.Signal(syscall.SIGCONT)
}

// anyone is a member that connections are taken from: each kind as often as another.
func (n *nemesis) anyone(f fault) *member {
	luck := rand.New(rand.NewPCG(f.luck, 2)) //nolint:gosec // made from a seed on purpose
	return n.victim(fault{luck: luck.Uint64()}, numbers[luck.IntN(len(numbers))].kind)
}

func (n *nemesis) cut(f fault) error {
	ways := n.net.to(n.anyone(f).job.Process, "")
	for _, way := range ways {
		way.Stop()
	}
	n.pause(f)
	ctx, cancel := n.work()
	defer cancel()
	var errs []error
	for _, way := range ways {
		errs = append(errs, open(ctx, way))
	}
	return errors.Join(errs...)
}

func (n *nemesis) delay(f fault) error {
	latency := fmt.Sprintf(`{"latency": %d, "jitter": %d}`, 20+f.luck%200, f.luck%20)
	return n.poison(f, n.net.to(n.anyone(f).job.Process, ""), false, toxic{"latency", upstream, latency}, toxic{"latency", downstream, latency})
}

// nothing is what a way carries that loses all.
const nothing = `{"timeout": 0}`

func (n *nemesis) halfOpen(f fault) error {
	return n.poison(f, n.net.to(n.anyone(f).job.Process, ""), true, toxic{"timeout", upstream, nothing}, toxic{"timeout", downstream, nothing})
}

func (n *nemesis) loseCommits(f fault) error {
	return n.deafen(f, n.net.to(n.victim(f, producers).job.Process, toPostgres))
}

// loseAcks is for all relays: one of them leads.
func (n *nemesis) loseAcks(f fault) error {
	return n.deafen(f, n.net.toEach(n.crew.of(relays), toNATS))
}

func (n *nemesis) loseToConsumer(f fault) error {
	return n.deafen(f, n.net.to(n.victim(f, handlers()...).job.Process, ""))
}

// deafen has processes send, and hear nothing.
func (n *nemesis) deafen(f fault, ways []*toxiproxy.Proxy) error {
	return n.poison(f, ways, true, toxic{"timeout", downstream, nothing})
}

func (n *nemesis) poison(f fault, ways []*toxiproxy.Proxy, cut bool, toxics ...toxic) error {
	ctx, cancel := n.work()
	defer cancel()
	return poisoned(ctx, ways, toxics, cut, func() { n.pause(f) })
}

func (n *nemesis) killPostgres(f fault) error {
	if err := n.db.server.Kill(); err != nil {
		return err
	}
	n.pause(f)
	ctx, cancel := n.work()
	defer cancel()
	return n.db.restart(ctx)
}

func (n *nemesis) stopPostgres(f fault) error {
	if err := n.db.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	n.pause(f)
	return n.db.signal(syscall.SIGCONT)
}

func (n *nemesis) killNATS(f fault) error {
	return n.withoutNATS(f, []int{int(f.luck % uint64(n.brokers.Len()))}, nil) //nolint:gosec // far below
}

func (n *nemesis) killAllNATS(f fault) error { return n.withoutNATS(f, n.nodes(), nil) }

// nodes are the numbers of all servers.
func (n *nemesis) nodes() (all []int) {
	for i := range n.brokers.Len() {
		all = append(all, i)
	}
	return all
}

// withoutNATS kills servers, does something to what they store, and starts them again.
func (n *nemesis) withoutNATS(f fault, which []int, meanwhile func() error) error {
	for _, i := range which {
		n.brokers.Kill(i)
	}
	n.pause(f)
	ctx, cancel := n.work()
	defer cancel()
	var errs []error
	if meanwhile != nil {
		errs = append(errs, meanwhile())
	}
	for _, i := range which {
		errs = append(errs, n.brokers.Start(ctx, i))
	}
	return errors.Join(errs...)
}

func (n *nemesis) stopNATS(f fault) error {
	node := n.brokers.Node(int(f.luck % uint64(n.brokers.Len()))) //nolint:gosec // far below
	if err := node.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	n.pause(f)
	return node.Signal(syscall.SIGCONT)
}

func (n *nemesis) stepDown(f fault) error {
	_, _ = n.client.nc.Request("$JS.API.STREAM.LEADER.STEPDOWN."+stream, nil, time.Second) // fails where there is no leader just now
	n.pause(f)
	return nil
}

func (n *nemesis) leaseForward(f fault) error {
	return n.leaseClock(f, n.db.shop, "UPDATE postroom.relay SET expires_at = now() - interval '1 second'")
}

func (n *nemesis) leaseBack(f fault) error {
	return n.leaseClock(f, n.db.shop, "UPDATE postroom.relay SET expires_at = expires_at + interval '3 seconds' WHERE isfinite(expires_at)")
}

func (n *nemesis) readerForward(f fault) error {
	return n.leaseClock(f, n.db.books, "UPDATE postroom.subscription SET reader_until = now() - interval '1 second' WHERE reader IS NOT NULL")
}

func (n *nemesis) leaseClock(f fault, d database, sql string) error {
	ctx, cancel := n.work()
	defer cancel()
	err := again(ctx, patience, "change the lease's clock", func(ctx context.Context) error {
		_, err := d.pool.Exec(ctx, sql)
		return err
	})
	n.pause(f)
	return err
}

func (n *nemesis) fillNATS(f fault) error {
	if err := n.natsDisk.fill(); err != nil {
		return err
	}
	n.pause(f)
	// What could not be written breaks a stream until its server is started again.
	err := n.natsDisk.free()
	return errors.Join(err, n.withoutNATS(fault{lasts: f.lasts / 10}, n.nodes(), nil))
}

func (n *nemesis) fillPostgres(f fault) error {
	if err := n.dbDisk.fill(); err != nil {
		return err
	}
	n.pause(f)
	err := n.dbDisk.free()
	ctx, cancel := n.work()
	defer cancel()
	for range 5 {
		if n.db.answers(ctx) {
			return err
		}
	}
	return errors.Join(err, n.db.restart(ctx)) // a server that cannot write its log ends
}

// powerLoss copies what the servers store, lets them work on, and has them wake up with
// the copy: what they acknowledged meanwhile is gone.
func (n *nemesis) powerLoss(f fault) error {
	older := n.dir + "/older"
	each := func(do func(dir, copied string) error) func() error {
		return func() error {
			var errs []error
			for _, i := range n.nodes() {
				errs = append(errs, do(n.brokers.Dir(i), filepath.Join(older, n.brokers.Name(i))))
			}
			return errors.Join(errs...)
		}
	}
	take := each(func(dir, copied string) error { return os.CopyFS(copied, os.DirFS(dir)) })
	restore := each(func(dir, copied string) error {
		return errors.Join(os.RemoveAll(dir), os.CopyFS(dir, os.DirFS(copied)))
	})
	brief := fault{luck: f.luck, lasts: 50 * time.Millisecond}
	if err := n.withoutNATS(brief, n.nodes(), take); err != nil {
		return err
	}
	n.pause(f)
	return errors.Join(n.withoutNATS(brief, n.nodes(), restore), os.RemoveAll(older))
}
