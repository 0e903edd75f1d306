// Bench measures Postroom on your own servers, or on throwaway servers:
//
//	go run ./integration/bench --dev
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/integration/bench/internal/measure"
	"github.com/postroom/postroom/internal/devstack"
	"github.com/postroom/postroom/internal/jsremedy"
	"github.com/postroom/postroom/internal/terminal"
)

const usage = `usage: bench [flags] [relay] [producer] [latency] [inbox] [http] [webhook] [saga]

Measure the speed of Postroom on your own servers, or with --dev on throwaway
servers of this machine. Each figure has a reference that is measured in the
same run, so the ratio of the two is meaningful even if the machine is busy.

  relay      draining a backlog; the cost of a relay without work
             (relay.atomic_fsync needs a broker that syncs every message: --dev
             starts such a broker, and --nats-fsync-url names one)
  producer   transactions with an event, without and with a running relay
  latency    from commit to the broker's acknowledgement
  inbox      handling a backlog, with an event or a batch of events in a transaction
  http       answering requests that have an Idempotency-Key
  webhook    acknowledging webhooks, and handling accepted events
  saga       steps of processes across services
If you name no group, all groups are measured.

Bench creates schemas in the database and one stream. Their names contain
postroom_bench. Bench removes all of them at the end, even on Ctrl-C. Do not run it
on servers that other programs need: it uses the servers fully, and makes a
checkpoint before each measurement if the role may do that. A backlog of 200,000
events takes 200 MB in the database and as much in the stream.

Examples:
  go run ./integration/bench --dev
  go run ./integration/bench relay --database-url postgres://localhost/shop --nats-url nats://localhost:4222
  go run ./integration/bench --dev --only relay.drain --events 1000000 --cpuprofile cpu.out
  go run ./integration/bench --dev --runs 3 --json | jq '.figures[] | {name, median, ratio}'

Flags:
`

// Exit statuses, the same as those of cmd/postroom.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// usageError says that the command line is wrong.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }

func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

func main() {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		signal.Stop(signals) // from now on, a second signal ends the program at once
		cancel()
	}()
	os.Exit(run(ctx, os.Args[1:], os.Getenv, os.Stdin, os.Stdout, os.Stderr))
}

// run executes the command line and returns the exit status.
func run(ctx context.Context, args []string, getenv func(string) string, in io.Reader, out, errs io.Writer) int {
	if len(args) > 0 && args[0] == childCommand {
		return exitOf(serveChild(ctx, args[1:], in, out), errs)
	}
	w, groups, err := parse(args, getenv, errs)
	if errors.Is(err, flag.ErrHelp) {
		return exitOK
	}
	if err == nil {
		err = w.run(ctx, groups, out, errs)
	}
	return exitOf(err, errs)
}

func exitOf(err error, errs io.Writer) int {
	if err == nil {
		return exitOK
	}
	fmt.Fprintf(errs, "bench: %v\n", err)
	var usage *usageError
	if errors.As(err, &usage) {
		fmt.Fprintln(errs, "Run it with --help for usage.")
		return exitUsage
	}
	return exitFailed
}

// A wish has the values of the command line.
type wish struct {
	database, broker string
	creds            string
	dev              bool
	json             bool
	only             []string
	events           int
	runs             int
	seconds          float64
	profile          string
	synced           string
}

// parse reads the command line. Groups and flags may come in any order.
func parse(args []string, getenv func(string) string, errs io.Writer) (w *wish, groups []string, err error) {
	w = &wish{}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // exitOf prints the error
	flags.BoolVar(&w.dev, "dev", false, "start throwaway servers on this machine")
	flags.IntVar(&w.events, "events", 200_000, "events in the backlog that a relay drains; an inbox handles a part of this number")
	flags.IntVar(&w.runs, "runs", 5, "how many times each figure is measured; the report has the median")
	flags.Float64Var(&w.seconds, "seconds", 5, "seconds for each measurement that would not end by itself")
	flags.Func("only", "figures to measure, for instance relay.drain,producer.write", func(names string) error {
		w.only = append(w.only, strings.Split(names, ",")...)
		return nil
	})
	flags.StringVar(&w.profile, "cpuprofile", "", "write a CPU profile of the measured part to this `file`; needs --only with one figure")
	flags.StringVar(&w.synced, "nats-fsync-url", "", "`URL` of a NATS server with sync_interval always, for the figures that need such a server")
	flags.StringVar(&w.database, "database-url", "", "PostgreSQL `URL` (env POSTROOM_DATABASE_URL, DATABASE_URL)")
	flags.StringVar(&w.broker, "nats-url", "", "NATS `URL` (env POSTROOM_NATS_URL, NATS_URL)")
	flags.StringVar(&w.creds, "nats-creds", "", "`file` with the credentials of a NATS user")
	flags.BoolVar(&w.json, "json", false, "print JSON, for scripts")
	for rest := args; len(rest) > 0; {
		if err := flags.Parse(rest); err != nil {
			if errors.Is(err, flag.ErrHelp) {
				fmt.Fprint(errs, usage)
				flags.SetOutput(errs)
				flags.PrintDefaults()
				return nil, nil, err
			}
			return nil, nil, &usageError{err}
		}
		if rest = flags.Args(); len(rest) > 0 {
			groups, rest = append(groups, rest[0]), rest[1:]
		}
	}
	for _, group := range groups {
		if !slices.Contains(measure.Groups(), group) {
			return nil, nil, usagef("measure what? Give %s, or no group for all of them", strings.Join(measure.Groups(), ", "))
		}
	}
	if !w.dev {
		w.database = cmp.Or(w.database, getenv("POSTROOM_DATABASE_URL"), getenv("DATABASE_URL"))
		w.broker = cmp.Or(w.broker, getenv("POSTROOM_NATS_URL"), getenv("NATS_URL"))
	}
	return w, groups, nil
}

func (w *wish) run(ctx context.Context, groups []string, out, errs io.Writer) (err error) {
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
	bar := terminal.NewBar(errs, func() int { return widthOf(errs) })
	defer bar.Clear()
	cfg.Progress = bar.Show
	cfg.Logger = slog.New(slog.NewTextHandler(bar, &slog.HandlerOptions{Level: slog.LevelWarn}))

	stop, err := w.servers(ctx, &cfg)
	if err != nil {
		return interrupted(ctx, err)
	}
	defer func() { err = errors.Join(err, stop()) }()
	report, err := measure.Run(ctx, cfg)
	if err != nil {
		return interrupted(ctx, err)
	}
	bar.Clear()
	if w.json {
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		return enc.Encode(report)
	}
	return printReport(out, report)
}

// interrupted returns err if ctx has not ended. If ctx has ended, the user ended the program, and
// the error says that. The error also says if the program could not remove an object.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	if errors.Is(err, measure.ErrLeftBehind) {
		return fmt.Errorf("interrupted: %w", err)
	}
	return errors.New("interrupted; everything that was created on the servers is removed")
}

// config returns the configuration without the servers. It returns an error if a value of the
// command line is wrong.
func (w *wish) config(groups []string) (measure.Config, error) {
	cfg := measure.Config{
		Groups: groups, Only: w.only, Events: w.events, Runs: w.runs,
		Span: time.Duration(w.seconds * float64(time.Second)), Broker: measure.Broker{SyncedURL: w.synced},
	}
	self, err := os.Executable()
	if err != nil {
		return cfg, fmt.Errorf("find this program: %w", err)
	}
	cfg.Self = []string{self, childCommand, "relay"}
	switch {
	case w.dev && (w.database != "" || w.broker != "" || w.creds != "" || w.synced != ""):
		return cfg, usagef("--dev brings its own servers: leave out --database-url, --nats-url, --nats-fsync-url and --nats-creds")
	case w.events == 0 || w.runs == 0 || w.seconds == 0:
		return cfg, usagef("--events, --runs and --seconds must be more than 0")
	}
	check := cfg
	if w.dev {
		check.Broker.SyncedURL = "to come"
	}
	if w.profile != "" {
		check.Profile = io.Discard
	}
	if err := check.Validate(); err != nil {
		return cfg, usagef("%w; figures are %s", err, strings.Join(measure.Names(), ", "))
	}
	return cfg, nil
}

// servers writes the servers for the measurements into cfg. It returns a function that stops the
// servers that this method has started.
func (w *wish) servers(ctx context.Context, cfg *measure.Config) (stop func() error, err error) {
	if w.dev {
		return startDev(ctx, cfg)
	}
	if w.database == "" {
		return nil, usagef("which database? Give --database-url or set POSTROOM_DATABASE_URL, or measure on throwaway servers with --dev")
	}
	if w.broker == "" {
		return nil, usagef("which broker? Give --nats-url or set POSTROOM_NATS_URL, or measure on throwaway servers with --dev")
	}
	if cfg.Database, err = pgxpool.ParseConfig(w.database); err != nil {
		return nil, usagef("the database's URL cannot be read; write postgres://user:password@host:5432/database") // the parser's error can repeat a part of the password
	}
	conn, err := pgx.ConnectConfig(ctx, cfg.Database.ConnConfig)
	if err != nil {
		return nil, fmt.Errorf("connect to the database: %w", err)
	}
	if err := conn.Close(ctx); err != nil {
		return nil, fmt.Errorf("close the connection to the database: %w", err)
	}
	var options []nats.Option
	if w.creds != "" {
		options = append(options, nats.UserCredentials(w.creds))
	}
	nc, err := nats.Connect(w.broker, options...)
	if err != nil {
		return nil, fmt.Errorf("connect to the broker: %w", err)
	}
	defer nc.Close()
	if err := hasJetStream(ctx, nc); err != nil {
		return nil, err
	}
	cfg.Broker.URL, cfg.Broker.Creds = w.broker, w.creds
	return func() error { return nil }, nil
}

// answerPatience is the time that the broker has for the answer to the first request.
const answerPatience = 5 * time.Second

// hasJetStream returns an error if the broker has no JetStream. Without JetStream a measurement
// would wait until its time is over.
func hasJetStream(ctx context.Context, nc *nats.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, answerPatience)
	defer cancel()
	js, err := jetstream.New(nc)
	if err == nil {
		_, err = js.AccountInfo(ctx)
	}
	switch {
	case jsremedy.Do(err) != "":
		return fmt.Errorf("ask for JetStream: %w", jsremedy.Explain(err))
	case err != nil:
		return fmt.Errorf("ask for JetStream: %w: a benchmark needs a NATS user that may publish to $JS.API.> and subscribe to _INBOX.>", err)
	}
	return nil
}

// startDev starts throwaway servers. PostgreSQL has the settings of production, so committed data
// is on the disk.
func startDev(ctx context.Context, cfg *measure.Config) (stop func() error, err error) {
	db, err := devstack.StartPostgres(ctx, devstack.Config{Durable: true, Logger: cfg.Logger})
	if err != nil {
		return nil, err
	}
	if cfg.Database, err = pgxpool.ParseConfig(db.URL()); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	broker, err := devstack.StartNATS(ctx, devstack.NATSConfig{Logger: cfg.Logger})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	synced, err := devstack.StartNATS(ctx, devstack.NATSConfig{Logger: cfg.Logger, Durable: true})
	if err != nil {
		return nil, errors.Join(err, broker.Close(), db.Close())
	}
	cfg.Broker.URL, cfg.Broker.SyncedURL, cfg.Broker.Where = broker.URL(), synced.URL(), "in a process of its own on the same machine"
	return func() error { return errors.Join(synced.Close(), broker.Close(), db.Close()) }, nil
}
