//go:build linux || darwin

package main

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/postroom/postroom/integration/chaos/internal/workload"
	"github.com/postroom/postroom/integration/rig"
)

// wireFaults are the faults of connections.
type wireFaults struct{ *nemesis }

// onWires makes the function of a [kind] from a method of wireFaults.
func onWires(do func(n wireFaults, f fault) error) func(n *nemesis, f fault) error {
	return func(n *nemesis, f fault) error { return do(wireFaults{n}, f) }
}

// anyone chooses a member for a fault: each kind of process is equally likely.
func (n wireFaults) anyone(f fault) *member {
	luck := rand.New(rand.NewPCG(f.luck, 2)) //nolint:gosec // made from a seed on purpose
	return n.victim(fault{luck: luck.Uint64()}, numbers[luck.IntN(len(numbers))].kind)
}

func (n wireFaults) cut(f fault) error {
	ways := n.net.To(n.anyone(f).job.Process, "")
	for _, way := range ways {
		way.Stop()
	}
	n.pause(f)
	ctx, cancel := n.work()
	defer cancel()
	var errs []error
	for _, way := range ways {
		errs = append(errs, rig.Open(ctx, way))
	}
	return errors.Join(errs...)
}

func (n wireFaults) delay(f fault) error {
	latency, jitter := time.Duration(20+f.luck%200)*time.Millisecond, time.Duration(f.luck%20)*time.Millisecond //nolint:gosec // small
	return n.poison(f, n.net.To(n.anyone(f).job.Process, ""), false, rig.Delays(rig.Upstream, latency, jitter), rig.Delays(rig.Downstream, latency, jitter))
}

func (n wireFaults) halfOpen(f fault) error {
	return n.poison(f, n.net.To(n.anyone(f).job.Process, ""), true, rig.Loses(rig.Upstream), rig.Loses(rig.Downstream))
}

func (n wireFaults) loseCommits(f fault) error {
	return n.deafen(f, n.net.To(n.victim(f, workload.Producers).job.Process, toPostgres))
}

// waysOf returns the ways of several processes to servers.
func (n wireFaults) waysOf(all crew, servers string) (ways []*rig.Way) {
	for _, m := range all {
		ways = append(ways, n.net.To(m.job.Process, servers)...)
	}
	return ways
}

// loseAcks affects all relays, because any of them may lead.
func (n wireFaults) loseAcks(f fault) error {
	return n.deafen(f, n.waysOf(n.crew.of(workload.Relays), toNATS))
}

func (n wireFaults) loseToConsumer(f fault) error {
	return n.deafen(f, n.net.To(n.victim(f, workload.Handlers()...).job.Process, ""))
}

// deafen lets processes send, but not receive.
func (n wireFaults) deafen(f fault, ways []*rig.Way) error {
	return n.poison(f, ways, true, rig.Loses(rig.Downstream))
}

func (n wireFaults) poison(f fault, ways []*rig.Way, cut bool, toxics ...rig.Toxic) error {
	ctx, cancel := n.work()
	defer cancel()
	return rig.Poison(ctx, ways, toxics, cut, func() { n.pause(f) })
}

// strand cuts all handlers off from the database while they get events, and then kills them. If a
// handler acknowledged an event meanwhile, the event would never take effect.
func (n wireFaults) strand(f fault) error {
	all := n.crew.of(workload.Handlers()...)
	ctx, cancel := n.work()
	defer cancel()
	var killing error
	err := rig.Poison(ctx, n.waysOf(all, toPostgres), []rig.Toxic{rig.Loses(rig.Upstream)}, true, func() {
		n.burstAfter(f, 0) // the handlers get these events now
		n.pause(f)
		killing = n.killed(fault{kind: f.kind}, all...)
	})
	return errors.Join(err, killing)
}

// losePublishes drops the relays' messages to NATS, and then closes the connections. The broker
// stores none of these messages, and the relays do not know that.
func (n wireFaults) losePublishes(f fault) error {
	n.leader()
	ctx, cancel := n.work()
	defer cancel()
	return rig.Poison(ctx, n.waysOf(n.crew.of(workload.Relays), toNATS), []rig.Toxic{rig.Loses(rig.Upstream)}, true, func() {
		n.burstAfter(f, 0) // the leader sends these events now
		n.pause(f)
	})
}

// lateStatements delays the leader's statements to PostgreSQL until its lease is over and another
// relay leads. Then the statements arrive, although their sender may have closed the connection
// long ago.
func (n wireFaults) lateStatements(f fault) error {
	m := n.leader()
	if m == nil {
		m = n.victim(f, workload.Relays)
	}
	const late = time.Minute // longer than the fault: the statements arrive when Poison removes the delay
	ctx, cancel := n.work()
	defer cancel()
	replaced := n.replacing()
	return rig.Poison(ctx, n.net.To(m.job.Process, toPostgres), []rig.Toxic{rig.Delays(rig.Upstream, late, 0)}, false, func() {
		n.pause(f)
		replaced()
	})
}
