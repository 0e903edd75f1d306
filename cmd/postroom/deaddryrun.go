package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/postroom/postroom/deadletter"
)

// dryRun prints what a replay would do.
func (d *dead) dryRun(cmd *cobra.Command, store *deadletter.Store, f deadletter.Filter, w replayFlags) error {
	groups, err := store.Preview(cmd.Context(), f, w.options)
	if err != nil {
		return err
	}
	all, busy := countOf(groups)
	if all == 0 {
		return nothingToReplay(f, busy)
	}
	var dryRuns []deadletter.DryRun
	if w.try > 0 {
		if dryRuns, err = store.DryRun(cmd.Context(), f, w.options, w.try, w.wait); err != nil {
			return err
		}
	}
	out := cmd.OutOrStdout()
	if d.asJSON {
		err = printJSON(out, struct {
			Events  int64                     `json:"events"`
			Groups  []deadletter.PreviewGroup `json:"groups"`
			DryRuns []deadletter.DryRun       `json:"dry_runs"`
		}{all, groups, list(dryRuns)})
	} else if err = printPreview(out, groups); err == nil {
		err = printDryRuns(out, dryRuns)
	}
	if err != nil {
		return err
	}
	return previewProblems(groups, dryRuns)
}

// previewProblems returns the problems that an operator has to know before the replay.
func previewProblems(groups []deadletter.PreviewGroup, dryRuns []deadletter.DryRun) error {
	var bad []string
	for _, f := range groups {
		switch {
		case f.Events == 0:
		case !f.HasProcess:
			bad = append(bad, fmt.Sprintf("no process runs handler %s", cell(f.Handler, 60)))
		case f.TooOld > 0:
			bad = append(bad, fmt.Sprintf("%d outgoing events are older than consumers may take: they need --as-new", f.TooOld))
		case f.StepsOpen > 0:
			bad = append(bad, fmt.Sprintf("%d events of %s have calls of unknown outcome: 'postroom dead resolve' says what happened", f.StepsOpen, cell(f.Handler, 60)))
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
		bad = append(bad, fmt.Sprintf("%d of %d that were tried fail again", fails, len(dryRuns)))
	}
	if silent > 0 {
		bad = append(bad, fmt.Sprintf("%d of %d that were to be tried were not", silent, len(dryRuns)))
	}
	if len(bad) > 0 {
		return todof("%s", strings.Join(bad, "; "))
	}
	return nil
}

func printPreview(out io.Writer, groups []deadletter.PreviewGroup) error {
	rows := [][]string{{"HANDLER", "TYPE", "EVENTS", "KEYS WAIT", "IN REPLAYS", "RUN ALONE", "CALLS DONE", "CALLS OPEN", "TOO OLD", "RUNS"}}
	for _, f := range groups {
		runs := "yes"
		if !f.HasProcess {
			runs = "NOWHERE"
		}
		rows = append(rows, []string{
			cell(f.Handler, 40), cell(f.Type, 40), grouped(f.Events), grouped(f.KeysWaiting), grouped(f.InReplay), grouped(f.Isolated),
			grouped(f.StepsDone), grouped(f.StepsOpen), grouped(f.TooOld), runs,
		})
	}
	return printTable(out, rows)
}

func printDryRuns(out io.Writer, dryRuns []deadletter.DryRun) error {
	if len(dryRuns) == 0 {
		return nil
	}
	rows := [][]string{{"TRIED", "HANDLER", "WAS", "NOW", "TOOK", "WOULD HAVE"}}
	for _, t := range dryRuns {
		now := string(t.Verdict)
		if t.Class != "" {
			now += " (" + cell(t.Class, 20) + ")"
		}
		rows = append(rows, []string{fmt.Sprint(t.ID), cell(t.Handler, 40), cell(t.PreviousClass, 20), now, t.Took.Round(time.Millisecond / 10).String(), effects(t)})
	}
	if err := printLine(out, ""); err != nil {
		return err
	}
	return printTable(out, rows)
}

// effects describes what a dry run would have changed, or why it failed.
func effects(t deadletter.DryRun) string {
	if t.Text != "" {
		return cell(t.Text, 100)
	}
	var parts []string
	for _, c := range t.Changes {
		if c.Kind == "event" {
			parts = append(parts, fmt.Sprintf("%s %s", plural(int(c.Inserted), "event"), cell(c.Name, 60)))
			continue
		}
		for _, n := range []struct {
			n    int64
			what string
		}{{c.Inserted, "inserted"}, {c.Updated, "updated"}, {c.Deleted, "deleted"}} {
			if n.n > 0 {
				parts = append(parts, fmt.Sprintf("%s: %d %s", cell(c.Name, 60), n.n, n.what))
			}
		}
	}
	for _, s := range t.Steps {
		how := "open since " + stamp(s.StartedAt)
		if s.DoneAt != nil {
			how = "done"
		}
		parts = append(parts, fmt.Sprintf("step %s %s", cell(s.Name, 40), how))
	}
	return strings.Join(parts, ", ")
}
