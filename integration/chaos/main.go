//go:build linux || darwin

// Chaos runs producers, relays, handlers, an operator, PostgreSQL and NATS as processes of this
// machine. It injects the faults that servers have in production, ends them, and reads everything
// back. It checks that no event was lost, applied twice, misordered or made up.
//
//	make chaos SECONDS=60 SEED=7
//	make chaos SECONDS=60 ARGS="--nodes 3 --report out.md"
//
// A seed always makes the same plan of faults and the same workload. But the machine determines
// what the processes are doing when a fault strikes. The exit status is 0 if every invariant holds,
// and 1 if one does not. It is 3 if the run is undecided: a situation that every run needs did not
// occur, or the machine was too busy to finish the work in time. An undecided run shows nothing:
// neither that Postroom works, nor that it has a fault.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/postroom/postroom/integration/chaos/internal/workload"
	"github.com/postroom/postroom/integration/checker"
	"github.com/postroom/postroom/integration/natsfleet"
	"github.com/postroom/postroom/internal/childproc"
)

func main() {
	served, err := childproc.Serve(natsfleet.Roles(workload.Roles))
	if !served {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		err = command().ExecuteContext(ctx)
	}
	var failed *failure
	switch {
	case errors.As(err, &failed):
		os.Exit(failed.status)
	case err != nil:
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

// A failure is the error of a run that is undecided, or in which an invariant did not hold. The
// verdict is printed before the method run returns this error.
type failure struct{ status int }

func (f *failure) Error() string { return fmt.Sprintf("exit status %d", f.status) }

// options say what to run.
type options struct {
	seconds int
	seed    uint64
	nodes   int
	rate    int // transactions a second, of all producers together
	burst   int // events that are committed at once before a fault strikes
	atomic  string
	only    []string
	report  string
	keep    string
	more    float64 // multiplies the usual patience
}

func command() *cobra.Command {
	var opt options
	cmd := &cobra.Command{
		Use:   "chaos",
		Short: "break processes, servers and connections, and check whether the guarantees hold",
		Example: "  chaos --seconds 60 --seed 7\n  chaos --seconds 1800 --nodes 3 --report run.md\n" +
			"  chaos --seconds 30 --only 'kill relay,lose replies of postgres' --keep /tmp/run",
		Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("seed") {
				opt.seed = rand.Uint64N(1_000_000)
			}
			return opt.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&opt.seconds, "seconds", 60, "how long faults are injected")
	flags.Uint64Var(&opt.seed, "seed", 0, "determines the plan and the workload (default random)")
	flags.IntVar(&opt.nodes, "nodes", 1, "NATS servers: 1, or 3 with three replicas")
	flags.IntVar(&opt.rate, "rate", 240, "transactions a second that all producers together begin")
	flags.IntVar(&opt.burst, "burst", 300, "how many events are committed at once just before a fault strikes")
	flags.StringVar(&opt.atomic, "atomic", "", "whether relays publish in atomic batches: true or false (default: the seed decides)")
	flags.StringSliceVar(&opt.only, "only", nil, "inject only these kinds of faults; chaos list prints them")
	flags.StringVar(&opt.report, "report", "", "write the report to this file, as Markdown")
	flags.StringVar(&opt.keep, "keep", "", "keep the history, the logs, and the final tables and streams in this directory")
	flags.Float64Var(&opt.more, "patience", 1, "for a busy machine: wait this many times as long before a run is undecided")
	cmd.AddCommand(&cobra.Command{
		Use: "list", Short: "list the kinds of faults", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, k := range kinds {
				if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%-32s %s\n", k.name, k.about); err != nil {
					return fmt.Errorf("write output: %w", err)
				}
			}
			return nil
		},
	})
	return cmd
}

func (o options) validate() error {
	var faults []error
	if o.seconds < 1 {
		faults = append(faults, fmt.Errorf("--seconds is %d, want 1 or more", o.seconds))
	}
	if o.nodes != 1 && o.nodes != 3 {
		faults = append(faults, fmt.Errorf("--nodes is %d, want 1 or 3", o.nodes))
	}
	if o.rate < 1 {
		faults = append(faults, fmt.Errorf("--rate is %d, want 1 or more", o.rate))
	}
	if o.burst < 0 || o.burst > workload.Keys {
		faults = append(faults, fmt.Errorf("--burst is %d, want 0 to %d", o.burst, workload.Keys))
	}
	if !(o.more >= 0.01 && o.more <= 1000) {
		faults = append(faults, fmt.Errorf("--patience is %g, want 0.01 to 1000", o.more))
	}
	if o.atomic != "" && o.atomic != "true" && o.atomic != "false" {
		faults = append(faults, fmt.Errorf("--atomic is %q, want true or false", o.atomic))
	}
	for _, name := range o.only {
		if _, ok := kindOf(name); !ok {
			faults = append(faults, fmt.Errorf("no such kind of fault: %q; see chaos list", name))
		}
	}
	return errors.Join(faults...)
}

// inBatches reports whether relays publish in atomic batches.
func (o options) inBatches() bool {
	if o.atomic == "" {
		return o.seed%2 == 1
	}
	return o.atomic == "true"
}

// run makes one run, and returns its verdict.
func (o options) run(ctx context.Context, out, progress io.Writer) error {
	if err := o.validate(); err != nil {
		return err
	}
	began := time.Now()
	history, found, err := o.stage(ctx, progress)
	if err != nil && ctx.Err() == nil && (errors.Is(err, childproc.ErrLate) || errors.Is(err, context.DeadlineExceeded)) {
		_, err = fmt.Fprintf(out, "The rig's own servers or processes did not answer in time: %v\n\nchaos: seed=%d verdict=%s\n", err, o.seed, undecided)
		return errors.Join(err, &failure{3})
	}
	if err != nil {
		return fmt.Errorf("seed %d: %w", o.seed, err)
	}
	r := report{options: o, took: time.Since(began), found: found, verdict: checker.Check(history, found)}
	if o.report != "" {
		if err := os.WriteFile(o.report, []byte(r.markdown()), 0o644); err != nil { //nolint:gosec // a document
			return fmt.Errorf("write report: %w", err)
		}
	}
	if err := r.print(out); err != nil {
		return err
	}
	return r.failure()
}
