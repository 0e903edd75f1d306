// Webhook is a payments service that is told of payments by webhooks. A provider
// sends each of them several times, in no order, signed with a secret that changes
// meanwhile; somebody else sends forged ones. Connections break, the handlers are
// stopped and started, and the database is away, all on purpose. At the end it
// proves with SQL that every webhook took effect once, and no other did.
//
//	go run ./examples/webhook
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
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, func() {
		stop() // the next signal ends the process
		fmt.Fprintln(os.Stderr, "\nno more webhooks; finishing what was sent (Ctrl-C again to end at once)")
	})

	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "webhook:", err)
		os.Exit(verdict.ExitStatus(err))
	}
}

// options are what the command line says.
type options struct {
	payments int
	senders  int
	seed     uint64
	timeout  time.Duration
	verbose  bool
}

func command() *cobra.Command {
	var opt options
	cmd := &cobra.Command{
		Use:           "webhook",
		Short:         "Take a provider's webhooks, and prove that each took effect once",
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return run(cmd.Context(), opt, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&opt.payments, "payments", 1200, "payments that the provider tells of; each is one to four webhooks, sent one to four times")
	flags.IntVar(&opt.senders, "senders", 12, "webhooks that it sends at the same time")
	flags.Uint64Var(&opt.seed, "seed", 1, "chooses what happens to payments, and the order of webhooks")
	flags.DurationVar(&opt.timeout, "timeout", 10*time.Minute, "give up after this time; the run is undecided then (exit status 3)")
	flags.BoolVar(&opt.verbose, "verbose", false, "show the service's log")
	return cmd
}

func (o options) validate() error {
	var faults []error
	if o.payments < 50 || o.payments > 99_999 { // of fewer little can be proved
		faults = append(faults, fmt.Errorf("--payments is %d, want 50 to 99999", o.payments))
	}
	if o.senders < 1 || o.senders > 100 {
		faults = append(faults, fmt.Errorf("--senders is %d, want 1 to 100", o.senders))
	}
	if o.timeout <= 0 {
		faults = append(faults, fmt.Errorf("--timeout is %s, want more than none", o.timeout))
	}
	return errors.Join(faults...)
}

// logger writes the service's log to w, or none of it: that connections break is
// what this is about.
func (o options) logger(w io.Writer) *slog.Logger {
	if !o.verbose {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(w, nil))
}

// run is the whole program. The end of ctx means that no more webhooks are sent;
// what was sent is brought to its end.
func run(ctx context.Context, opt options, out, progress io.Writer) (err error) {
	if err := opt.validate(); err != nil {
		return err
	}
	log := opt.logger(progress)
	server, err := devstack.StartPostgres(ctx, devstack.Config{Durable: true, Logger: log})
	if err != nil && ctx.Err() != nil {
		return errors.New("interrupted while the server was starting")
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()

	d, err := open(ctx, server, opt, log, narrate.New(progress))
	if err != nil {
		return err
	}
	defer d.close()

	running := d.play(ctx)
	result, err := d.judge(running)
	if err != nil {
		return errors.Join(running, err)
	}
	return errors.Join(result.write(out), result.verdict())
}
