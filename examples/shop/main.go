// Shop is one on real servers. Clients place orders; billing charges
// each one and analytics counts it, both told by events. Some orders are rolled
// back, some transactions stay open for long, and some events are delivered
// twice, all on purpose. At the end it proves with SQL that nothing was lost,
// nothing was made up and nothing happened twice.
//
//	go run ./examples/shop
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devstack"
	"github.com/postroom/postroom/internal/verdict"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/outbox"
	"github.com/postroom/postroom/relay"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, func() {
		stop() // the next signal ends the process
		fmt.Fprintln(os.Stderr, "\nno more orders; finishing what was placed (Ctrl-C again to end at once)")
	})

	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "shop:", err)
		os.Exit(verdict.ExitStatus(err))
	}
}

// options are what the command line says.
type options struct {
	orders  int
	clients int
	seed    uint64
	json    bool
	timeout time.Duration
}

func command() *cobra.Command {
	var opt options
	cmd := &cobra.Command{
		Use:           "shop",
		Short:         "Move a shop's orders through Postroom and prove that each took effect once",
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return run(cmd.Context(), opt, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&opt.orders, "orders", 20_000, "orders to commit; about one in ten more is rolled back")
	flags.IntVar(&opt.clients, "clients", 6, "clients that place orders at the same time")
	flags.Uint64Var(&opt.seed, "seed", 1, "chooses customers, amounts and which orders fail")
	flags.BoolVar(&opt.json, "json", false, "print the result as one line of JSON instead of a table, and no progress")
	flags.DurationVar(&opt.timeout, "timeout", 10*time.Minute, "give up after this time; the run is undecided then (exit status 3)")
	return cmd
}

func (o options) validate() error {
	var faults []error
	if o.orders < 1 {
		faults = append(faults, fmt.Errorf("--orders is %d, want 1 or more", o.orders))
	}
	if o.clients < 1 || o.clients > 100 {
		faults = append(faults, fmt.Errorf("--clients is %d, want 1 to 100", o.clients))
	}
	if o.timeout <= 0 {
		faults = append(faults, fmt.Errorf("--timeout is %s, want more than none", o.timeout))
	}
	return errors.Join(faults...)
}

// run is the whole program: servers, shop, report, proof. The end of ctx means
// that no more orders are placed; what was placed is brought to its end.
func run(ctx context.Context, opt options, out, progress io.Writer) (err error) {
	if err := opt.validate(); err != nil {
		return err
	}
	log := logger(progress)
	servers, err := devstack.Start(ctx, devstack.Config{Durable: true, Logger: log})
	if err != nil && ctx.Err() != nil {
		return errors.New("interrupted while the servers were starting")
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, servers.Close()) }()

	d, err := open(ctx, servers, opt, log)
	if err != nil {
		return err
	}
	defer d.close()

	running := d.play(ctx, newProgress(progress, opt))
	result, err := d.judge(running)
	if err != nil {
		return errors.Join(running, err)
	}
	if err := result.write(out, opt.json); err != nil {
		return errors.Join(running, err)
	}
	return errors.Join(running, result.verdict())
}

// wire puts the parts of Postroom together. This is all there is to it: two
// outboxes to write to, a relay, and an inbox with two handlers.
func (d *demo) wire() {
	d.shop = outbox.New(outbox.Config{Source: "/shop"})
	d.billing = outbox.New(outbox.Config{Source: "/billing"})

	d.relay = relay.New(outbox.NewLog(d.pool), natsjs.NewPublisher(d.nc),
		relay.Config{Logger: d.log, MeterProvider: d.meters.provider})

	d.inbox = inbox.New(d.pool, d.nc, inbox.Config{Logger: d.log, MeterProvider: d.meters.provider})
	d.inbox.Handle(inbox.Subscription{Name: billingCharge, Stream: stream, Types: []string{orderPlaced}, Workers: workers},
		postroom.JSON(d.charge))
	d.inbox.Handle(inbox.Subscription{Name: analyticsCount, Stream: stream, Types: []string{orderPlaced}, Workers: workers},
		postroom.JSON(d.count))
}

// play runs all parts until every order has taken effect, and lets them drain.
func (d *demo) play(ctx context.Context, show *progress) error {
	work, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.opt.timeout)
	defer cancel()
	customers := &customers{demo: d, closing: ctx.Done(), show: show}
	return postroom.Run(work, d.relay, d.inbox, d.copier, customers)
}
