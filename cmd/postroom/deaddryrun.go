package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/postroom/postroom/deadletter"
)

// dryRun says what a replay would do.
func (d *dead) dryRun(cmd *cobra.Command, store *deadletter.Store, f deadletter.Filter, w replayWish) error {
	forecasts, err := store.Preview(cmd.Context(), f, w.o)
	if err != nil {
		return err
	}
	all, busy := countOf(forecasts)
	if all == 0 {
		return nothingToDo(f, busy)
	}
	var trials []deadletter.Trial
	if w.try > 0 {
		if trials, err = store.Try(cmd.Context(), f, w.o, w.try, w.wait); err != nil {
			return err
		}
	}
	out := cmd.OutOrStdout()
	if d.asJSON {
		err = printJSON(out, struct {
			Events    int64                 `json:"events"`
			Forecasts []deadletter.Forecast `json:"forecasts"`
			Trials    []deadletter.Trial    `json:"trials"`
		}{all, forecasts, list(trials)})
	} else if err = printForecasts(out, forecasts); err == nil {
		err = printTrials(out, trials)
	}
	if err != nil {
		return err
	}
	return judgement(forecasts, trials)
}

// judgement is what an operator has to know before the replay.
func judgement(forecasts []deadletter.Forecast, trials []deadletter.Trial) error {
	var bad []string
	for _, f := range forecasts {
		switch {
		case f.Events == 0:
		case !f.Runs:
			bad = append(bad, fmt.Sprintf("no process runs handler %s", cell(f.Handler, 60)))
		case f.TooOld > 0:
			bad = append(bad, fmt.Sprintf("%d outgoing events are older than consumers may take: they need --as-new", f.TooOld))
		case f.StepsOpen > 0:
			bad = append(bad, fmt.Sprintf("%d events of %s have calls of unknown outcome: 'postroom dead resolve' says what happened", f.StepsOpen, cell(f.Handler, 60)))
		}
	}
	fails, silent := 0, 0
	for _, t := range trials {
		switch t.Verdict {
		case deadletter.Fails:
			fails++
		case deadletter.Unanswered, deadletter.Broken:
			silent++
		}
	}
	if fails > 0 {
		bad = append(bad, fmt.Sprintf("%d of %d that were tried fail again", fails, len(trials)))
	}
	if silent > 0 {
		bad = append(bad, fmt.Sprintf("%d of %d that were to be tried were not", silent, len(trials)))
	}
	if len(bad) > 0 {
		return todof("%s", strings.Join(bad, "; "))
	}
	return nil
}

func printForecasts(out io.Writer, forecasts []deadletter.Forecast) error {
	rows := [][]string{{"HANDLER", "TYPE", "EVENTS", "KEYS WAIT", "IN REPLAYS", "RUN ALONE", "CALLS DONE", "CALLS OPEN", "TOO OLD", "RUNS"}}
	for _, f := range forecasts {
		runs := "yes"
		if !f.Runs {
			runs = "NOWHERE"
		}
		rows = append(rows, []string{
			cell(f.Handler, 40), cell(f.Type, 40), grouped(f.Events), grouped(f.Keys), grouped(f.Busy), grouped(f.Suspects),
			grouped(f.StepsDone), grouped(f.StepsOpen), grouped(f.TooOld), runs,
		})
	}
	return printTable(out, rows)
}

func printTrials(out io.Writer, trials []deadletter.Trial) error {
	if len(trials) == 0 {
		return nil
	}
	rows := [][]string{{"TRIED", "HANDLER", "WAS", "NOW", "TOOK", "WOULD HAVE"}}
	for _, t := range trials {
		now := string(t.Verdict)
		if t.Class != "" {
			now += " (" + cell(t.Class, 20) + ")"
		}
		rows = append(rows, []string{fmt.Sprint(t.ID), cell(t.Handler, 40), cell(t.Was, 20), now, t.Took.Round(time.Millisecond / 10).String(), effects(t)})
	}
	if err := printLine(out, ""); err != nil {
		return err
	}
	return printTable(out, rows)
}

// effects is what a trial would have done, or why it could not.
func effects(t deadletter.Trial) string {
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
