// Saga is a shop of three services, order, payment and stock, each a process with a
// database of its own, that know one another by events only. An order is paid, its
// goods are reserved, and it is confirmed; where one step fails, those before it are
// undone. The services are killed in the midst of that and started again. At the end
// the program proves with SQL over all databases that every order ended in one way,
// and that money and goods add up.
//
//	go run ./examples/saga
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/postroom/postroom/examples/internal/narrate"
	"github.com/postroom/postroom/internal/devstack"
	"github.com/postroom/postroom/internal/verdict"
)

func main() {
	if served, err := serveJob(); served { // this is a process of a service
		exit(err)
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, func() {
		stop() // the next signal ends the process, and the services with it
		fmt.Fprintln(os.Stderr, "\nno more orders; finishing what was placed (Ctrl-C again to end at once)")
	})
	exit(command().ExecuteContext(ctx))
}

// exit ends the process with status 1 if something is wrong, and with 3 if the run is
// undecided.
func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "saga:", err)
		os.Exit(verdict.ExitStatus(err))
	}
}

// options are what the command line says.
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
	cmd := &cobra.Command{
		Use:           "saga",
		Short:         "Take orders through three services that crash, and prove that each ended in one way",
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return run(cmd.Context(), opt, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&opt.orders, "orders", 480, "orders to place")
	flags.IntVar(&opt.rate, "rate", 120, "orders to place in a second")
	flags.IntVar(&opt.kills, "kills", 5, "how often a service is killed meanwhile")
	flags.Uint64Var(&opt.seed, "seed", 1, "chooses customers and goods")
	flags.DurationVar(&opt.patience, "patience", 3*time.Second, "how long an order may take before it is given up")
	flags.DurationVar(&opt.timeout, "timeout", 10*time.Minute, "give up after this time; the run is undecided then (exit status 3)")
	flags.BoolVar(&opt.verbose, "verbose", false, "show the services' logs")
	return cmd
}

func (o options) validate() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if o.orders < 100 || o.orders > 99_999 { // of fewer little can be proved
		fault("--orders is %d, want 100 to 99999", o.orders)
	}
	if o.rate < 1 || o.rate > 1000 {
		fault("--rate is %d, want 1 to 1000", o.rate)
	}
	if o.kills < 0 || o.kills > 100 {
		fault("--kills is %d, want 0 to 100", o.kills)
	}
	if o.patience < time.Second {
		fault("--patience is %s, want 1s or more", o.patience)
	}
	if o.timeout <= 0 {
		fault("--timeout is %s, want more than none", o.timeout)
	}
	return errors.Join(faults...)
}

// The most that a run is made, each time with more patience for each order.
const (
	tries    = 3
	moreEach = 4 // times
)

// run is the whole program. The end of ctx means that no more orders are placed; what
// was placed is brought to its end.
//
// On a busy machine orders can run out of time one and all, and then nothing is proved
// of those that are confirmed. The run is made again with more patience.
func run(ctx context.Context, opt options, out, progress io.Writer) error {
	if err := opt.validate(); err != nil {
		return err
	}
	for try := 1; ; try++ {
		r, err := once(ctx, opt, progress)
		if err != nil {
			return err
		}
		if err := r.verdict(); r.running != nil || !verdict.IsUndecided(err) || try == tries || ctx.Err() != nil {
			return errors.Join(r.write(out), err)
		}
		narrate.New(progress).Tell("%v; once more, with a patience of %s for each order", r.verdict(), moreEach*opt.patience)
		opt.patience *= moreEach
	}
}

// once is one run on servers of its own.
func once(ctx context.Context, opt options, progress io.Writer) (_ *result, err error) {
	log := io.Discard
	if opt.verbose {
		log = progress
	}
	servers, err := devstack.Start(ctx, devstack.Config{Durable: true, Logger: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil && ctx.Err() != nil {
		return nil, errors.New("interrupted while the servers were starting")
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, servers.Close()) }()

	d, err := open(ctx, servers, opt, log, narrate.New(progress))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.close()) }()

	running := d.play(ctx)
	result, err := d.judge(running, ctx.Err() != nil)
	if err != nil {
		return nil, errors.Join(running, err)
	}
	return result, nil
}
