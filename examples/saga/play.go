package main

import (
	"context"
	_ "embed" // the statements
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/examples/internal/narrate"
	"github.com/postroom/postroom/internal/verdict"
)

// stallPatience is how long nothing may happen before the run is given up.
const stallPatience = 2 * time.Minute

// play runs the services until every saga has ended, and kills some meanwhile. The
// end of ctx means that no more orders are placed.
func (d *demo) play(ctx context.Context) error {
	work, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.opt.timeout)
	defer cancel()
	for _, service := range services {
		pid, err := d.staff.start(service)
		if err != nil {
			return err
		}
		d.story.Tell("%s runs, with a database of its own (process %d)", service, pid)
	}
	d.story.Tell("%s orders are placed, %d in a second", narrate.Grouped(int64(d.opt.orders)), d.opt.rate)
	unhook := context.AfterFunc(ctx, d.staff.stopPlacing)
	defer unhook()
	err := d.watch(work, ctx.Done())
	d.story.End()
	return errors.Join(err, d.staff.end())
}

// watch shows how far everything is, kills services, and returns when all is done.
func (d *demo) watch(ctx context.Context, closing <-chan struct{}) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	var last state
	moved := time.Now()
	for {
		select {
		case <-ctx.Done():
			return verdict.NewUndecided("not complete after %s: %s", d.opt.timeout, last.missing())
		case <-tick.C:
		}
		if err := d.staff.fallen(); err != nil {
			return err
		}
		all := d.staff.allPlaced() // asked before the state, which is complete then
		now, err := d.state(ctx)
		if err != nil {
			if ctx.Err() != nil {
				continue // it ended in the midst of reading
			}
			return err
		}
		d.story.Progress("placed %s of %s, pending %s, confirmed %s, cancelled %s; owed %s, not published %s",
			narrate.Grouped(now.Placed), narrate.Grouped(int64(d.opt.orders)), narrate.Grouped(now.Pending), narrate.Grouped(now.Confirmed), narrate.Grouped(now.Cancelled),
			narrate.Grouped(now.owed), narrate.Grouped(now.unpublished))
		if err := d.crashes.next(now); err != nil {
			return err
		}
		if !now.same(last) {
			last, moved = now, time.Now()
		}
		switch {
		case all && now.missing() == "" && (d.crashes.done() || isClosed(closing)):
			d.story.Tell("every order has ended: %s confirmed, %s cancelled", narrate.Grouped(now.Confirmed), narrate.Grouped(now.Cancelled))
			return nil
		case time.Since(moved) > stallPatience:
			return verdict.NewUndecided("nothing has moved for %s: %s", stallPatience, now.missing())
		}
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// orders is what orders.sql returns.
type orders struct{ Placed, Pending, Confirmed, Cancelled int64 }

// state is how far everything is.
type state struct {
	orders
	unpublished, owed, dead int64
	wrote, decided          map[string]int64 // by type, by handler
}

var (
	//go:embed sql/state.sql
	stateSQL string
	//go:embed sql/orders.sql
	ordersSQL string
)

// state looks into the databases of all services.
func (d *demo) state(ctx context.Context) (state, error) {
	s := state{wrote: map[string]int64{}, decided: map[string]int64{}}
	rows, _ := d.books[order].Query(ctx, ordersSQL) // CollectOneRow reports the error
	var err error
	if s.orders, err = pgx.CollectOneRow(rows, pgx.RowToStructByPos[orders]); err != nil {
		return s, fmt.Errorf("read orders: %w", err)
	}
	for _, service := range services {
		var one state
		err := d.books[service].QueryRow(ctx, stateSQL).Scan(&one.unpublished, &one.owed, &one.dead, &one.wrote, &one.decided)
		if err != nil {
			return s, fmt.Errorf("read state of %s: %w", service, err)
		}
		s.unpublished, s.owed, s.dead = s.unpublished+one.unpublished, s.owed+one.owed, s.dead+one.dead
		maps.Copy(s.wrote, one.wrote)
		maps.Copy(s.decided, one.decided)
	}
	return s, nil
}

func (s state) same(as state) bool {
	return s.orders == as.orders && s.unpublished == as.unpublished && s.owed == as.owed && maps.Equal(s.decided, as.decided)
}

// missing says what is still to come, and is empty where nothing is. What is dead
// will not come: the proof will tell.
func (s state) missing() string {
	var all []string
	add := func(n int64, what string) {
		if n > 0 {
			all = append(all, fmt.Sprintf("%s %s", narrate.Grouped(n), what))
		}
	}
	if s.dead == 0 {
		add(s.Pending, "orders have not ended")
		for _, sub := range subscriptions {
			wrote := int64(0)
			for _, eventType := range sub.types {
				wrote += s.wrote[eventType]
			}
			add(wrote-s.decided[sub.handler], "events to come to "+sub.handler)
		}
	}
	add(s.unpublished, "events not published")
	add(s.owed, "events held")
	return strings.Join(all, ", ")
}
