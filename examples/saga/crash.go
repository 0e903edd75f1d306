package main

import "github.com/postroom/postroom/examples/internal/demo"

// crashes kills services in the midst of their work, and starts them again.
type crashes struct {
	*deployment

	killed int
}

// next kills a service where it is time for that. Kills are spread evenly over the
// orders.
func (c *crashes) next(now state) error {
	if c.done() || now.Placed*int64(c.opt.kills+1) < int64(c.killed+1)*int64(c.opt.orders) {
		return nil
	}
	service := services[c.killed%len(services)]
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

// done reports whether as many were killed as are to be.
func (c *crashes) done() bool { return c.killed >= c.opt.kills }
