//go:build linux || darwin

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/integration/rig"
	"github.com/postroom/postroom/integration/soak/internal/figures"
	"github.com/postroom/postroom/integration/soak/internal/stage"
	"github.com/postroom/postroom/internal/childproc"
	"github.com/postroom/postroom/relay"
)

const aboutRelays = `Twenty relays, each a process, share one log with a lease of a second. For a minute, the program
chooses one of them again and again: at random, and every second time the leader. It kills this
relay (kill -9) and starts it again, or it stops the relay (SIGSTOP) for up to three times its lease
and then continues it, so that the relay may still believe that it leads. The stream has a duplicate
window of 100 ms.`

func relays(ctx context.Context, r *stage.Stage) error {
	b, err := r.StartBrokers(ctx, 1)
	if err != nil {
		return err
	}
	c, err := r.Connect(ctx, b.URLs(), jetstream.StreamConfig{Duplicates: 100 * time.Millisecond})
	if err != nil {
		return err
	}
	d, err := r.NewDatabase(ctx, true)
	if err != nil {
		return err
	}
	n := stage.Pick(r, 20, 5)
	team, err := startCrew(r, n, relayJob{Database: d.URL, NATS: b.URLs(), Lease: time.Second, ShortWindow: true})
	if err != nil {
		return err
	}
	keys := stage.Pick(r, 1000, 100)
	l := rig.NewLedger(keys)
	p := &producer{db: d, keys: keys, rate: stage.Pick(r, 1500.0, 300), slow: true, committed: l.Commit, undone: l.Undo}
	if err := p.prepare(ctx); err != nil {
		return err
	}
	err = stage.During(ctx, team.harass(stage.Pick(r, time.Minute, 6*time.Second)), p.run, func(ctx context.Context) error {
		for childproc.Sleep(ctx, 5*time.Second) {
			killed, paused := team.counts()
			r.Say("%s committed; relays killed %d times, stopped %d times", figures.Grouped(l.Size()), killed, paused)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := conclude(ctx, r, "stream", d, c, l); err != nil {
		return err
	}
	r.Check("relays killed", figures.Grouped(team.killed), "some", team.killed > 0)
	r.Check("relays stopped beyond their lease", figures.Grouped(team.paused), "some", team.paused > 0)
	terms, err := d.Terms(ctx)
	if err != nil {
		return err
	}
	r.Note("times that a relay began to lead", "%s", figures.Grouped(terms))
	r.Count("relays that ended by themselves", team.gone(), "")
	return oneLeads(ctx, r, d, team)
}

// harass returns a function that kills and stops relays alternately, so that a short run has both
// faults. When the function returns, all relays run.
func (c *crew) harass(span time.Duration) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		const hands = 3 // the number of goroutines, each with its own relays
		end := time.Now().Add(span)
		return stage.Together(ctx, hands, func(ctx context.Context, hand int) error {
			for turn := hand; time.Now().Before(end) && childproc.Sleep(ctx, time.Duration(100+rand.IntN(500))*time.Millisecond); turn++ {
				victim := c.victim(hand, hands)
				var err error
				if turn%2 == 0 {
					err = c.replace(victim)
				} else {
					err = c.pause(ctx, victim)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
}

// victim returns one of a hand's relays. In about half of the calls it chooses the leader, if the
// leader is a relay of this hand. Otherwise it chooses any relay of the hand.
func (c *crew) victim(hand, hands int) int {
	if rand.IntN(2) == 0 {
		for _, leader := range c.leaders() {
			if leader%hands == hand {
				return leader
			}
		}
	}
	mine := (len(c.relays) - hand + hands - 1) / hands
	return hand + hands*rand.IntN(mine)
}

// pause stops a relay for longer than its lease.
func (c *crew) pause(ctx context.Context, i int) error {
	stopped := c.get(i)
	if err := stopped.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	childproc.Sleep(ctx, c.job.Lease+time.Duration(rand.Int64N(int64(2*c.job.Lease))))
	c.mu.Lock()
	c.paused++
	c.mu.Unlock()
	return stopped.Signal(syscall.SIGCONT)
}

// oneLeads checks that one relay leads at the end, and that relays have no needless connections.
// The leader has two connections for its term; each relay has at most one other connection.
func oneLeads(ctx context.Context, r *stage.Stage, d *stage.Database, team *crew) error {
	var leading, others int
	last := ""
	err := childproc.Eventually(ctx, 3*time.Minute, "one leader", func(ctx context.Context) (bool, error) {
		err := d.Pool.QueryRow(ctx, `SELECT count(*) FILTER (WHERE application_name = 'postroom relay'),
			count(*) FILTER (WHERE application_name = $1) FROM pg_stat_activity WHERE datname = current_database()`, standbyName).Scan(&leading, &others)
		last = team.states()
		standby := len(team.relays) - 1
		return last == fmt.Sprint(map[string]int{string(relay.Leading): 1, string(relay.Standby): standby}) &&
			leading == 2 && others <= len(team.relays), err
	})
	r.Check("states at the end", last, "one leads", len(team.leaders()) == 1 && err == nil)
	r.Check("connections of leaders at the end", figures.Grouped(leading), "2", leading == 2)
	r.Check("connections of others at the end", figures.Grouped(others), fmt.Sprintf("≤ %d", len(team.relays)), others <= len(team.relays))
	return ctx.Err()
}
