package deadcmd

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/postroom/postroom/cmd/postroom/internal/argument"
	"github.com/postroom/postroom/cmd/postroom/internal/command"
	"github.com/postroom/postroom/cmd/postroom/internal/confirm"
	"github.com/postroom/postroom/cmd/postroom/internal/deadview"
	"github.com/postroom/postroom/cmd/postroom/internal/output"
	"github.com/postroom/postroom/deadletter"
)

const replayHelp = `Replay dead events. A handler runs its event again. An outgoing event, which the relay
could not publish, is published. Each event has one attempt, unless you give --attempts.
The command fixes the set of events when it makes the replay. It leaves out events that
are in another replay, so that each event is replayed once.

This command makes the replay and runs it to its end. If the command is interrupted, or
its machine dies, the replay is idle and nothing is lost: 'postroom replay resume'
continues it, 'postroom replay cancel' ends it.

The replay releases its events step by step: only a released event may run or be
published. With --canary 10, the replay first releases ten events. It releases the rest
when those ten have ended, if no more of the ten failed than --stop-at allows. Events of
one key are released together and run in their order.

--dry-run changes nothing. It shows which events the replay would release. It also asks
a process that runs the handler to try one event of each cause (see --try), in a
transaction that is rolled back. Handlers that call other systems are not tried; the
output counts their calls that are done.

Exit status 3: events failed again, or the replay stopped, was cancelled or was
interrupted. With --dry-run: the output shows a problem that you should solve first.`

// replayFlags has the flags of a replay.
type replayFlags struct {
	filter  filterFlags
	options deadletter.ReplayOptions
	dryRun  bool
	detach  bool
	try     int
	wait    time.Duration
}

func newReplay(d *commands) *cobra.Command {
	var w replayFlags
	cmd := &cobra.Command{
		Use:   "replay [ID...]",
		Short: "Run dead events again",
		Long:  replayHelp,
		Example: `  postroom dead replay --cause 1f0c9a7d5e3b2c48a6d0f1e2b3c4d5e6 --dry-run
  postroom dead replay --cause 1f0c9a7d5e3b2c48a6d0f1e2b3c4d5e6 --canary 10 --reason 'vendor fixed it'
  postroom dead replay 4711 4712
  postroom dead replay --handler billing.charge --since 2h --rate 50 --stop-at 0.02
  postroom dead replay --handler outbox --as-new --yes`,
		Args:              argument.IDs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := w.filter.required(args)
			if err != nil {
				return err
			}
			return d.with(cmd.Context(), func(store *deadletter.Store) error {
				if w.dryRun {
					return dryRun(cmd, store, f, w, d.JSON)
				}
				return d.replay(cmd, store, f, w)
			})
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&w.options.Limit, "limit", 0, "replay at most this many events, those that died first (default all)")
	flags.IntVar(&w.options.Attempts, "attempts", 1, "how many attempts each event has before it is dead again")
	flags.Float64Var(&w.options.Rate, "rate", 0, "release at most this many events a second (default no limit)")
	flags.IntVar(&w.options.Canary, "canary", 0, "release this many events first; the rest wait until these have ended (default none)")
	w.options.StopAt = flags.Float64("stop-at", 0.1, "stop if a larger share of the events than this fails; with 0 the first failure stops the replay, with 1 no failure does")
	flags.BoolVar(&w.options.AsNew, "as-new", false, "give outgoing events the present time, because consumers hold events that are too old")
	flags.BoolVar(&w.dryRun, "dry-run", false, "show what a replay would do, and try some events; change nothing")
	flags.IntVar(&w.try, "try", 1, "with --dry-run: how many events of each cause to try; 0 for none")
	flags.DurationVar(&w.wait, "wait", 5*time.Second, "with --dry-run: how long to wait for the dry runs")
	flags.BoolVar(&w.detach, "detach", false, "make the replay and do not run it; 'postroom replay resume' runs it")
	command.NoFileCompletion(cmd, "limit", "attempts", "rate", "canary", "stop-at", "try", "wait")
	argument.AtLeast(cmd, "limit", &w.options.Limit, 1)
	argument.Between(cmd, "attempts", &w.options.Attempts, 1, 1000)
	argument.Rate(cmd, "rate", &w.options.Rate)
	argument.AtLeast(cmd, "canary", &w.options.Canary, 0)
	argument.Between(cmd, "stop-at", w.options.StopAt, 0, 1)
	argument.AtLeast(cmd, "try", &w.try, 0)
	argument.AtLeast(cmd, "wait", &w.wait, time.Millisecond)
	w.filter.addFlags(cmd)
	w.filter.addAll(cmd, "all dead events")
	d.AddAuditFlags(cmd)
	d.AddYes(cmd)
	d.DB.AddURLFlag(cmd)
	command.AddJSON(cmd, &d.JSON)
	return cmd
}

// replay makes a replay. If --detach is not given, it also runs the replay.
func (d *commands) replay(cmd *cobra.Command, store *deadletter.Store, f deadletter.Filter, w replayFlags) error {
	ctx := cmd.Context()
	groups, these, err := store.Preview(ctx, f, w.options)
	if err != nil {
		return err
	}
	all, busy := countOf(groups)
	if all == 0 {
		return nothingToReplay(f, busy)
	}
	repeats := false
	for _, g := range groups {
		if g.Committed > 0 {
			output.Report(cmd.ErrOrStderr(), "%s\n", mayRepeat(g))
			repeats = true
		}
	}
	if !d.Yes && (all > 1 || repeats) {
		if err := printPreview(cmd.ErrOrStderr(), groups); err != nil {
			return err
		}
		if err := confirm.Ask(cmd, fmt.Sprintf("replay %s?", output.Plural(int(all), "event")), "'postroom dead list'"); err != nil {
			return err
		}
	}
	//guard:a-replay-has-what-was-counted do @; these = f
	for _, c := range groups {
		if c.Events > 0 && !c.HasProcess {
			output.Report(cmd.ErrOrStderr(), "no process runs handler %s: its events wait until one does\n", output.Cell(c.Handler, 60))
		}
	}
	said := make(chan struct{})
	long := time.AfterFunc(longChoice, func() {
		defer close(said)
		output.Report(cmd.ErrOrStderr(), "choosing the events. A million take about two minutes, and only one replay chooses its events at a time\n")
	})
	replay, err := store.CreateReplay(ctx, these, w.options, d.audit()) // the person agreed to these events, not to events that died later
	if !long.Stop() {
		<-said
	}
	if err != nil {
		return replayError(err)
	}
	if w.detach {
		return d.printReplay(cmd.OutOrStdout(), replay)
	}
	return d.run(cmd, store, replay.ID, false)
}

// longChoice is after which time the command says why it has not begun.
const longChoice = 2 * time.Second

func replayError(err error) error {
	if errors.Is(err, deadletter.ErrTooOld) {
		return fmt.Errorf("%w: --as-new", err)
	}
	return err
}

func nothingToReplay(f deadletter.Filter, busy int64) error {
	if busy > 0 {
		return fmt.Errorf("%s: all %d events are already in replays; 'postroom replay list --running' lists those", deadview.Filter(f), busy)
	}
	return fmt.Errorf("no dead event matches: %s", deadview.Filter(f))
}

func countOf(groups []deadletter.PreviewGroup) (all, busy int64) {
	for _, f := range groups {
		all, busy = all+f.Events, busy+f.InReplay
	}
	return all, busy
}
