// Saga is a shop of three services: order, payment and stock. Each service is a process with a
// database of its own. The services exchange nothing but events. The order service runs a saga for
// each order: the order is paid, its goods are reserved, and it is confirmed. If a step fails, the
// steps before it are undone. Meanwhile the program kills the services and starts them again. At
// the end the program proves with SQL over all databases that every order ended in one way, and
// that money and goods add up.
//
//	go run ./examples/saga
package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/postroom/postroom/examples/internal/demo"
	"github.com/postroom/postroom/internal/childproc"
	"github.com/postroom/postroom/internal/devstack"
	"github.com/postroom/postroom/internal/verdict"
)

func main() {
	if served, err := childproc.Serve(roles); served { // this is a process of a service
		demo.Exit("saga", err)
		return
	}
	demo.Main(command(), "no more orders; finishing what was placed")
}

// options are the values of the flags.
type options struct {
	orders   int
	rate     int
	kills    int
	seed     uint64
	patience time.Duration
	timeout  time.Duration
	verbose  bool
}

func command() *cobra.Command {
	var opt options
	cmd := demo.Command("saga", "Take orders through three services that crash, and prove that each ended in one way",
		func() error { return opt.validate() },
		func(ctx context.Context, out, progress io.Writer) error { return run(ctx, opt, out, progress) })
	flags := cmd.Flags()
	flags.IntVar(&opt.orders, "orders", 480, "orders to place")
	flags.IntVar(&opt.rate, "rate", 120, "orders to place in a second")
	flags.IntVar(&opt.kills, "kills", 5, "how often a service is killed meanwhile")
	flags.Uint64Var(&opt.seed, "seed", 1, "chooses customers and goods")
	flags.DurationVar(&opt.patience, "patience", 3*time.Second, "how long a step may take before the order is given up")
	demo.TimeoutFlag(cmd, &opt.timeout)
	flags.BoolVar(&opt.verbose, "verbose", false, "show the services' logs")
	return cmd
}

func (o options) validate() error {
	return errors.Join(
		demo.Between("orders", o.orders, 100, 99_999), // fewer would prove little
		demo.Between("rate", o.rate, 1, 1000),
		demo.Between("kills", o.kills, 0, 100),
		demo.AtLeast("patience", o.patience, time.Second),
		demo.Positive("timeout", o.timeout),
	)
}

// The constant tries is the most runs that the program makes. Each run has moreEach times the
// patience of the run before.
const (
	tries    = 3
	moreEach = 4 // times
)

// run is the whole program. If ctx ends, the customers place no more orders, and the services
// finish the placed orders.
//
// On a busy machine all orders can run out of time. Then the run proves nothing about confirmed
// orders, and the program runs again with more patience.
func run(ctx context.Context, opt options, out, progress io.Writer) error {
	for try := 1; ; try++ {
		r, err := once(ctx, opt, progress)
		if err != nil {
			return err
		}
		if err := r.verdict(); r.Running != nil || !verdict.IsUndecided(err) || try == tries || ctx.Err() != nil {
			return errors.Join(r.write(out), err)
		}
		demo.NewStory(progress).Tell("%v; once more, with a patience of %s for each order", r.verdict(), moreEach*opt.patience)
		opt.patience *= moreEach
	}
}

// once makes one run, on servers of its own.
func once(ctx context.Context, opt options, progress io.Writer) (r *result, err error) {
	log := demo.Verbose(opt.verbose, progress)
	err = demo.With(ctx, devstack.Start, demo.Log(log, slog.LevelInfo), func(servers *devstack.Stack) (err error) {
		d, err := open(ctx, servers, opt, log, demo.NewStory(progress))
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, d.close()) }()
		running := d.play(ctx)
		if r, err = d.judge(running, ctx.Err() != nil); err != nil {
			return errors.Join(running, err)
		}
		return nil
	})
	return r, err
}
