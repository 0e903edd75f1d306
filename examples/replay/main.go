// Replay plays a night at a shop. The shop cannot charge orders in euros, because it has no
// exchange rate for them. It cannot charge orders with a comma in their amount either. The events
// of all these orders die. An operator looks at the causes, tries a dry run, repairs the cause,
// replays ten events first and then the rest, edits the orders with a comma, and discards one
// event. At the end the program proves with SQL that every effect happened exactly once.
//
//	go run ./examples/replay
package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/postroom/postroom/examples/internal/demo"
	"github.com/postroom/postroom/internal/devstack"
)

func main() { demo.Main(command(), "") }

// options are the values of the flags.
type options struct {
	orders  int
	seed    uint64
	timeout time.Duration
}

func command() *cobra.Command {
	var opt options
	cmd := demo.Command("replay", "Let events die, and bring them back to life with every effect exactly once",
		func() error { return opt.validate() },
		func(ctx context.Context, out, progress io.Writer) error { return run(ctx, opt, out, progress) })
	flags := cmd.Flags()
	flags.IntVar(&opt.orders, "orders", 2000, "orders to place; a third of them is in euros, 1 in 100 has a comma in its amount")
	flags.Uint64Var(&opt.seed, "seed", 1, "chooses amounts")
	demo.TimeoutFlag(cmd, &opt.timeout)
	return cmd
}

// validate wants at least two orders with a comma, because the operator corrects all but one. It
// wants at most 1,000 such orders, because package deadletter lists no more than 1,000 at once.
func (o options) validate() error {
	return errors.Join(demo.Between("orders", o.orders, 200, 100_000), demo.Positive("timeout", o.timeout))
}

// run is the whole program: it starts the servers, plays the night and runs the proof.
func run(ctx context.Context, opt options, out, progress io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, opt.timeout)
	defer cancel()
	return demo.With(ctx, devstack.Start, demo.Log(progress, slog.LevelWarn), func(servers *devstack.Stack) error {
		s, err := open(ctx, servers, opt)
		if err != nil {
			return err
		}
		defer s.Close()
		night := &night{shop: s, out: out}
		if err := s.during(ctx, night.pass); err != nil {
			return err
		}
		return night.prove(ctx)
	})
}
