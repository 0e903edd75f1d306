// Webhook is a payments service that learns of payments by webhooks. A provider sends the webhooks
// in random order, many of them several times. It signs them with a secret, and changes the secret
// during the run. An attacker sends forged webhooks. On purpose, connections break, the handlers
// stop and start again, and the database refuses connections for a while. At the end the program
// proves with SQL that every genuine webhook took effect once, and no other webhook took effect.
//
//	go run ./examples/webhook
package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/postroom/postroom/examples/internal/demo"
	"github.com/postroom/postroom/internal/devstack"
)

func main() { demo.Main(command(), "no more webhooks; finishing what was sent") }

// options are the values of the flags.
type options struct {
	payments int
	senders  int
	seed     uint64
	timeout  time.Duration
	verbose  bool
	serve    string
}

func command() *cobra.Command {
	var opt options
	cmd := demo.Command("webhook", "Take a provider's webhooks, and prove that each took effect once",
		func() error { return opt.validate() },
		func(ctx context.Context, out, progress io.Writer) error { return run(ctx, opt, out, progress) })
	flags := cmd.Flags()
	flags.IntVar(&opt.payments, "payments", 1200, "payments that the provider tells of; each payment causes one to five webhooks, and the provider sends each webhook one to four times")
	flags.IntVar(&opt.senders, "senders", 12, "webhooks that the provider sends at the same time")
	flags.Uint64Var(&opt.seed, "seed", 1, "chooses what happens to payments, and the order of webhooks")
	flags.StringVar(&opt.serve, "serve", "", "only take webhooks at this address, until Ctrl-C; they must be signed with the secret in the environment variable WEBHOOK_SECRET")
	demo.TimeoutFlag(cmd, &opt.timeout)
	flags.BoolVar(&opt.verbose, "verbose", false, "show the service's log")
	return cmd
}

func (o options) validate() error {
	return errors.Join(
		demo.Between("payments", o.payments, 50, 99_999), // fewer would prove little
		demo.Between("senders", o.senders, 1, 100),
		demo.Positive("timeout", o.timeout),
	)
}

// run is the whole program. If ctx ends, the provider sends no more webhooks, and the service
// handles the webhooks that were sent.
func run(ctx context.Context, opt options, out, progress io.Writer) error {
	log := demo.Log(demo.Verbose(opt.verbose, progress), slog.LevelInfo)
	return demo.With(ctx, devstack.StartPostgres, log, func(server *devstack.Postgres) error {
		if opt.serve != "" {
			return serve(ctx, server, opt.serve, os.Getenv("WEBHOOK_SECRET"), log, progress)
		}
		d, err := open(ctx, server, opt, log, demo.NewStory(progress))
		if err != nil {
			return err
		}
		defer d.close()
		result, err := d.judge(d.play(ctx))
		if err != nil {
			return err
		}
		return errors.Join(result.Write(out, "", "the service's tables and the provider's books", result.summary()), result.verdict())
	})
}
