//go:build linux || darwin

// Soak runs the proofs that take long. Its scenarios have a log with ten million rows, an inbox
// table with five million rows, a transaction that is open for minutes, and brokers and relays that
// soak kills and stops again and again. Each scenario ends with a table of figures, bounds and
// verdicts. The exit status is 1 if a bound does not hold. It is 3 if the run is undecided:
// something did not happen in time, but the machine may have been too busy for it.
//
//	make soak
//	make soak ARGS="--only order,relays --short"
//	make soak ARGS="--report integration/results/soak.md"
//
// Soak starts its own servers, and leaves nothing behind.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/postroom/postroom/integration/natsfleet"
	"github.com/postroom/postroom/integration/rig"
	"github.com/postroom/postroom/integration/soak/internal/figures"
	"github.com/postroom/postroom/integration/soak/internal/inboxes"
	"github.com/postroom/postroom/integration/soak/internal/operators"
	"github.com/postroom/postroom/integration/soak/internal/stage"
	"github.com/postroom/postroom/internal/childproc"
	"github.com/postroom/postroom/internal/devstack"
	"github.com/postroom/postroom/internal/verdict"
)

func main() {
	if served, err := childproc.Serve(natsfleet.Roles(roles)); served {
		exit(err)
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the next signal ends the process
	exit(command().ExecuteContext(ctx))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(verdict.ExitStatus(err))
	}
}

// options are the options of the command line.
type options struct {
	only    []string
	short   bool
	openFor time.Duration
	bytes   int
	report  string
	verbose bool
}

// scenario is one proof.
type scenario struct {
	name  string
	about string
	run   func(ctx context.Context, r *stage.Stage) error
}

// scenarios are all scenarios, in the order in which they run.
var scenarios = []scenario{
	{"retained", aboutRetained, retained},
	{"open", aboutOpen, openTransactions},
	{"memory", aboutMemory, memory},
	{"order", aboutOrder, order},
	{"relays", aboutRelays, relays},
	{"retention", aboutRetention, retention},
	{"inbox", inboxes.AboutFull, inboxes.RunFull},
	{"expiry", inboxes.AboutExpiry, inboxes.RunExpiry},
	{"operator", operators.About, operators.Run},
	{"forgetful", aboutForgetful, forgetful},
}

func command() *cobra.Command {
	var opt options
	cmd := &cobra.Command{
		Use:   "soak",
		Short: "Prove over minutes what tests prove in seconds",
		Long: `Prove over minutes what tests prove in seconds, on throwaway servers. This takes about
half an hour and 15 GB of disk. The figures mean something only if no other program uses
the machine.

With --short every scenario runs for seconds. Then soak does not judge the bounds on time
and size. It still fails if something is lost, made up or out of order.`,
		Example:       "  soak\n  soak --only order,relays --short\n  soak --report integration/results/soak.md",
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return opt.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&opt.only, "only", nil, "scenarios to run: "+strings.Join(names(), ", ")+" (default all)")
	flags.BoolVar(&opt.short, "short", false, "run a small version of each scenario, which takes seconds")
	flags.DurationVar(&opt.openFor, "open-for", 5*time.Minute, "in the scenario 'open': how long the transactions stay open")
	flags.IntVar(&opt.bytes, "retained-bytes", 0, "in the scenario 'retained': bytes of data in each row (default 512, or 64 if the disk is small)")
	flags.StringVar(&opt.report, "report", "", "write the report to this file, in Markdown; with --only, the other scenarios in the file stay")
	flags.BoolVar(&opt.verbose, "verbose", false, "show what relays and servers log")
	return cmd
}

func names() []string {
	var all []string
	for _, s := range scenarios {
		all = append(all, s.name)
	}
	return all
}

func (o options) validate() error {
	for _, name := range o.only {
		if !slices.Contains(names(), name) {
			return fmt.Errorf("no such scenario: %.40q; there are %s", name, strings.Join(names(), ", "))
		}
	}
	if o.openFor < 2*time.Second {
		return fmt.Errorf("--open-for is %s, want 2s or more", o.openFor)
	}
	if o.bytes != 0 && (o.bytes < smallBytes || o.bytes > 10*stage.EventBytes) {
		return fmt.Errorf("--retained-bytes is %d, want %d to %d", o.bytes, smallBytes, 10*stage.EventBytes)
	}
	return nil
}

// errBroken says that a bound does not hold.
var errBroken = errors.New("not everything holds")

// run starts PostgreSQL and runs the chosen scenarios.
func (o options) run(ctx context.Context, out, progress io.Writer) (err error) {
	if err := o.validate(); err != nil {
		return err
	}
	logger := o.logger(progress)
	db, err := devstack.StartPostgres(ctx, devstack.Config{Durable: !o.short, Logger: logger})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return o.runOn(ctx, db, out, progress)
}

// runOn runs the chosen scenarios on a server.
func (o options) runOn(ctx context.Context, db *devstack.Postgres, out, progress io.Writer) error {
	machine, err := describe(ctx, db)
	if err != nil {
		return err
	}
	results, err := o.runAll(ctx, db, out, progress)
	if err != nil {
		return err
	}
	if o.report != "" {
		earlier, err := os.ReadFile(o.report)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("read the earlier report: %w", err)
		}
		report := &report{machine: machine, options: o, results: results}
		if err := os.WriteFile(o.report, []byte(report.markdown(string(earlier))), 0o644); err != nil { //nolint:gosec // a document
			return fmt.Errorf("write report: %w", err)
		}
	}
	var faults []error
	for _, result := range results {
		faults = append(faults, result.Faults()...)
	}
	all := errors.Join(faults...)
	if all == nil || verdict.IsUndecided(all) {
		return all
	}
	return fmt.Errorf("%w: %w", errBroken, all)
}

// runAll runs the chosen scenarios one after the other. In a short run it runs all at once, because
// short scenarios measure nothing. If a scenario fails, the others still run.
func (o options) runAll(ctx context.Context, db *devstack.Postgres, out, progress io.Writer) ([]*figures.Result, error) {
	var chosen []scenario
	for _, s := range scenarios {
		if len(o.only) == 0 || slices.Contains(o.only, s.name) {
			chosen = append(chosen, s)
		}
	}
	results := make([]*figures.Result, len(chosen))
	lines := rig.NewLines(progress)
	var all sync.WaitGroup
	var mu sync.Mutex
	var printing error
	run := func(i int) {
		results[i] = o.runOne(ctx, db, chosen[i], lines)
		mu.Lock()
		defer mu.Unlock()
		printing = errors.Join(printing, results[i].Print(out))
	}
	for i := range chosen {
		if o.short {
			all.Go(func() { run(i) })
		} else if ctx.Err() == nil {
			run(i)
		}
	}
	all.Wait()
	if ctx.Err() != nil {
		return nil, errors.New("interrupted")
	}
	return results, printing
}

func (o options) runOne(ctx context.Context, db *devstack.Postgres, s scenario, progress io.Writer) *figures.Result {
	r := &stage.Stage{
		Result: &figures.Result{Name: s.name, About: s.about, Short: o.short},
		Story:  rig.NewStory(progress, fmt.Sprintf("%-9s ", s.name)),
		DB:     db, Logger: o.logger(progress), Verbose: o.verbose, OpenFor: o.openFor, RowBytes: o.bytes,
	}
	r.Say("%s", "begins")
	r.Err = s.run(ctx, r)
	if err := r.Clean(); r.Err == nil {
		r.Err = err
	}
	r.Duration = r.Took()
	return r.Result
}

// logger returns the logger for the start of the PostgreSQL server, and for the relays and inboxes
// in this process. Without --verbose, the logger discards all messages.
func (o options) logger(w io.Writer) *slog.Logger {
	if !o.verbose {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelWarn}))
}
