// Package relaycmd has the command relay, which runs a relay.
package relaycmd

import (
	"context"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/postroom/postroom/cmd/postroom/internal/argument"
	"github.com/postroom/postroom/cmd/postroom/internal/broker"
	"github.com/postroom/postroom/cmd/postroom/internal/command"
	"github.com/postroom/postroom/cmd/postroom/internal/database"
	"github.com/postroom/postroom/cmd/postroom/internal/exit"
	"github.com/postroom/postroom/cmd/postroom/internal/health"
	"github.com/postroom/postroom/cmd/postroom/internal/pausecmd"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/relay"
	port "github.com/postroom/postroom/relay/broker"
)

// options has the values of the flags.
type options struct {
	db        database.Target
	broker    *broker.Target
	cfg       relay.Config
	accept    []string
	listen    string
	logFormat string
}

// defaultWindow is the default of --window without --atomic.
const defaultWindow = 4096

// The list variables names the environment variable of each flag.
var variables = []struct{ flag, name string }{
	{"nats-creds", "POSTROOM_NATS_CREDS"},
	{"stream", "POSTROOM_RELAY_STREAM"},
	{"accept", "POSTROOM_RELAY_ACCEPT"},
	{"check-every", "POSTROOM_RELAY_CHECK_EVERY"},
	{"atomic", "POSTROOM_RELAY_ATOMIC"},
	{"window", "POSTROOM_RELAY_WINDOW"},
	{"max-unpublished", "POSTROOM_RELAY_MAX_UNPUBLISHED"},
	{"lease", "POSTROOM_RELAY_LEASE"},
	{"idle-poll", "POSTROOM_RELAY_IDLE_POLL"},
	{"retention", "POSTROOM_RELAY_RETENTION"},
	{"drain-timeout", "POSTROOM_RELAY_DRAIN_TIMEOUT"},
	{"listen", "POSTROOM_RELAY_LISTEN"},
	{"log-format", "POSTROOM_RELAY_LOG_FORMAT"},
}

// New returns the command relay.
func New(getenv func(string) string) *cobra.Command {
	return newOptions(getenv).command(getenv)
}

func newOptions(getenv func(string) string) *options {
	return &options{db: database.New(getenv), broker: broker.New(getenv)}
}

// command returns the command that runs a relay with these options.
func (w *options) command(getenv func(string) string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "relay",
		Short: "Publish committed events until a signal",
		Long:  help,
		Example: `  postroom relay --database-url postgres://localhost/shop --nats-url nats://localhost:4222
  postroom relay --listen 127.0.0.1:8087 --log-format json --drain-timeout 25s
  postroom relay --stream SHOP --accept memory-storage --schema shop`,
		Args: command.Subcommands,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := w.complete(cmd, getenv); err != nil {
				return err
			}
			return w.run(cmd.Context(), cmd.ErrOrStderr())
		},
	}
	w.db.AddURLFlag(cmd)
	w.db.AddSchemaFlag(cmd)
	w.broker.AddFlags(cmd)
	cmd.AddCommand(pausecmd.NewRelayPause(getenv), pausecmd.NewRelayResume(getenv))
	flags := cmd.Flags()
	flags.StringSliceVar(&w.cfg.Streams, "stream", nil, "streams to check (default those that store the subjects in use)")
	flags.StringSliceVar(&w.accept, "accept", nil, "accept streams that have these risks: "+strings.Join(risks(), ", "))
	flags.DurationVar(&w.cfg.CheckEvery, "check-every", time.Minute, "how often to check the streams")
	flags.BoolVar(&w.cfg.Atomic, "atomic", false, "publish in atomic batches, to streams that accept them")
	flags.IntVar(&w.cfg.Window, "window", defaultWindow, "how many sent events may wait for their acknowledgements (with --atomic the default is 3000)")
	flags.IntVar(&w.cfg.MaxUnpublished, "max-unpublished", 10_000, "how many events the relay may have read from the log and not yet published")
	flags.DurationVar(&w.cfg.Lease, "lease", 0, "after a crash of the leader, another relay leads after this time (default 5s, or up to 30s if the database is slow)")
	flags.DurationVar(&w.cfg.IdlePoll, "idle-poll", 250*time.Millisecond, "longest wait between two reads of the log")
	flags.DurationVar(&w.cfg.Retention, "retention", 72*time.Hour, "how long published events stay in the log; -1s means for ever")
	flags.DurationVar(&w.cfg.DrainTimeout, "drain-timeout", 10*time.Second, "after a signal, how long to wait for acknowledgements")
	flags.StringVar(&w.listen, "listen", "", "address of the health and metrics endpoints, for instance 127.0.0.1:8087 (default none)")
	flags.StringVar(&w.logFormat, "log-format", "text", "format of the log: text or json")
	for _, v := range variables {
		flags.Lookup(v.flag).Usage += " (env " + v.name + ")"
		switch v.flag {
		case "nats-creds": // it names a file, and the shell completes names of files
		case "accept", "log-format": // check makes the shell complete their words
		default:
			command.NoFileCompletion(cmd, v.flag)
		}
	}
	w.check(cmd)
	return cmd
}

// risks returns the names that --accept accepts.
func risks() []string {
	var names []string
	for _, risk := range natsjs.Risks() {
		names = append(names, string(risk))
	}
	return names
}

// complete reads the environment and checks the options.
func (w *options) complete(cmd *cobra.Command, getenv func(string) string) error {
	if err := w.fromEnvironment(cmd, getenv); err != nil {
		return err
	}
	for _, name := range w.accept {
		w.cfg.AcceptRisks = append(w.cfg.AcceptRisks, port.Risk(name))
	}
	if w.cfg.Atomic && !cmd.Flags().Changed("window") { // with 0 the relay chooses its default for atomic batches
		w.cfg.Window = 0
	}
	return nil
}

// fromEnvironment sets each flag from its environment variable, if the command line does not set
// the flag.
func (w *options) fromEnvironment(cmd *cobra.Command, getenv func(string) string) error {
	for _, v := range variables {
		flag, value := cmd.Flags().Lookup(v.flag), getenv(v.name)
		if flag.Changed || value == "" {
			continue
		}
		if err := cmd.Flags().Set(v.flag, value); err != nil {
			return exit.Usagef("%s has no valid value for --%s: %s", v.name, v.flag, argument.Want(flag))
		}
	}
	return nil
}

// check makes the flags refuse values that the relay would refuse.
func (w *options) check(cmd *cobra.Command) {
	c := &w.cfg
	argument.Check(cmd, "stream", "want names of streams, without white space, '.', '*', '>', '/' and '\\'", func() bool { return argument.StreamNames(c.Streams) == nil })
	argument.Words(cmd, "accept", risks(), func() []string { return w.accept })
	argument.Between(cmd, "window", &c.Window, 1, 100_000)
	argument.AtLeast(cmd, "max-unpublished", &c.MaxUnpublished, 2000)
	argument.AtLeast(cmd, "lease", &c.Lease, time.Second)
	argument.AtLeast(cmd, "idle-poll", &c.IdlePoll, time.Millisecond)
	argument.Check(cmd, "retention", "want a duration for which published events are kept, or -1s for ever", func() bool { return c.Retention != 0 })
	argument.Positive(cmd, "drain-timeout", &c.DrainTimeout, "10s")
	argument.AtLeast(cmd, "check-every", &c.CheckEvery, time.Second)
	argument.Word(cmd, "log-format", []string{"text", "json"}, &w.logFormat)
	argument.Conditions(cmd, "stream", "accept")
}

// run runs the relay, and serves its health endpoints, until ctx ends.
func (w *options) run(ctx context.Context, stderr io.Writer) error {
	name, err := w.db.Schema()
	if err != nil {
		return err
	}
	pool, err := w.db.Pool(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	w.cfg.Logger = newLogger(stderr, w.logFormat)
	nc, err := w.broker.Connect(connectOptions(w.cfg.Logger)...)
	if err != nil {
		return err
	}
	defer nc.Close()

	meters, metrics := newMetrics(w.cfg.Logger)
	w.cfg.MeterProvider = meters
	w.cfg.Schema = name
	r := relay.New(pool, natsjs.NewPublisher(nc), w.cfg)
	stop, err := health.Serve(ctx, w.listen, health.Handler(r.Health, metrics), w.cfg.Logger)
	if err != nil {
		return err
	}
	defer stop()
	w.cfg.Logger.Info("relay starts", "schema", name)
	w.tellDatabase(ctx)
	if err := r.Run(ctx); err != nil {
		return err
	}
	w.cfg.Logger.Info("relay stopped")
	return nil
}

// tellDatabase logs a warning if it cannot connect to the database. The relay starts in any case,
// and waits for the database.
func (w *options) tellDatabase(ctx context.Context) {
	conn, err := w.db.Connect(ctx)
	if err == nil {
		err = database.Close(ctx, conn)
	}
	if err != nil && ctx.Err() == nil {
		w.cfg.Logger.Warn("the relay waits for its database", "error", err)
	}
}
