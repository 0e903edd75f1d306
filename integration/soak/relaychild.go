//go:build linux || darwin

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/postroom/postroom/integration/rig"
	"github.com/postroom/postroom/integration/soak/internal/stage"
	"github.com/postroom/postroom/internal/childproc"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/relay"
	"github.com/postroom/postroom/relay/broker"
)

// standbyName is the application name of a relay's connections, except the two connections of its
// term.
const standbyName = "soak relay"

// relayJob describes a relay.
type relayJob struct {
	Database, NATS   string
	Lease, Retention time.Duration // if zero, the default applies
	ShortWindow      bool          // the stream's duplicate window is short on purpose
}

// roles are the roles of child processes, except those that package natsfleet has.
var roles = map[string]childproc.Role{"relay": serveRelay, "compare": serveCompare}

// logger returns a child's logger.
func logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// serveRelay runs a relay until ctx ends. It tells the parent process the state of the relay.
func serveRelay(ctx context.Context, text []byte) error {
	var job relayJob
	if err := json.Unmarshal(text, &job); err != nil {
		return err
	}
	pool, err := rig.WorkerPool(ctx, job.Database, standbyName, 1) // a leader opens two more connections, outside the pool
	if err != nil {
		return err
	}
	defer pool.Close()
	nc, err := rig.WorkerNATS(job.NATS, standbyName)
	if err != nil {
		return err
	}
	defer nc.Close()
	r := relay.New(pool, natsjs.NewPublisher(nc), job.config())
	over, stop := context.WithCancel(context.Background())
	var telling sync.WaitGroup
	telling.Go(func() {
		for last := relay.State(""); childproc.Sleep(over, 20*time.Millisecond); {
			if now := r.Health().State; now != last {
				childproc.Tell("%s", now)
				last = now
			}
		}
	})
	err = r.Run(ctx)
	stop()
	telling.Wait()
	return err
}

func (j relayJob) config() relay.Config {
	cfg := relay.Config{Lease: j.Lease, Retention: j.Retention, Logger: logger()}
	if j.ShortWindow {
		cfg.AcceptRisks = []broker.Risk{natsjs.ShortDuplicateWindow}
	}
	return cfg
}

// crew are the relays of one log. Each is a process that can be killed and stopped.
type crew struct {
	job    relayJob
	relays []*rig.Process

	mu             sync.Mutex
	killed, paused int
}

func startCrew(r *stage.Stage, n int, job relayJob) (*crew, error) {
	c := &crew{job: job}
	r.Later(func() error { rig.EndAll(c.relays); return nil })
	for range n {
		p := rig.NewProcess("relay", job, r.ChildLog())
		if err := p.Start(); err != nil {
			return nil, err
		}
		c.relays = append(c.relays, p)
	}
	return c, nil
}

func (c *crew) get(i int) *childproc.Child { return c.relays[i].Now() }

// replace kills a relay and starts another one.
func (c *crew) replace(i int) error {
	if fell := c.relays[i].Kill(); !fell {
		c.mu.Lock()
		c.killed++
		c.mu.Unlock()
	}
	return c.relays[i].Start()
}

// leaders returns the relays that say that they lead.
func (c *crew) leaders() (which []int) {
	for i := range c.relays {
		if c.get(i).Says() == string(relay.Leading) {
			which = append(which, i)
		}
	}
	return which
}

// states counts the relays by state.
func (c *crew) states() string {
	counts := make(map[string]int)
	for i := range c.relays {
		counts[c.get(i).Says()]++
	}
	return fmt.Sprint(counts)
}

// gone returns how many relays ended by themselves.
func (c *crew) gone() int {
	n := 0
	for _, p := range c.relays {
		n += p.Fallen()
	}
	return n
}

// counts returns how often relays were killed and paused.
func (c *crew) counts() (killed, paused int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.killed, c.paused
}
