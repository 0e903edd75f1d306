// Shop is a shop on real servers. Clients place orders, and an event tells of each order. When the
// event of an order comes, billing charges the order and analytics counts it. On purpose, some
// orders are rolled back, some transactions stay open for long, and some events are delivered
// twice. At the end the program proves with SQL that nothing was lost, nothing was made up and
// nothing happened twice.
//
//	go run ./examples/shop
package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/examples/internal/demo"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devstack"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/outbox"
	"github.com/postroom/postroom/relay"
)

func main() { demo.Main(command(), "no more orders; finishing what was placed") }

// options are the values of the flags.
type options struct {
	orders  int
	clients int
	seed    uint64
	json    bool
	timeout time.Duration
}

func command() *cobra.Command {
	var opt options
	cmd := demo.Command("shop", "Move a shop's orders through Postroom and prove that each took effect once",
		func() error { return opt.validate() },
		func(ctx context.Context, out, progress io.Writer) error { return run(ctx, opt, out, progress) })
	flags := cmd.Flags()
	flags.IntVar(&opt.orders, "orders", 20_000, "orders to commit; in addition, about a tenth of this number is rolled back")
	flags.IntVar(&opt.clients, "clients", 6, "clients that place orders at the same time")
	flags.Uint64Var(&opt.seed, "seed", 1, "chooses customers, amounts and which orders fail")
	flags.BoolVar(&opt.json, "json", false, "print the result as one line of JSON instead of a table, and no progress")
	demo.TimeoutFlag(cmd, &opt.timeout)
	return cmd
}

func (o options) validate() error {
	return errors.Join(
		demo.AtLeast("orders", o.orders, 1),
		demo.Between("clients", o.clients, 1, 100),
		demo.Positive("timeout", o.timeout),
	)
}

// run is the whole program: servers, shop, proof and report. If ctx ends, the clients place no more
// orders, and the shop finishes the placed orders.
func run(ctx context.Context, opt options, out, progress io.Writer) error {
	log := demo.Log(progress, slog.LevelWarn)
	return demo.With(ctx, devstack.Start, log, func(servers *devstack.Stack) error {
		d, err := open(ctx, servers, opt, log, demo.NewStory(demo.Verbose(!opt.json, progress)))
		if err != nil {
			return err
		}
		defer d.Close()
		running := d.play(ctx)
		result, err := d.judge(running)
		if err != nil {
			return errors.Join(running, err)
		}
		if err := result.write(out, opt.json); err != nil {
			return errors.Join(running, err)
		}
		return errors.Join(running, result.verdict())
	})
}

// wire makes the parts of Postroom: two outboxes, a relay, and an inbox with two handlers.
func (d *deployment) wire() {
	d.shop = &shop{pool: d.Pool, outbox: outbox.New(outbox.Config{Source: "/shop"})}
	billing := &biller{outbox: outbox.New(outbox.Config{Source: "/billing"})}

	d.relay = relay.New(d.Pool, natsjs.NewPublisher(d.NATS),
		relay.Config{Logger: d.log, MeterProvider: d.meters.provider})

	d.inbox = inbox.New(d.Pool, d.NATS, inbox.Config{Logger: d.log, MeterProvider: d.meters.provider})
	d.inbox.Handle(inbox.Subscription{Name: billingCharge, Stream: stream, Workers: workers},
		orderPlaced.Handler(billing.charge))
	d.inbox.Handle(inbox.Subscription{Name: analyticsCount, Stream: stream, Workers: workers},
		orderPlaced.Handler(count))

	d.copier = &copier{nc: d.NATS}
}

// play runs all parts until every order has taken effect, and lets them drain.
func (d *deployment) play(ctx context.Context) error {
	work, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.opt.timeout)
	defer cancel()
	return postroom.Run(work, d.relay, d.inbox, d.copier, &customers{deployment: d, closing: ctx.Done()})
}
