//go:build linux || darwin

package main

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/postroom/postroom/integration/chaos/internal/workload"
)

// kind is a kind of fault.
type kind struct {
	name, about string
	weight      int           // how often it is injected, relative to other kinds of its lane
	longest     time.Duration // its longest duration; the shortest is a tenth of it, or half of it for the first faults of a lane
	lane        int
	first       bool // every run needs this kind of fault; a run without it shows nothing
	cluster     bool // only if there are several NATS servers
	disk        bool // only if each server has a separate file system
	do          func(n *nemesis, f fault) error
}

// Each lane has one fault at a time, and all lanes run at the same time. So a fault of a process
// can meet a fault of a server and a fault of the network.
const (
	processes = iota
	wires
	servers
	lanes
)

// kinds are all kinds of faults.
var kinds = []kind{
	{name: "kill producer", about: "kill -9; another producer is started", weight: 2, longest: time.Second, lane: processes, do: (*nemesis).kill},
	{name: "kill relay", about: "kill -9; another relay is started", weight: 4, longest: time.Second, lane: processes, first: true, do: (*nemesis).kill},
	{name: "kill consumer", about: "kill -9 of a process of any handler; another is started", weight: 5, longest: time.Second, lane: processes, first: true, do: (*nemesis).kill},
	{name: "kill all consumers", about: "kill -9 of all processes of all handlers at once, while they are busy", weight: 2, longest: time.Second, lane: processes, first: true, do: (*nemesis).killConsumers},
	{name: "kill operator", about: "kill -9; another operator is started", weight: 2, longest: time.Second, lane: processes, do: (*nemesis).kill},
	{name: "stop relay", about: "SIGSTOP, for longer than its lease or not", weight: 3, longest: 3 * workload.Lease, lane: processes, first: true, do: (*nemesis).stop},
	{name: "stop leader", about: "SIGSTOP of the leading relay until after its lease, while it is busy", weight: 3, longest: 3 * workload.Lease, lane: processes, first: true, do: (*nemesis).stopLeader},
	{name: "stop consumer", about: "SIGSTOP, for longer than the broker waits for acks or not", weight: 3, longest: 4 * time.Second, lane: processes, do: (*nemesis).stop},
	{name: "stop producer", about: "SIGSTOP in the middle of transactions", weight: 1, longest: 2 * time.Second, lane: processes, do: (*nemesis).stop},
	{name: "stop operator", about: "SIGSTOP in the middle of a replay", weight: 1, longest: 2 * time.Second, lane: processes, do: (*nemesis).stop},

	{name: "cut connections", about: "of a process, to PostgreSQL and NATS; new ones are refused", weight: 3, longest: time.Second, lane: wires, do: onWires(wireFaults.cut)},
	{name: "delay", about: "delays what a process sends and receives", weight: 2, longest: 4 * time.Second, lane: wires, do: onWires(wireFaults.delay)},
	{name: "half-open connections", about: "connections stay open, and carry nothing in either direction", weight: 2, longest: 5 * time.Second, lane: wires, do: onWires(wireFaults.halfOpen)},
	{name: "lose replies of postgres", about: "producers get no replies, although the server does the work", weight: 4, longest: 1500 * time.Millisecond, lane: wires, first: true, do: onWires(wireFaults.loseCommits)},
	{name: "lose replies of nats", about: "relays get no replies, although the broker stores the events", weight: 4, longest: 1500 * time.Millisecond, lane: wires, first: true, do: onWires(wireFaults.loseAcks)},
	{name: "lose publishes of nats", about: "messages of relays are lost, and then their connections break", weight: 3, longest: 3 * time.Second, lane: wires, first: true, do: onWires(wireFaults.losePublishes)},
	{name: "late statements", about: "the leader's statements reach PostgreSQL when another relay leads", weight: 3, longest: 4 * workload.Lease, lane: wires, first: true, do: onWires(wireFaults.lateStatements)},
	{name: "strand consumers", about: "all handlers are cut off from PostgreSQL, get events, and are then killed", weight: 2, longest: 1500 * time.Millisecond, lane: wires, first: true, do: onWires(wireFaults.strand)},
	{name: "end transactions", about: "PostgreSQL ends sessions of handlers, above all before a COMMIT", weight: 3, longest: 2 * time.Second, lane: wires, do: (*nemesis).endTransactions},
	{name: "lose replies to a consumer", about: "a consumer gets no replies of PostgreSQL and of NATS", weight: 3, longest: 1500 * time.Millisecond, lane: wires, first: true, do: onWires(wireFaults.loseToConsumer)},

	{name: "kill postgres", about: "kill -9; it is started again", weight: 3, longest: 1500 * time.Millisecond, lane: servers, first: true, do: onServers(serverFaults.killPostgres)},
	{name: "stop postgres", about: "SIGSTOP of all its processes", weight: 2, longest: 3 * time.Second, lane: servers, do: onServers(serverFaults.stopPostgres)},
	{name: "kill nats", about: "kill -9 of one server; it is started again", weight: 4, longest: 2 * time.Second, lane: servers, first: true, do: onServers(serverFaults.killNATS)},
	{name: "kill all nats", about: "kill -9 of all servers at once", weight: 1, longest: 2 * time.Second, lane: servers, cluster: true, do: onServers(serverFaults.killAllNATS)},
	{name: "stop nats", about: "SIGSTOP of one server", weight: 2, longest: 4 * time.Second, lane: servers, do: onServers(serverFaults.stopNATS)},
	{name: "step down", about: "the leader of the stream steps down", weight: 3, longest: time.Second, lane: servers, cluster: true, do: onServers(serverFaults.stepDown)},
	{name: "lease clock forward", about: "the lease looks expired while its holder still leads", weight: 2, longest: time.Second, lane: servers, first: true, do: onServers(serverFaults.leaseForward)},
	{name: "lease clock back", about: "the lease lasts longer than its holder knows", weight: 1, longest: time.Second, lane: servers, do: onServers(serverFaults.leaseBack)},
	{name: "reader's clock forward", about: "the lease of an ordered handler's reader looks expired while it still reads", weight: 2, longest: time.Second, lane: servers, do: onServers(serverFaults.readerForward)},
	{name: "disk of nats full", about: "full until it is freed and the servers are started again", weight: 1, longest: 3 * time.Second, lane: servers, disk: true, do: onServers(serverFaults.fillNATS)},
	{name: "disk of postgres full", about: "full until it is freed", weight: 1, longest: 3 * time.Second, lane: servers, disk: true, do: onServers(serverFaults.fillPostgres)},
	{name: "power loss of nats", about: "afterwards its storage is an older copy", weight: 1, longest: 3 * time.Second, lane: servers, do: onServers(serverFaults.powerLoss)},
}

func kindOf(name string) (kind, bool) {
	i := slices.IndexFunc(kinds, func(k kind) bool { return k.name == name })
	if i < 0 {
		return kind{}, false
	}
	return kinds[i], true
}

// fault is a planned fault.
type fault struct {
	kind  kind
	after time.Duration // time since the end of the previous fault in its lane
	lasts time.Duration
	luck  uint64 // decides which process or server the fault affects
}

// makePlan makes the faults of a run, by lane. The plan has more faults than fit into the time of
// the run. Each lane begins with the faults that every run must have, in random order.
func makePlan(seed uint64, o options, disks bool) (plan [lanes][]fault) {
	luck := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // made from a seed on purpose
	for lane := range plan {
		var all []kind
		var first []kind
		for _, k := range kinds {
			chosen := len(o.only) == 0 || slices.Contains(o.only, k.name)
			if k.lane != lane || !chosen || k.cluster && o.nodes == 1 || k.disk && !disks {
				continue
			}
			all = append(all, slices.Repeat([]kind{k}, k.weight)...)
			if k.first {
				first = append(first, k)
			}
		}
		luck.Shuffle(len(first), func(i, j int) { first[i], first[j] = first[j], first[i] })
		if len(all) == 0 {
			continue
		}
		for i := range o.seconds * 5 {
			k, least := all[luck.IntN(len(all))], time.Duration(10)
			if i < len(first) {
				k, least = first[i], 2
			}
			plan[lane] = append(plan[lane], fault{
				kind:  k,
				after: upTo(luck, 200*time.Millisecond, 2*time.Second),
				lasts: upTo(luck, k.longest/least, k.longest),
				luck:  luck.Uint64(),
			})
		}
	}
	return plan
}

func upTo(luck *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(luck.Int64N(int64(most-least)))
}
