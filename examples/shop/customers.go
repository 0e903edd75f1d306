package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/postroom/postroom/internal/verdict"
)

// stallPatience is how long nothing may happen before the run is given up. It
// is longer than a failed handler waits for its next attempt.
const stallPatience = 2 * time.Minute

// customers is the part of the demo that begins it and ends it: it places the
// orders, waits until all of them have taken effect, and returns, upon which
// the other parts drain. It implements postroom.Runner.
type customers struct {
	demo    *demo
	closing <-chan struct{} // closed: no more orders
	show    *progress
}

// Run returns nil once every order that was committed has been published,
// charged and counted, and every copy was suppressed. Where that does not
// happen the error says what is missing.
func (c *customers) Run(ctx context.Context) error {
	began := time.Now()
	requests := plan(c.demo.opt.seed, c.demo.opt.orders)
	placing, stop := context.WithCancel(ctx)
	placed := make(chan error, 1)
	go func() { placed <- c.demo.placeAll(placing, requests, c.closing) }()

	err := c.wait(ctx, placed)
	stop()
	c.show.end()
	c.demo.placed.took = time.Since(began)
	if late := <-placed; err == nil && ctx.Err() == nil {
		err = late
	}
	return err
}

// wait waits for the clients and for all that follows from their orders. It
// leaves what placed receives in it.
func (c *customers) wait(ctx context.Context, placed chan error) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var last state
	moved := time.Now()
	for {
		select {
		case <-ctx.Done():
			return c.ended(ctx, last)
		case <-tick.C:
		}
		all := len(placed) > 0 // read before the state: it is complete then
		now, err := c.demo.state(ctx)
		switch {
		case err != nil && ctx.Err() != nil: // it ended in the midst of reading
			return c.ended(ctx, last)
		case err != nil:
			return err
		}
		c.show.report(now)
		if now != last {
			last, moved = now, time.Now()
		}
		switch {
		case all && now.missing() == "":
			return nil
		case time.Since(moved) > stallPatience:
			return verdict.NewUndecided("nothing has moved for %s: %s", stallPatience, now.missing())
		}
	}
}

// ended explains why the run ended before it was complete. Where another part
// failed, that part's error says why.
func (c *customers) ended(ctx context.Context, last state) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return verdict.NewUndecided("not complete after %s: %s", c.demo.opt.timeout, last.missing())
	}
	return nil
}

// state is how far the run is.
type state struct {
	placed       int64 // by the clients
	seen, copied int64 // by the copier: orders in the stream, copies sent
	counts             // by Postroom's metrics
}

func (d *demo) state(ctx context.Context) (state, error) {
	s := state{placed: d.placed.committed.Load()}
	s.seen = d.copier.seen.Load()
	s.copied = d.copier.sent.Load() // after seen: see copier.consider
	var err error
	if s.counts, err = d.meters.read(ctx); err != nil {
		return s, fmt.Errorf("read metrics: %w", err)
	}
	return s, nil
}

// missing says what is still to come, and is empty where nothing is.
func (s state) missing() string {
	var all []string
	add := func(n int64, what string) {
		if n > 0 {
			all = append(all, fmt.Sprintf("%s %s", grouped(n), what))
		}
	}
	add(2*s.placed-s.published, "events not published")
	add(s.placed-s.charge.done, "orders not charged")
	add(s.placed-s.tallied.done, "orders not counted")
	add(s.placed-s.seen, "orders not seen by the copier")
	// A duplicate that was not suppressed has arrived all the same: the proof
	// will tell.
	add(s.placed+s.copied-s.charge.done-s.charge.suppressed, "deliveries to come to "+billingCharge)
	add(s.placed+s.copied-s.tallied.done-s.tallied.suppressed, "deliveries to come to "+analyticsCount)
	return strings.Join(all, ", ")
}
