// Refunds is a payment service whose requests may be repeated. Charges and refunds carry an
// Idempotency-Key. The service calls a provider, which moves the money. Sometimes the provider
// fails, and sometimes its answers get lost. The service runs as two processes on one database. The
// program kills processes during requests. At the end the program proves with SQL that each key had
// one effect: one row, one entry in the ledger, one event, and one movement at the provider.
//
//	go run ./examples/refunds
//
// With --addr the program serves your own requests.
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
)

func main() {
	if served, err := childproc.Serve(roles); served { // this is a process of the service
		demo.Exit("refunds", err)
		return
	}
	demo.Main(command(), "")
}

// options are the values of the flags.
type options struct {
	addresses []string
	twins     int
	timeout   time.Duration
	verbose   bool
}

func command() *cobra.Command {
	var opt options
	cmd := demo.Command("refunds", "Charge and refund through a provider, and prove that each key had one effect",
		func() error { return opt.validate() },
		func(ctx context.Context, out, progress io.Writer) error { return run(ctx, opt, out, progress) })
	flags := cmd.Flags()
	flags.StringSliceVar(&opt.addresses, "addr", nil, "serve at this address until Ctrl-C, instead of the walk-through; if repeated, another process on the same database serves at the second address")
	flags.IntVar(&opt.twins, "twins", 60, "how many requests with the same key are sent at once")
	demo.TimeoutFlag(cmd, &opt.timeout)
	flags.BoolVar(&opt.verbose, "verbose", false, "show the service's log")
	return cmd
}

func (o options) validate() error {
	return errors.Join(demo.Between("twins", o.twins, 2, 500), demo.Positive("timeout", o.timeout))
}

// run is the whole program. It starts the servers and the provider. Then it runs the walk-through
// and its proof. With --addr the program instead serves requests until ctx ends.
func run(ctx context.Context, opt options, out, progress io.Writer) error {
	log := demo.Log(demo.Verbose(opt.verbose, progress), slog.LevelInfo)
	return demo.With(ctx, devstack.Start, log, func(servers *devstack.Stack) (err error) {
		d, err := open(ctx, servers, opt, progress, demo.NewStory(progress))
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, d.close()) }()
		if len(opt.addresses) > 0 {
			return d.serve(ctx)
		}
		result, err := d.judge(d.play(ctx))
		if err != nil {
			return err
		}
		return errors.Join(result.write(out), result.verdict())
	})
}
