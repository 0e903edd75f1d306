package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/postroom/postroom/examples/internal/demo"
)

// customers begins and ends the example. Its method Run places the orders, waits until all of them
// have taken effect, and returns. Then the other parts drain. The type implements postroom.Runner.
type customers struct {
	*deployment

	closing <-chan struct{} // if this channel is closed, the clients place no more orders
}

// Run returns nil when every committed order is published, charged and counted, and both handlers
// have got every copy that the copier sent. If the time runs out first, the error says what is
// missing.
func (c *customers) Run(ctx context.Context) error {
	began := time.Now()
	requests := plan(c.opt.seed, c.opt.orders)
	placing, stop := context.WithCancel(ctx)
	placed := make(chan error, 1)
	go func() { placed <- c.shop.placeAll(placing, requests, c.opt.clients, c.closing) }()

	looks := 0
	err := demo.Watch(ctx, c.opt.timeout, 20*time.Millisecond, func(ctx context.Context) (demo.Progress, error) {
		all := len(placed) > 0 // read before the state: if all orders are placed, the state has all of them
		now, err := c.state(ctx)
		if looks++; looks%5 == 0 && !all { // not more often, because each look is work, too
			err = errors.Join(err, c.waits.look(ctx, c.Pool))
		}
		c.story.Progress("placed %s  published %s  charged %s  counted %s  duplicates suppressed %s  %s orders/s",
			demo.Grouped(now.placed), demo.Grouped(now.published), demo.Grouped(now.charge.done), demo.Grouped(now.tallied.done),
			demo.Grouped(now.charge.suppressed+now.tallied.suppressed), demo.Grouped(perSecond(now.charge.done, time.Since(began))))
		missing := now.missing()
		return demo.Progress{Done: all && missing == "", Mark: now, Missing: missing}, err
	})
	stop()
	c.story.End()
	c.shop.placed.took = time.Since(began)
	late := <-placed
	switch {
	case errors.Is(ctx.Err(), context.Canceled): // another part failed, and says why
		return nil
	case err == nil:
		return late
	}
	return err
}

// state is the progress of the run.
type state struct {
	placed       int64 // orders that the clients committed
	seen, copied int64 // counted by the copier: orders in the stream, copies sent
	counts             // these values are read from Postroom's metrics
}

func (c *customers) state(ctx context.Context) (state, error) {
	s := state{placed: c.shop.placed.committed.Load()}
	s.seen = c.copier.seen.Load()
	s.copied = c.copier.sent.Load() // read after the value seen: see copier.consider
	var err error
	if s.counts, err = c.meters.read(ctx); err != nil {
		return s, fmt.Errorf("read metrics: %w", err)
	}
	return s, nil
}

// missing returns a text that lists the work that is left, or "" if no work is left.
func (s state) missing() string {
	var all demo.Todo
	all.Add(2*s.placed-s.published, "events not published")
	all.Add(s.placed-s.charge.done, "orders not charged")
	all.Add(s.placed-s.tallied.done, "orders not counted")
	all.Add(s.placed-s.seen, "orders not seen by the copier")
	// A duplicate that took effect counts as a delivery, too. The proof reports it.
	all.Add(s.placed+s.copied-s.charge.done-s.charge.suppressed, "deliveries to come to "+billingCharge)
	all.Add(s.placed+s.copied-s.tallied.done-s.tallied.suppressed, "deliveries to come to "+analyticsCount)
	return all.String()
}

func perSecond(n int64, d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64(float64(n) / d.Seconds())
}
