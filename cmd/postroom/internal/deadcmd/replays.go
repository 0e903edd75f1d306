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
	"github.com/postroom/postroom/cmd/postroom/internal/caller"
	"github.com/postroom/postroom/cmd/postroom/internal/command"
	"github.com/postroom/postroom/cmd/postroom/internal/deadview"
	"github.com/postroom/postroom/cmd/postroom/internal/exit"
	"github.com/postroom/postroom/cmd/postroom/internal/output"
	"github.com/postroom/postroom/deadletter"
)

// NewReplays returns the command replay, the group of the commands on replays.
func NewReplays(getenv func(string) string) *cobra.Command {
	d := &commands{caller.New(getenv)}
	cmd := command.Group("replay", "List, continue and end replays of dead events",
		newReplayList(d), newReplayResume(d), newReplayCancel(d))
	cmd.Long = "List, continue and end replays of dead events. 'postroom dead replay' makes a replay and runs it."
	d.DB.AddSchemaFlag(cmd)
	return cmd
}

func newReplayList(d *commands) *cobra.Command {
	var page postroom.Page
	var only deadletter.ReplayFilter
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List replays, newest first",
		Long: `List replays, newest first: who made each, for which events, and its progress. If a
replay is 'idle', no process runs it: 'postroom replay resume' continues it.`,
		Example: `  postroom replay list
  postroom replay list --running --json`,
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
	argument.AfterID(cmd, &page.After)
	d.DB.AddURLFlag(cmd)
	command.AddJSON(cmd, &d.JSON)
	return cmd
}

func newReplayResume(d *commands) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "resume REPLAY",
		Short: "Continue a replay that was interrupted, stopped or cancelled",
		Long: `Continue a replay. If its command was interrupted or died, the replay continues at the
event that is next. If the replay stopped or was cancelled, it releases the events that
it did not release and that are still dead. If it had a canary, it begins with another
one, of as many events.

Exit status 3: events failed again, or the replay stopped, was cancelled or was
interrupted.`,
		Example:           `  postroom replay resume 7`,
		Args:              argument.OneID("a replay, as 'postroom replay list' shows it"),
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

func newReplayCancel(d *commands) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cancel REPLAY",
		Short: "End a replay; events that have not begun stay dead",
		Long: `End a replay. Events that have not begun stay dead. The command waits for events that
are running, and records their outcome. The relay still publishes outgoing
events that the replay has released.`,
		Example:           `  postroom replay cancel 7 --reason 'wrong group'`,
		Args:              argument.OneID("a replay, as 'postroom replay list' shows it"),
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
			return exit.Todof("interrupted; replay %d is idle now. To continue it: 'postroom replay resume %d'. To end it: 'postroom replay cancel %d'", id, id, id)
		}
		return fmt.Errorf("%w; the replay is idle now. To continue it: 'postroom replay resume %d'", err, id)
	}
	if err := d.printReplay(cmd.OutOrStdout(), replay); err != nil {
		return err
	}
	switch {
	case replay.State == deadletter.ReplayStopped:
		return exit.Todof("replay %d stopped: %d of %d events failed. The rest did not run and are still dead. 'postroom dead groups' shows why events failed; 'postroom replay resume %d' continues",
			id, replay.Failed, replay.Succeeded+replay.Failed, id)
	//guard:a-replay-that-another-cancels-has-not-run false
	case replay.State == deadletter.ReplayCancelled && replay.Skipped > 0 && !cancels:
		return exit.Todof("replay %d was cancelled: %s did not run; 'postroom replay resume %d' continues", id, output.Plural(replay.Skipped, "event"), id)
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
