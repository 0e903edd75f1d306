package deadletter_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/deadletter"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
)

// Events of many keys die one after the other, while inboxes start and stop, and operators replay,
// cancel and resume. In the end each event has taken effect once, and no event waits for ever. With
// HoldKey, the events of each key took effect in their order, except events that came too late for
// it.
func TestReplaysWhileProcessesComeAndGo(t *testing.T) {
	t.Parallel()
	for _, order := range []inbox.Order{inbox.HoldKey, inbox.SkipKey} {
		t.Run(map[inbox.Order]string{inbox.HoldKey: "HoldKey", inbox.SkipKey: "SkipKey"}[order], func(t *testing.T) {
			t.Parallel()
			const keys, each = 24, 30
			r := newRiver(newRig(t))
			s, random := newScript(), devtest.Random(t, 0)
			for k := range keys {
				for i := 1; i <= each; i++ {
					if random.IntN(6) == 0 {
						s.set(true, name(fmt.Sprint("k", k), i))
					}
				}
			}
			if order == inbox.HoldKey {
				for k := range keys { // and some that come too late for their order
					r.lates(fmt.Sprint("late", k), 1, 4)
				}
			}
			c := &chaos{river: r, script: s, order: order, random: random}
			ctx, quiet := context.WithCancel(t.Context())
			defer quiet()
			var all sync.WaitGroup
			for i := range 2 {
				random := devtest.Random(t, 1+i)
				all.Go(func() { c.processes(ctx, random) })
			}
			all.Go(func() { c.operators(ctx) })
			for i := 1; i <= each; i += 5 {
				for k := range keys {
					r.publish(fmt.Sprint("k", k), i, i+4)
				}
			}
			r.eventually("replays to be cancelled and resumed", func() bool {
				return r.number("SELECT least(count(*) FILTER (WHERE action = 'resume'), count(*) FILTER (WHERE action = 'cancel')) FROM postroom.audit") >= 15
			})
			quiet()
			all.Wait()
			r.wantNoFailure()
			c.finish(keys * each)
			c.wantAll(keys, each)
		})
	}
}

type chaos struct {
	*river

	script *script
	order  inbox.Order
	random *rand.Rand
}

// processes runs inboxes one after the other.
func (c *chaos) processes(ctx context.Context, random *rand.Rand) {
	for ctx.Err() == nil {
		stop := c.handle(c.order, c.script)
		wait, cancel := context.WithTimeout(ctx, time.Duration(200+random.IntN(800))*time.Millisecond)
		<-wait.Done() // the inbox runs for a while
		cancel()
		stop()
	}
}

// operators replay all dead events, continue replays that others left, cancel and resume at any
// step, and now and then correct the cause of some failures.
func (c *chaos) operators(ctx context.Context) {
	for ctx.Err() == nil {
		job, err := c.store.CreateReplay(ctx, deadletter.Filter{Handler: "o"}, deadletter.ReplayOptions{StopAt: new(1.0), Limit: 1 + c.random.IntN(60)}, c.by)
		c.tolerate(err)
		jobs := []int64{job.ID}
		if running, _, err := c.store.Replays(ctx, deadletter.ReplayFilter{Running: true}, postroom.Page{Limit: 3}); err == nil {
			for _, job := range running {
				jobs = append(jobs, job.ID)
			}
		}
		var operators sync.WaitGroup
		for _, id := range jobs {
			operators.Go(func() { c.operate(ctx, id) })
		}
		operators.Wait()
	}
}

func (c *chaos) operate(ctx context.Context, job int64) {
	running, enough := context.WithCancel(ctx)
	defer enough()
	steps := 1 + c.random.IntN(12)
	_, err := c.store.RunReplay(running, job, deadletter.RunOptions{Progress: func(deadletter.Replay) {
		if c.random.IntN(4) == 0 {
			_, err := c.store.CancelReplay(running, job, c.by)
			c.tolerate(err)
		}
		if steps--; steps == 0 {
			enough()
		}
	}})
	c.tolerate(err)
	if _, err = c.store.ResumeReplay(ctx, job, c.by); err == nil {
		c.mend(2)
	}
	c.tolerate(err)
}

// tolerate records an error, unless it is one that this chaos can cause.
func (c *chaos) tolerate(err error) {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, deadletter.ErrReplayEnded) || errors.Is(err, deadletter.ErrNoMatch) || errors.Is(err, deadletter.ErrReplayRunning) || errors.Is(err, deadletter.ErrNotFound) {
		return
	}
	c.Error(err)
}

// mend makes some of the failing events succeed from now on.
func (c *chaos) mend(n int) {
	c.script.mu.Lock()
	defer c.script.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(c.script.bad)) {
		if n > 0 && c.script.bad[id] {
			c.script.bad[id] = false
			n--
		}
	}
}

// finish runs all remaining replays to their end.
func (c *chaos) finish(want int) {
	c.Helper()
	c.mend(1 << 20)
	c.handle(c.order, c.script)
	c.eventually("the rest", func() bool {
		running, _, err := c.store.Replays(c.Context(), deadletter.ReplayFilter{Running: true}, postroom.Page{Limit: 1000})
		if err != nil {
			c.Fatal(err)
		}
		for _, job := range running {
			c.runReplay(job)
		}
		job, err := c.store.CreateReplay(c.Context(), deadletter.Filter{Handler: "o"}, deadletter.ReplayOptions{StopAt: new(1.0)}, c.by)
		if err == nil {
			c.runReplay(job)
		}
		return len(c.states("o")) == 0 && c.number("SELECT count(*) FROM effect WHERE id NOT LIKE 'late%'") >= int64(want)
	})
	c.wantConsistent()
}

func (c *chaos) wantAll(keys, each int) {
	c.Helper()
	late := 0
	for k := range keys {
		key := fmt.Sprint("k", k)
		got := c.effects(key)
		if c.order == inbox.HoldKey {
			late += 4
			c.wantEffects(key, names(key, 1, each)...)
			continue
		}
		slices.Sort(got)
		if !slices.Equal(got, names(key, 1, each)) {
			c.Errorf("effects of %s: %v", key, got)
		}
	}
	c.wantOnce("o", int64(keys*each+late))
	c.want("late events that passed an earlier one of their replay", 0, `
		SELECT count(*) FROM postroom.replay_event a
		JOIN postroom.replay_event b ON b.replay = a.replay AND b.chain = a.chain AND b.n > a.n AND b.outcome = 'succeeded'
		JOIN effect ea ON ea.id = a.event_id
		JOIN effect eb ON eb.id = b.event_id
		WHERE a.chain LIKE E'replay %\tlate%' AND a.outcome = 'succeeded' AND ea.n > eb.n`)
}

func (n *rig) wantNoFailure() {
	n.Helper()
	if n.Failed() {
		n.FailNow()
	}
}
