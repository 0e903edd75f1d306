//go:build linux || darwin

package main

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/integration/chaos/internal/workload"
	"github.com/postroom/postroom/integration/checker"
	"github.com/postroom/postroom/internal/childproc"
	"github.com/postroom/postroom/internal/identity"
	"github.com/postroom/postroom/outbox"
)

const (
	// burstEvery is the shortest time between bursts. Without this limit, faults in quick
	// succession would cause so many bursts that handlers could not handle all events.
	burstEvery = 2 * time.Second

	// tooMany limits the backlog: if the handlers still have to make more effects than this, there
	// are no bursts, because enough events are in flight.
	tooMany = 4000

	strikePatience = time.Second // the longest time for the work just before a fault
)

// burst commits many events in one transaction, so that relays and handlers are busy when a fault
// strikes a moment later. It gives up after a second (strikePatience).
func (n *nemesis) burst(f fault) { n.burstAfter(f, burstEvery) }

// burstAfter makes a burst if at least the given time has passed since the last burst.
func (n *nemesis) burstAfter(f fault, least time.Duration) {
	n.bursts.Lock()
	defer n.bursts.Unlock()
	if n.opt.burst == 0 || time.Since(n.lastBurst) < least {
		return
	}
	n.lastBurst = time.Now()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(n.ctx), strikePatience)
	defer cancel()
	// The next two numbers are estimates, because exact numbers would take longer.
	written, err := n.db.shop.Number(ctx, "SELECT coalesce(max(seq), 0)::int FROM postroom.outbox")
	if err != nil {
		return
	}
	took, err := n.db.books.Number(ctx, "SELECT coalesce(max(serial), 0)::int FROM effect")
	if err != nil || written*len(workload.Handlers())-took > tooMany {
		return // PostgreSQL is unavailable, or enough events are in flight
	}
	luck := rand.New(rand.NewPCG(f.luck, 3)) //nolint:gosec // from a seed, on purpose
	chosen := luck.Perm(workload.Keys)[:n.opt.burst-n.opt.burst/4]
	twice := chosen[:n.opt.burst/4] // each of these keys gets two events, which an ordered handler must run one after the other
	slices.Sort(twice)
	chosen = slices.Clone(chosen)
	slices.Sort(chosen)
	r := checker.Record{What: checker.Transaction, Phase: checker.Invoked, ID: uuid.Must(uuid.NewV7()).String(), Shape: workload.Burst}
	tx, err := n.db.shop.Pool.Begin(ctx)
	if err != nil {
		return
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // after the commit, Rollback only returns an error
	// All transactions lock accounts in the order of their ids, so that no two of them deadlock.
	if _, err := tx.Exec(ctx, "SELECT FROM account WHERE id = ANY ($1) ORDER BY id FOR UPDATE", chosen); err != nil {
		return
	}
	for _, some := range [][]int{chosen, twice} {
		events, err := n.writeBurst(ctx, tx, some)
		if err != nil {
			return // nothing was committed, and the journal has no record of this transaction
		}
		r.Events = append(r.Events, events...)
	}
	n.journal.Note(r)
	if err := tx.Commit(ctx); err != nil {
		r.Phase, r.Error = workload.PhaseOfCommit(err), err.Error()
	} else {
		r.Phase = checker.OK
	}
	n.journal.Note(r)
}

// writeBurst changes the account of each chosen key, and writes an event for each key.
func (n *nemesis) writeBurst(ctx context.Context, tx pgx.Tx, chosen []int) (noted []checker.Event, err error) {
	rows, err := tx.Query(ctx, "UPDATE account SET n = n + 1 WHERE id = ANY ($1) RETURNING id, n", chosen)
	if err != nil {
		return nil, err
	}
	changed, err := pgx.CollectRows(rows, pgx.RowToStructByPos[struct{ Key, N int }])
	if err != nil {
		return nil, err
	}
	var events []postroom.Event
	var changes [][]any
	for _, c := range changed {
		b := workload.Body{Key: c.Key, N: c.N, Secret: n.canary}
		id := uuid.Must(uuid.NewV7()).String()
		events, noted = append(events, workload.EventOf(id, b)), append(noted, b.Event(id))
		changes = append(changes, []any{id, b.Key, b.N, ""})
	}
	if _, err := tx.CopyFrom(ctx, pgx.Identifier{"change"}, []string{"event", "key", "n", "poison"}, pgx.CopyFromRows(changes)); err != nil {
		return nil, err
	}
	return noted, outbox.New(outbox.Config{Source: workload.Source}).Write(ctx, tx, events...)
}

// inFlight counts two things: committed events that are not recorded as published, and deliveries
// that are not acknowledged. It returns nil if PostgreSQL does not answer. It leaves out the
// deliveries if NATS does not answer.
func (n *nemesis) inFlight() map[string]int64 {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(n.ctx), strikePatience)
	defer cancel()
	unrecorded, err := n.db.shop.Number(ctx, `SELECT (SELECT count(*) FROM postroom.outbox AS o WHERE o.seq > r.high)::int
		+ coalesce((SELECT sum(upper(p) - lower(p)) FROM unnest(r.pending) AS p), 0)::int FROM postroom.relay AS r`)
	if err != nil {
		return nil
	}
	counts := map[string]int64{checker.Unrecorded: int64(unrecorded)}
	str, err := n.client.JS.Stream(ctx, workload.Stream)
	if err != nil {
		return counts
	}
	for _, h := range workload.Handlers() {
		if c, err := str.Consumer(ctx, identity.Consumer(n.instance, h)); err == nil {
			counts[checker.Unacknowledged] += int64(c.CachedInfo().NumAckPending)
		}
	}
	return counts
}

// leader returns the relay that leads. If none leads, it waits for a leader, at most for the time
// replacedWithin. After that time it returns nil.
func (n *nemesis) leader() *member {
	for until := time.Now().Add(replacedWithin); time.Now().Before(until); time.Sleep(50 * time.Millisecond) {
		if m := n.currentLeader(); m != nil {
			return m
		}
	}
	return nil
}

// currentLeader returns the relay that leads now, or nil.
func (n *nemesis) currentLeader() *member {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(n.ctx), strikePatience)
	defer cancel()
	var owner string
	if err := n.db.shop.Pool.QueryRow(ctx, "SELECT owner FROM postroom.relay WHERE expires_at > now()").Scan(&owner); err != nil {
		return nil
	}
	for _, m := range n.crew.of(workload.Relays) {
		if text, err := os.ReadFile(m.log.Name()); err == nil && bytes.Contains(text, []byte("owner="+owner)) {
			return m
		}
	}
	return nil
}

// stopLeader pauses the leading relay (SIGSTOP) while it is busy. The relay continues when its
// lease has ended and another relay leads.
func (n *nemesis) stopLeader(f fault) error {
	m := n.leader()
	if m == nil {
		m = n.victim(f, workload.Relays)
	}
	m.struck.Lock()
	defer m.struck.Unlock()
	child, replaced := m.Now(), n.replacing()
	if err := child.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	n.pause(f)
	replaced()
	return child.Signal(syscall.SIGCONT)
}

// replacedWithin limits the wait until one relay replaces another, which takes long on a busy
// machine. If the fault ended earlier, it would test nothing.
const replacedWithin = 20 * time.Second

// replacing returns a function that waits until another relay has recorded progress.
func (n *nemesis) replacing() (wait func()) {
	epoch, high, err := n.recorded()
	return func() {
		if err != nil {
			return // PostgreSQL was unavailable, so the leader is unknown
		}
		for until := time.Now().Add(replacedWithin); time.Now().Before(until); time.Sleep(50 * time.Millisecond) {
			if nowEpoch, nowHigh, err := n.recorded(); err == nil && nowEpoch > epoch && nowHigh > high {
				return
			}
		}
	}
}

// recorded reads the last progress that a relay recorded in the database.
func (n *nemesis) recorded() (epoch, high int64, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(n.ctx), strikePatience)
	defer cancel()
	err = n.db.shop.Pool.QueryRow(ctx, "SELECT epoch, high FROM postroom.relay").Scan(&epoch, &high)
	return epoch, high, err
}

// killConsumers kills all processes of all handlers at once, while the processes are busy.
func (n *nemesis) killConsumers(f fault) error {
	return n.killed(f, n.crew.of(workload.Handlers()...)...)
}

// endTransactions makes PostgreSQL end the handlers' sessions that are idle in a transaction. Most
// of these sessions are about to send COMMIT, which then fails, and the transaction is rolled back.
func (n *nemesis) endTransactions(f fault) error {
	n.burstAfter(f, 0)
	for until := time.Now().Add(f.lasts); time.Now().Before(until) && childproc.Sleep(n.ctx, 20*time.Millisecond); {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(n.ctx), strikePatience)
		_, _ = n.db.books.Pool.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE datname = current_database() AND application_name = ANY ($1) AND state = 'idle in transaction'`, workload.Handlers()) // the query fails while PostgreSQL is down
		cancel()
	}
	return nil
}
