package main

import "github.com/postroom/postroom/examples/internal/narrate"

// crashes kills services in the midst of their work, and starts them again.
type crashes struct {
	demo   *demo
	killed int
}

// next kills a service where it is time for that. Kills are spread evenly over the
// orders.
func (c *crashes) next(now state) error {
	if c.done() || now.Placed*int64(c.demo.opt.kills+1) < int64(c.killed+1)*int64(c.demo.opt.orders) {
		return nil
	}
	service := services[c.killed%len(services)]
	from := c.demo.staff.kill(service)
	c.killed++
	to, err := c.demo.staff.start(service)
	if err != nil {
		return err
	}
	c.demo.story.Tell("%s is killed (SIGKILL, process %d) with %s orders under way, and started again (process %d)",
		service, from, narrate.Grouped(now.Pending), to)
	return nil
}

// done reports whether as many were killed as are to be.
func (c *crashes) done() bool { return c.killed >= c.demo.opt.kills }
