// Replay is a night at a shop. Orders in euros cannot be charged, because a rate is
// missing; some orders were written with a comma in their amount. Their events die.
// An operator looks at what killed them, tries a replay dry, mends what is wrong,
// replays ten first and then the rest, edits what has to be edited, and gives one up.
// At the end it proves with SQL that every effect happened exactly once.
//
//	go run ./examples/replay
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

	"github.com/postroom/postroom/internal/devstack"
	"github.com/postroom/postroom/internal/verdict"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the next signal ends the process
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "replay:", err)
		os.Exit(verdict.ExitStatus(err))
	}
}

// options are what the command line says.
type options struct {
	orders  int
	seed    uint64
	timeout time.Duration
}

func command() *cobra.Command {
	var opt options
	cmd := &cobra.Command{
		Use:           "replay",
		Short:         "Let events die, and bring them back to life with every effect exactly once",
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return run(cmd.Context(), opt, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&opt.orders, "orders", 2000, "orders to place; a third of them is in euros, 1 in 100 has a comma in its amount")
	flags.Uint64Var(&opt.seed, "seed", 1, "chooses amounts")
	flags.DurationVar(&opt.timeout, "timeout", 10*time.Minute, "give up after this time; the run is undecided then (exit status 3)")
	return cmd
}

func (o options) validate() error {
	var faults []error
	if o.orders < 100 || o.orders > 1_000_000 {
		faults = append(faults, fmt.Errorf("--orders is %d, want 100 to 1000000", o.orders))
	}
	if o.timeout <= 0 {
		faults = append(faults, fmt.Errorf("--timeout is %s, want more than none", o.timeout))
	}
	return errors.Join(faults...)
}

// run is the whole night: servers, orders, deaths, the operator, the proof.
func run(ctx context.Context, opt options, out, progress io.Writer) (err error) {
	if err := opt.validate(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, opt.timeout)
	defer cancel()
	servers, err := devstack.Start(ctx, devstack.Config{Durable: true, Logger: slog.New(slog.NewTextHandler(progress, &slog.HandlerOptions{Level: slog.LevelWarn}))})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, servers.Close()) }()
	s, err := open(ctx, servers, opt)
	if err != nil {
		return err
	}
	defer s.close()

	night := &night{shop: s, out: out}
	if err := s.during(ctx, night.pass); err != nil {
		return err
	}
	return night.prove(ctx)
}
