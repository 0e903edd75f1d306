package main

import (
	"context"
	_ "embed" // the statements
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/postroom/postroom/examples/internal/demo"
)

// play runs the services until every saga has ended. Meanwhile it kills services and starts them
// again. If ctx ends, the customers place no more orders.
func (d *deployment) play(ctx context.Context) error {
	work, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.opt.timeout)
	defer cancel()
	for _, service := range services {
		pid, err := d.staff.start(service)
		if err != nil {
			return err
		}
		d.story.Tell("%s runs, with a database of its own (process %d)", service, pid)
	}
	d.story.Tell("%s orders are placed, %d in a second", demo.Grouped(int64(d.opt.orders)), d.opt.rate)
	unhook := context.AfterFunc(ctx, d.staff.stopPlacing)
	defer unhook()
	err := d.watch(work, ctx.Done())
	d.story.End()
	return errors.Join(err, d.staff.end())
}

// watch prints the progress and kills services. It returns when all orders have ended and all kills
// have happened.
func (d *deployment) watch(ctx context.Context, closing <-chan struct{}) error {
	return demo.Watch(ctx, d.opt.timeout, 50*time.Millisecond, func(ctx context.Context) (demo.Progress, error) {
		if err := d.staff.fallen(); err != nil {
			return demo.Progress{}, err
		}
		all := d.staff.allPlaced() // read before the state: if all orders are placed, the state has all of them
		now, err := d.books.state(ctx)
		if err != nil {
			return demo.Progress{}, err
		}
		d.story.Progress("placed %s of %s, pending %s, confirmed %s, cancelled %s; owed %s, not published %s",
			demo.Grouped(now.Placed), demo.Grouped(int64(d.opt.orders)), demo.Grouped(now.Pending), demo.Grouped(now.Confirmed), demo.Grouped(now.Cancelled),
			demo.Grouped(now.owed), demo.Grouped(now.unpublished))
		if err := d.crashes.next(now); err != nil {
			return demo.Progress{}, err
		}
		missing := now.missing()
		done := all && missing == "" && (d.crashes.done() || demo.IsClosed(closing))
		if done {
			d.story.Tell("every order has ended: %s confirmed, %s cancelled", demo.Grouped(now.Confirmed), demo.Grouped(now.Cancelled))
		}
		return demo.Progress{Done: done, Mark: now.mark(), Missing: missing}, nil
	})
}

// orders is the row that orders.sql returns.
type orders struct{ Placed, Pending, Confirmed, Cancelled int64 }

// state is the progress of the run.
type state struct {
	orders
	unpublished, owed, dead int64
	wrote, decided          map[string]int64 // events written, by type; events decided, by handler
}

var (
	//go:embed sql/state.sql
	stateSQL string
	//go:embed sql/orders.sql
	ordersSQL string
)

// state reads the databases of all services.
func (b books) state(ctx context.Context) (state, error) {
	s := state{wrote: map[string]int64{}, decided: map[string]int64{}}
	var err error
	if s.orders, err = demo.Row[orders](ctx, b[order].Pool, ordersSQL); err != nil {
		return s, fmt.Errorf("read orders: %w", err)
	}
	for _, service := range services {
		var one state
		err := b[service].Pool.QueryRow(ctx, stateSQL).Scan(&one.unpublished, &one.owed, &one.dead, &one.wrote, &one.decided)
		if err != nil {
			return s, fmt.Errorf("read state of %s: %w", service, err)
		}
		s.unpublished, s.owed, s.dead = s.unpublished+one.unpublished, s.owed+one.owed, s.dead+one.dead
		maps.Copy(s.wrote, one.wrote)
		maps.Copy(s.decided, one.decided)
	}
	return s, nil
}

// mark returns a text that changes when an order or an event makes progress.
func (s state) mark() string {
	return fmt.Sprint(s.orders, s.unpublished, s.owed, s.decided)
}

// missing returns a text that lists the work that is left, or "" if no work is left. If an event is
// dead, some orders may never end, and some events may never be decided. Then the text leaves out
// orders that have not ended and events that handlers have not decided. The proof reports both.
func (s state) missing() string {
	var all demo.Todo
	if s.dead == 0 {
		all.Add(s.Pending, "orders have not ended")
		for _, sub := range subscriptions() {
			wrote := int64(0)
			for _, eventType := range sub.Types {
				wrote += s.wrote[eventType]
			}
			all.Add(wrote-s.decided[sub.Name], "events to come to "+sub.Name)
		}
	}
	all.Add(s.unpublished, "events not published")
	all.Add(s.owed, "events held")
	return all.String()
}
