package deadcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/cmd/postroom/internal/argument"
	"github.com/postroom/postroom/cmd/postroom/internal/command"
	"github.com/postroom/postroom/cmd/postroom/internal/confirm"
	"github.com/postroom/postroom/cmd/postroom/internal/deadview"
	"github.com/postroom/postroom/cmd/postroom/internal/exit"
	"github.com/postroom/postroom/cmd/postroom/internal/output"
	"github.com/postroom/postroom/deadletter"
)

const replayHelp = `Replay dead events. A handler runs its event again. An outgoing event, which the relay
could not publish, is published. Each event has one attempt, unless you give --attempts.
The command fixes the set of events when it makes the replay. It leaves out events that
are in another replay, so that each event is replayed once.

This command makes the replay and runs it to its end. If the command is interrupted, or
its machine dies, the replay is idle and nothing is lost: 'postroom dead resume'
continues it, 'postroom dead cancel' ends it.

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
	flags.BoolVar(&w.detach, "detach", false, "make the replay and do not run it; 'postroom dead resume' runs it")
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
		return fmt.Errorf("%s: all %d events are already in replays; 'postroom dead replays --running' lists those", deadview.Filter(f), busy)
	}
	return fmt.Errorf("no dead event matches: %s", deadview.Filter(f))
}

func countOf(groups []deadletter.PreviewGroup) (all, busy int64) {
	for _, f := range groups {
		all, busy = all+f.Events, busy+f.InReplay
	}
	return all, busy
}

// run runs a replay to its end, shows its progress, and prints its result. The parameter cancels is
// true if this command cancelled the replay.
func (d *commands) run(cmd *cobra.Command, store *deadletter.Store, id int64, cancels bool) error {
	bar := output.Bar(cmd.ErrOrStderr())
	replay, err := store.RunReplay(cmd.Context(), id, deadletter.RunOptions{Progress: func(j deadletter.Replay) {
		done := j.Events - j.Remaining()
		bar.Show(done, j.Events, fmt.Sprintf("%s: %d succeeded, %d failed, %d open", j.Phase, j.Succeeded, j.Failed, j.Open()))
	}})
	bar.Clear()
	if err != nil {
		if errors.Is(err, context.Canceled) {
			return exit.Todof("interrupted; replay %d is idle now. To continue it: 'postroom dead resume %d'. To end it: 'postroom dead cancel %d'", id, id, id)
		}
		return fmt.Errorf("%w; the replay is idle now. To continue it: 'postroom dead resume %d'", err, id)
	}
	if err := d.printReplay(cmd.OutOrStdout(), replay); err != nil {
		return err
	}
	switch {
	case replay.State == deadletter.ReplayStopped:
		return exit.Todof("replay %d stopped: %d of %d events failed. The rest did not run and are still dead. 'postroom dead groups' shows why events failed; 'postroom dead resume %d' continues",
			id, replay.Failed, replay.Succeeded+replay.Failed, id)
	//guard:a-replay-that-another-cancels-has-not-run false
	case replay.State == deadletter.ReplayCancelled && replay.Skipped > 0 && !cancels:
		return exit.Todof("replay %d was cancelled: %s did not run; 'postroom dead resume %d' continues", id, output.Plural(replay.Skipped, "event"), id)
	case replay.Failed > 0:
		return exit.Todof("%s failed again: 'postroom dead groups' shows why", output.Plural(replay.Failed, "event"))
	}
	return nil
}

func (d *commands) printReplay(out io.Writer, replay deadletter.Replay) error {
	if d.JSON {
		return output.JSON(out, replay)
	}
	return output.Table(out, replayTable([]deadletter.Replay{replay}))
}

func replayTable(replays []deadletter.Replay) [][]string {
	rows := [][]string{{"REPLAY", "STATE", "EVENTS", "SUCCEEDED", "FAILED", "LEFT OUT", "OPEN", "MADE", "BY", "WHAT", "REASON"}}
	for _, j := range replays {
		state := string(j.State)
		if j.State == deadletter.ReplayRunning {
			state = "running, " + string(j.Phase)
			if j.Idle > 30*time.Second {
				state = "idle for " + output.Span(j.Idle)
			}
		}
		rows = append(rows, []string{
			fmt.Sprint(j.ID), state, strconv.Itoa(j.Events), strconv.Itoa(j.Succeeded), strconv.Itoa(j.Failed), strconv.Itoa(j.Skipped), strconv.Itoa(j.Open()),
			output.Ago(j.CreatedAt), output.Cell(j.Actor, 30), output.Cell(deadview.Filter(j.Filter), 60), output.Cell(j.Reason, 60),
		})
	}
	return rows
}

func newReplays(d *commands) *cobra.Command {
	var page postroom.Page
	var only deadletter.ReplayFilter
	cmd := &cobra.Command{
		Use:   "replays",
		Short: "List replays, newest first",
		Long: `List replays, newest first: who made each, for which events, and its progress. If a
replay is 'idle', no process runs it: 'postroom dead resume' continues it.`,
		Example: `  postroom dead replays
  postroom dead replays --running --json`,
		Args: command.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return d.with(cmd.Context(), func(store *deadletter.Store) error {
				replays, next, err := store.Replays(cmd.Context(), only, page)
				if err != nil {
					return err
				}
				switch {
				case d.JSON:
					return output.JSON(cmd.OutOrStdout(), struct {
						Replays []deadletter.Replay `json:"replays"`
						Next    string              `json:"next,omitempty"`
					}{output.List(replays), next})
				case len(replays) == 0:
					return output.Line(cmd.OutOrStdout(), "no replays")
				}
				return output.Page(cmd.OutOrStdout(), replayTable(replays), next)
			})
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&page.Limit, "limit", 20, "how many replays to show, 1 to 1000")
	flags.StringVar(&page.After, "after", "", "show the next page: the value that the last page printed at its end")
	flags.BoolVar(&only.Running, "running", false, "only running replays")
	command.NoFileCompletion(cmd, "limit", "after")
	argument.PageLimit(cmd, &page.Limit)
	d.DB.AddURLFlag(cmd)
	command.AddJSON(cmd, &d.JSON)
	return cmd
}

func newResume(d *commands) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "resume REPLAY",
		Short: "Continue a replay that was interrupted, stopped or cancelled",
		Long: `Continue a replay. If its command was interrupted or died, the replay continues at the
event that is next. If the replay stopped or was cancelled, it releases the events that
it did not release and that are still dead. If it had a canary, it begins with another
one, of as many events.

Exit status 3: events failed again, or the replay stopped, was cancelled or was
interrupted.`,
		Example:           `  postroom dead resume 7`,
		Args:              argument.OneID("a replay, as 'postroom dead replays' shows it"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			id, _ := argument.ID(args[0]) // argument.OneID has checked it
			return d.with(cmd.Context(), func(store *deadletter.Store) error {
				if _, err := store.ResumeReplay(cmd.Context(), id, d.audit()); err != nil && !errors.Is(err, deadletter.ErrReplayRunning) {
					return err
				}
				return d.run(cmd, store, id, false)
			})
		},
	}
	d.AddAuditFlags(cmd)
	d.DB.AddURLFlag(cmd)
	command.AddJSON(cmd, &d.JSON)
	return cmd
}

func newCancel(d *commands) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cancel REPLAY",
		Short: "End a replay; events that have not begun stay dead",
		Long: `End a replay. Events that have not begun stay dead. The command waits for events that
are running, and records their outcome. The relay still publishes outgoing
events that the replay has released.`,
		Example:           `  postroom dead cancel 7 --reason 'wrong group'`,
		Args:              argument.OneID("a replay, as 'postroom dead replays' shows it"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			id, _ := argument.ID(args[0]) // argument.OneID has checked it
			return d.with(cmd.Context(), func(store *deadletter.Store) error {
				if _, err := store.CancelReplay(cmd.Context(), id, d.audit()); err != nil {
					return err
				}
				return d.run(cmd, store, id, true)
			})
		},
	}
	d.AddAuditFlags(cmd)
	d.DB.AddURLFlag(cmd)
	command.AddJSON(cmd, &d.JSON)
	return cmd
}
