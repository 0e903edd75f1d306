//go:build linux || darwin

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/postroom/postroom/integration/chaos/internal/workload"
	"github.com/postroom/postroom/integration/checker"
	"github.com/postroom/postroom/integration/rig"
)

// conclude waits until the remaining work is done, and then examines everything. Call it when all
// faults have ended.
func (s observer) conclude(ctx context.Context) (found checker.State, err error) {
	healed, look := time.Now(), poller(s)
	if err := os.WriteFile(filepath.Join(s.dir, workload.Healed), nil, 0o600); err != nil { // operators look for this file
		return found, err
	}
	s.Say("healed after %d faults; waiting for a leader", s.injected.Load())
	if found.Lead, err = look.settle(ctx, healed, look.leading); err != nil {
		return found, err
	}
	fallen := s.crew.of(workload.Producers).fallen()
	s.crew.of(workload.Producers).end()
	s.Say("all events are written: %s", s.standing(ctx))
	if found.Drained, err = look.settle(ctx, healed, look.drained); err != nil {
		return found, err
	}
	for _, left := range slices.Concat(found.Lead.Stuck, found.Lead.Pending, found.Drained.Stuck, found.Drained.Pending) {
		s.Say("left to do: %s", left)
	}
	s.Say("examining everything")
	found.Fallen = append(fallen, s.crew.of(append(workload.Handlers(), workload.Relays, workload.Operators)...).fallen()...)
	s.crew.of(workload.Operators).end() // the operator has nothing more to do
	if err := s.rest(ctx, &found); err != nil {
		return found, err
	}
	s.crew.end()
	if found.Secrets, err = s.leaked(ctx); err != nil {
		return found, err
	}
	if err := s.observe(ctx, &found); err != nil {
		return found, err
	}
	return found, nil
}

// sessionBounds returns how many sessions idle processes may have, by application name.
func sessionBounds() map[string]int {
	most := make(map[string]int)
	for _, of := range numbers {
		switch of.kind {
		case workload.Producers, workload.Operators: // these processes have ended
		case workload.Relays:
			most[of.kind] = of.n + 2             // a leader opens two more
			most["postroom "+of.kind] = of.n + 2 // the sessions of leaders have this name
		default:
			most[of.kind] = of.n * 12 // its pool, and the connections of an ordered handler and of claims
		}
	}
	most[ours] = 12
	return most
}

// rest examines the processes while they are idle.
func (s observer) rest(ctx context.Context, found *checker.State) error {
	found.Bounds = checker.Bounds{Sessions: sessionBounds(), Goroutines: 200, Resident: 512 << 20}
	settle := func(ctx context.Context) error {
		rows, err := s.db.shop.Pool.Query(ctx, `SELECT coalesce(nullif(application_name, ''), '(unnamed)'), count(*),
				count(*) FILTER (WHERE state LIKE 'idle in transaction%')
			FROM pg_stat_activity WHERE backend_type = 'client backend' GROUP BY 1`)
		if err != nil {
			return err
		}
		defer rows.Close()
		found.Sessions, found.Idle = make(map[string]int), 0
		for rows.Next() {
			var app string
			var n, idle int
			if err := rows.Scan(&app, &n, &idle); err != nil {
				return err
			}
			found.Sessions[app] = n
			found.Idle += idle
		}
		if err := rows.Err(); err != nil {
			return err
		}
		// When a process is killed, its sessions end only when the server notices.
		for app, n := range found.Sessions {
			if n > found.Bounds.Sessions[app] {
				return fmt.Errorf("%d sessions of %s", n, app)
			}
		}
		if found.Idle > 0 {
			return fmt.Errorf("%d are idle in a transaction", found.Idle)
		}
		return nil
	}
	if found.Lead.Ended() && found.Drained.Ended() { // otherwise the processes are not idle
		_ = rig.Again(ctx, stuckAfter, "sessions to end", settle) // the checker reports sessions that did not end
	}
	return rig.Again(ctx, rig.Patience, "list the consumers", func(ctx context.Context) (err error) {
		found.Consumers, err = s.consumers(ctx)
		return err
	})
}

// reader names the unnamed consumer that an ordered handler has while it reads.
const reader = "(reader)"

// consumers returns how many consumers of each name exist. It does not count an unnamed consumer
// whose process was killed, because the broker will remove this consumer.
func (s observer) consumers(ctx context.Context) (map[string]int, error) {
	found := make(map[string]int)
	str, err := s.client.JS.Stream(ctx, workload.Stream)
	if err != nil {
		return nil, err
	}
	list := str.ListConsumers(ctx)
	for c := range list.Info() {
		name := c.Config.Durable
		if name == "" {
			if name = reader; c.NumWaiting == 0 && c.Config.InactiveThreshold > 0 {
				continue
			}
		}
		found[name]++
	}
	return found, list.Err()
}

// isLease reports whether a subject is for leases. Messages with a lease subject are not events.
func isLease(subject string) bool { return strings.HasPrefix(subject, "postroom.lease.") }
