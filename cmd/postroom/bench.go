package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/postroom/postroom/internal/bench"
	"github.com/postroom/postroom/internal/devstack"
)

// benchWish is what the command line asks of a benchmark.
type benchWish struct {
	db      database
	broker  broker
	dev     bool
	json    bool
	only    []string
	events  int
	runs    int
	seconds float64
	profile string
	synced  string
}

func newBench(getenv func(string) string) *cobra.Command {
	wish := &benchWish{db: database{getenv: getenv}, broker: broker{getenv: getenv}}
	cmd := &cobra.Command{
		Use:   "bench [relay] [producer] [latency] [inbox] [http]",
		Short: "Measure the speed on your own servers",
		Long: `Measure the speed of Postroom on your own servers, or with --dev on throwaway
ones of this machine. Each figure stands beside a reference that is measured in
the same run: their ratio says something also where the machine is busy.

  relay      draining a backlog; what a relay without work costs
  producer   transactions with an event, without and with a relay beside them
  latency    from commit to the broker's acknowledgement
             (relay.atomic_fsync needs a broker that syncs every message, which
             --dev starts and --nats-fsync-url names)
  inbox      handling a backlog, an event or a batch of them in a transaction
  http       answering requests that carry an Idempotency-Key
Without a group, all of them.

Everything it creates has postroom_bench in its name: schemas in the database
and one stream, which it removes again, also on Ctrl-C. Keep it off servers that
others depend on: it takes all that they have, and makes a checkpoint before each
measurement if the role may. A backlog of 200,000 events takes 200 MB in the
database and as much in the stream.`,
		Example: `  postroom bench --dev
  postroom bench relay --database-url postgres://localhost/shop --nats-url nats://localhost:4222
  postroom bench --dev --only relay.drain --events 1000000 --cpuprofile cpu.out
  postroom bench --dev --runs 3 --json | jq '.figures[] | {name, median, ratio}'`,
		Args:      func(_ *cobra.Command, groups []string) error { return checkGroups(groups) },
		ValidArgs: bench.Groups(),
		RunE:      func(cmd *cobra.Command, groups []string) error { return wish.run(cmd, groups) },
	}
	flags := cmd.Flags()
	flags.BoolVar(&wish.dev, "dev", false, "start throwaway servers on this machine")
	flags.IntVar(&wish.events, "events", 200_000, "events in the backlog that a relay drains; inboxes handle a part of as many")
	flags.IntVar(&wish.runs, "runs", 5, "how often each figure is measured; reported is the median")
	flags.Float64Var(&wish.seconds, "seconds", 5, "time for each measurement that has no end of its own")
	flags.StringSliceVar(&wish.only, "only", nil, "figures to measure, for instance relay.drain,producer.write")
	flags.StringVar(&wish.profile, "cpuprofile", "", "write a CPU profile of the measured part to this file; needs --only with one figure")
	flags.StringVar(&wish.synced, "nats-fsync-url", "", "URL of a NATS server with sync_interval always, for the figures that need one")
	wish.db.addURLFlag(cmd)
	wish.broker.addFlags(cmd)
	addJSON(cmd, &wish.json)
	for _, flag := range []string{"events", "runs", "seconds", "nats-fsync-url"} {
		complete(cmd, flag)
	}
	names := cobra.FixedCompletions(bench.Names(), cobra.ShellCompDirectiveNoFileComp)
	if err := cmd.RegisterFlagCompletionFunc("only", names); err != nil {
		panic(err) // the flag was not added
	}
	return cmd
}

func checkGroups(groups []string) error {
	for _, group := range groups {
		if !slices.Contains(bench.Groups(), group) {
			return usagef("measure what? Give %s, or nothing for all", strings.Join(bench.Groups(), ", "))
		}
	}
	return nil
}

func (w *benchWish) run(cmd *cobra.Command, groups []string) (err error) {
	ctx := cmd.Context()
	cfg, err := w.config(groups)
	if err != nil {
		return err
	}
	if w.profile != "" {
		file, err := os.Create(w.profile)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		cfg.Profile = file
	}
	bar := newBar(cmd.ErrOrStderr())
	defer bar.clear()
	cfg.Progress = bar.show
	cfg.Logger = slog.New(slog.NewTextHandler(bar, &slog.HandlerOptions{Level: slog.LevelWarn}))

	stop, err := w.servers(ctx, &cfg)
	if err != nil {
		return interrupted(ctx, err)
	}
	defer func() { err = errors.Join(err, stop()) }()
	report, err := bench.Run(ctx, cfg)
	if err != nil {
		return interrupted(ctx, err)
	}
	bar.clear()
	if w.json {
		return printJSON(cmd.OutOrStdout(), report)
	}
	return printReport(cmd.OutOrStdout(), report)
}

// interrupted says in its own words that the user ended the program. What could
// not be removed is to be said all the same.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	if errors.Is(err, bench.ErrLeftBehind) {
		return fmt.Errorf("interrupted: %w", err)
	}
	return errors.New("interrupted; what was created on the servers is removed")
}

// config is the part of the configuration that needs no servers.
func (w *benchWish) config(groups []string) (bench.Config, error) {
	cfg := bench.Config{
		Groups: groups, Only: w.only, Events: w.events, Runs: w.runs,
		Span: time.Duration(w.seconds * float64(time.Second)), SyncedNATSURL: w.synced,
	}
	self, err := os.Executable()
	if err != nil {
		return cfg, fmt.Errorf("find this program: %w", err)
	}
	cfg.Self = []string{self, benchChild, "relay"}
	switch {
	case w.dev && (w.db.url != "" || w.broker.url != "" || w.broker.creds != "" || w.synced != ""):
		return cfg, usagef("--dev brings its own servers: leave out --database-url, --nats-url, --nats-fsync-url and --nats-creds")
	case w.events == 0 || w.runs == 0 || w.seconds == 0:
		return cfg, usagef("--events, --runs and --seconds have to be more than none")
	}
	check := cfg
	if w.dev {
		check.SyncedNATSURL = "to come"
	}
	if w.profile != "" {
		check.Profile = io.Discard
	}
	if err := check.Validate(); err != nil {
		return cfg, usagef("%w; figures are %s", err, strings.Join(bench.Names(), ", "))
	}
	return cfg, nil
}

// servers sets the servers to measure on, and returns what stops them.
func (w *benchWish) servers(ctx context.Context, cfg *bench.Config) (stop func() error, err error) {
	if w.dev {
		return startDev(ctx, cfg)
	}
	// Connecting here gives the errors of all other commands.
	err = w.db.with(ctx, func(conn *pgx.Conn, _ string) error {
		cfg.Database, err = pgxpool.ParseConfig(conn.Config().ConnString())
		return err
	})
	if err != nil {
		return nil, err
	}
	nc, err := w.broker.connect()
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	if err := w.broker.ready(ctx, nc); err != nil {
		return nil, err
	}
	cfg.NATSURL, _ = firstOf(w.broker.getenv, w.broker.url, "--nats-url", "POSTROOM_NATS_URL", "NATS_URL")
	cfg.NATSCreds = w.broker.creds
	return func() error { return nil }, nil
}

// startDev starts servers as a production has them: what is committed is on the
// disk.
func startDev(ctx context.Context, cfg *bench.Config) (stop func() error, err error) {
	db, err := devstack.StartPostgres(ctx, devstack.Config{Durable: true, Logger: cfg.Logger})
	if err != nil {
		return nil, err
	}
	if cfg.Database, err = pgxpool.ParseConfig(db.URL()); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	nats, err := startBroker(ctx, cfg.Self[0], "nats")
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	synced, err := startBroker(ctx, cfg.Self[0], "synced-nats")
	if err != nil {
		return nil, errors.Join(err, nats.close(), db.Close())
	}
	cfg.NATSURL, cfg.SyncedNATSURL, cfg.Where = nats.url, synced.url, "in a process of its own on the same machine"
	return func() error { return errors.Join(synced.close(), nats.close(), db.Close()) }, nil
}
