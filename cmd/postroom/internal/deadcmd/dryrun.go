package deadcmd

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/postroom/postroom/cmd/postroom/internal/exit"
	"github.com/postroom/postroom/cmd/postroom/internal/output"
	"github.com/postroom/postroom/deadletter"
	"github.com/postroom/postroom/internal/terminal"
)

// dryRun prints what a replay would do.
func dryRun(cmd *cobra.Command, store *deadletter.Store, f deadletter.Filter, w replayFlags, asJSON bool) error {
	groups, these, err := store.Preview(cmd.Context(), f, w.options)
	if err != nil {
		return err
	}
	all, busy := countOf(groups)
	if all == 0 {
		return nothingToReplay(f, busy)
	}
	var dryRuns []deadletter.DryRun
	if w.try > 0 {
		if dryRuns, err = store.DryRun(cmd.Context(), these, deadletter.DryRunOptions{Limit: w.options.Limit, Each: w.try, Wait: w.wait}); err != nil {
			return err
		}
	}
	out := cmd.OutOrStdout()
	if asJSON {
		err = output.JSON(out, struct {
			Events  int64                     `json:"events"`
			Groups  []deadletter.PreviewGroup `json:"groups"`
			DryRuns []deadletter.DryRun       `json:"dry_runs"`
		}{all, groups, output.List(dryRuns)})
	} else if err = printPreview(out, groups); err == nil {
		err = printDryRuns(out, dryRuns)
	}
	if err != nil {
		return err
	}
	return previewProblems(groups, dryRuns, w.options.AsNew)
}

// previewProblems returns the problems that an operator must know before a replay.
func previewProblems(groups []deadletter.PreviewGroup, dryRuns []deadletter.DryRun, asNew bool) error {
	var bad []string
	for _, f := range groups {
		if f.Events == 0 {
			continue
		}
		if unknown := fmt.Sprintf("no process runs handler %s", output.Cell(f.Handler, 60)); !f.HasProcess && !slices.Contains(bad, unknown) {
			bad = append(bad, unknown)
		}
		if f.TooOld > 0 && !asNew {
			bad = append(bad, fmt.Sprintf("%d outgoing events are too old for consumers: replay them with --as-new", f.TooOld))
		}
		if f.Committed > 0 {
			bad = append(bad, mayRepeat(f))
		}
		if f.StepsOpen > 0 {
			bad = append(bad, fmt.Sprintf("%d events of %s have calls whose outcome is unknown: record it with 'postroom dead resolve'", f.StepsOpen, output.Cell(f.Handler, 60)))
		}
	}
	fails, silent := 0, 0
	for _, t := range dryRuns {
		switch t.Verdict {
		case deadletter.DryRunFails:
			fails++
		case deadletter.DryRunUnanswered, deadletter.DryRunBroken:
			silent++
		}
	}
	if fails > 0 {
		bad = append(bad, fmt.Sprintf("%d of %d dry runs failed", fails, len(dryRuns)))
	}
	if silent > 0 {
		bad = append(bad, fmt.Sprintf("%d of %d dry runs gave no result", silent, len(dryRuns)))
	}
	if len(bad) > 0 {
		return exit.Todof("%s", strings.Join(bad, "; "))
	}
	return nil
}

// mayRepeat says that a replay can repeat effects.
func mayRepeat(g deadletter.PreviewGroup) string {
	return fmt.Sprintf("%s of %s may have taken effect, because the handler ended its transaction itself: a replay repeats these effects", output.Plural(int(g.Committed), "event"), output.Cell(g.Handler, 60))
}

func printPreview(out io.Writer, groups []deadletter.PreviewGroup) error {
	rows := [][]string{{"HANDLER", "TYPE", "EVENTS", "KEYS WAIT", "IN REPLAYS", "RUN ALONE", "CALLS DONE", "CALLS OPEN", "TOO OLD", "RUNS"}}
	for _, f := range groups {
		runs := "yes"
		if !f.HasProcess {
			runs = "NOWHERE"
		}
		rows = append(rows, []string{
			output.Cell(f.Handler, 40), output.Cell(f.Type, 40), terminal.Grouped(f.Events), terminal.Grouped(f.KeysWaiting), terminal.Grouped(f.InReplay), terminal.Grouped(f.Isolated),
			terminal.Grouped(f.StepsDone), terminal.Grouped(f.StepsOpen), terminal.Grouped(f.TooOld), runs,
		})
	}
	return output.Table(out, rows)
}

func printDryRuns(out io.Writer, dryRuns []deadletter.DryRun) error {
	if len(dryRuns) == 0 {
		return nil
	}
	rows := [][]string{{"TRIED", "HANDLER", "WAS", "NOW", "TOOK", "WOULD HAVE"}}
	for _, t := range dryRuns {
		now := string(t.Verdict)
		if t.Class != "" {
			now += " (" + output.Cell(t.Class, 20) + ")"
		}
		rows = append(rows, []string{fmt.Sprint(t.ID), output.Cell(t.Handler, 40), output.Cell(t.PreviousClass, 20), now, t.Took.Round(time.Millisecond / 10).String(), effects(t)})
	}
	if err := output.Line(out, ""); err != nil {
		return err
	}
	return output.Table(out, rows)
}

// effects describes what a dry run would have changed, or why the dry run failed.
func effects(t deadletter.DryRun) string {
	if t.Text != "" {
		return output.Cell(t.Text, 100)
	}
	var parts []string
	for _, c := range t.Changes {
		if c.Kind == "event" {
			parts = append(parts, fmt.Sprintf("%s %s", output.Plural(int(c.Inserted), "event"), output.Cell(c.Name, 60)))
			continue
		}
		for _, n := range []struct {
			n    int64
			what string
		}{{c.Inserted, "inserted"}, {c.Updated, "updated"}, {c.Deleted, "deleted"}} {
			if n.n > 0 {
				parts = append(parts, fmt.Sprintf("%s: %d %s", output.Cell(c.Name, 60), n.n, n.what))
			}
		}
	}
	for _, s := range t.Steps {
		how := "open since " + output.Stamp(s.StartedAt)
		if !s.DoneAt.IsZero() {
			how = "done"
		}
		parts = append(parts, fmt.Sprintf("step %s %s", output.Cell(s.Name, 40), how))
	}
	return strings.Join(parts, ", ")
}
