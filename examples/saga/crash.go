package main

import (
	"math/rand/v2"
	"slices"

	"github.com/postroom/postroom/examples/internal/demo"
)

// crashes kills services during their work, and starts them again. The seed decides which service
// is killed, and when.
type crashes struct {
	*deployment

	chance *rand.Rand
	when   []int64 // for each kill, the number of placed orders at which it happens, sorted
	killed int
}

func newCrashes(d *deployment) *crashes {
	c := &crashes{deployment: d, chance: rand.New(rand.NewPCG(d.opt.seed, 1))} //nolint:gosec // a play, not a secret
	for range d.opt.kills {
		c.when = append(c.when, c.chance.Int64N(int64(d.opt.orders)))
	}
	slices.Sort(c.when)
	return c
}

// next kills and restarts a service, if enough orders have been placed for that.
func (c *crashes) next(now state) error {
	if c.done() || now.Placed < c.when[c.killed] {
		return nil
	}
	service := services[c.chance.IntN(len(services))]
	from := c.staff.kill(service)
	c.killed++
	to, err := c.staff.start(service)
	if err != nil {
		return err
	}
	c.story.Tell("%s is killed (SIGKILL, process %d) with %s orders under way, and started again (process %d)",
		service, from, demo.Grouped(now.Pending), to)
	return nil
}

// done reports whether all kills have happened.
func (c *crashes) done() bool { return c.killed >= c.opt.kills }
