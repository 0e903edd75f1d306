// Refunds is a payment service whose requests may be repeated. Charges and refunds carry
// an Idempotency-Key; the money is moved by a provider over the network, who is out of
// order at times and whose answers get lost. The service runs as two processes on one
// database, and is killed in the midst of requests. At the end the program proves with
// SQL that each key had one effect: one row, one entry in the ledger, one event, and one
// movement at the provider.
//
//	go run ./examples/refunds
//
// With --addr it serves, for requests of your own.
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
	"github.com/postroom/postroom/internal/fleet"
	"github.com/postroom/postroom/internal/verdict"
)

func main() {
	if served, err := fleet.Serve(roles); served { // this is a process of the service
		exit(err)
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the next signal ends the process, and the service with it
	exit(command().ExecuteContext(ctx))
}

// exit ends the process with status 1 if something is wrong, and with 3 if the run is
// undecided.
func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "refunds:", err)
		os.Exit(verdict.ExitStatus(err))
	}
}

// options are what the command line says.
type options struct {
	addresses []string
	twins     int
	timeout   time.Duration
	verbose   bool
}

func command() *cobra.Command {
	var opt options
	cmd := &cobra.Command{
		Use:           "refunds",
		Short:         "Charge and refund through a provider, and prove that each key had one effect",
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return run(cmd.Context(), opt, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&opt.addresses, "addr", nil, "serve at this address until Ctrl-C, instead of the walk-through; given again, by another process on the same database")
	flags.IntVar(&opt.twins, "twins", 60, "requests with one key at once")
	flags.DurationVar(&opt.timeout, "timeout", 10*time.Minute, "give up the walk-through after this time; the run is undecided then (exit status 3)")
	flags.BoolVar(&opt.verbose, "verbose", false, "show the service's log")
	return cmd
}

func (o options) validate() error {
	var faults []error
	if o.twins < 2 || o.twins > 500 {
		faults = append(faults, fmt.Errorf("--twins is %d, want 2 to 500", o.twins))
	}
	if o.timeout <= 0 {
		faults = append(faults, fmt.Errorf("--timeout is %s, want more than none", o.timeout))
	}
	return errors.Join(faults...)
}

// run is the whole program: servers, provider, service, and either the walk-through with
// its proof or, until ctx ends, whoever asks.
func run(ctx context.Context, opt options, out, progress io.Writer) (err error) {
	if err := opt.validate(); err != nil {
		return err
	}
	log := io.Discard
	if opt.verbose {
		log = progress
	}
	servers, err := devstack.Start(ctx, devstack.Config{Durable: true, Logger: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil && ctx.Err() != nil {
		return errors.New("interrupted while the servers were starting")
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, servers.Close()) }()

	d, err := open(ctx, servers, opt, progress, narrate.New(progress))
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
}
