//go:build linux || darwin

package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/postroom/postroom/integration/checker"
)

// report is the result of a run.
type report struct {
	options options
	took    time.Duration
	found   checker.State
	verdict checker.Verdict
}

// Verdicts of a run.
const (
	fine      = "ok"
	broken    = "FAILED"
	undecided = "undecided" // the run shows neither success nor failure
)

func (r report) word() string {
	switch {
	case !r.verdict.Sound():
		return broken
	case !r.verdict.OK():
		return undecided
	}
	return fine
}

// failure returns the error with which the program ends.
func (r report) failure() error {
	switch r.word() {
	case broken:
		return &failure{1}
	case undecided:
		return &failure{3}
	}
	return nil
}

// figures returns the numbers of the run, in order.
func (r report) figures() [][2]string {
	c := r.verdict.Coverage
	duplicates := 0
	for _, messages := range r.found.Streams {
		seen := make(map[string]bool)
		for _, m := range messages {
			if seen[m.ID] {
				duplicates++
			}
			seen[m.ID] = true
		}
		break // one server is enough: all have the same stream
	}
	return [][2]string{
		{"seed", fmt.Sprint(r.options.seed)},
		{"NATS servers", fmt.Sprint(r.options.nodes)},
		{"atomic batches", fmt.Sprint(r.options.inBatches())},
		{"seconds of faults", fmt.Sprint(r.options.seconds)},
		{"whole run", r.took.Round(time.Second).String()},
		{"events committed", fmt.Sprint(c.Events)},
		{"effects", fmt.Sprint(r.effects())},
		{"unknown commits", fmt.Sprint(c.UnknownCommits)},
		{"duplicate acknowledgements", fmt.Sprint(c.DuplicateAcks)},
		{"second copies in the stream", fmt.Sprint(duplicates)},
		{"duplicates that inboxes suppressed", fmt.Sprint(c.InboxDuplicates)},
		{"take-overs", fmt.Sprint(c.TakeOvers)},
		{"dead", fmt.Sprint(c.Dead)},
		{"released by operators", fmt.Sprint(c.Released)},
		{"cancelled by operators", fmt.Sprint(c.Cancelled)},
		{"called off before they were published", fmt.Sprint(c.CalledOff)},
		{"rescheduled by operators", fmt.Sprint(c.Rescheduled)},
		{"pauses by operators", fmt.Sprint(c.Pauses)},
		{"events not recorded when faults struck", spread(c.Unrecorded)},
		{"deliveries in memory when faults struck", spread(c.Unacknowledged)},
		{"a relay led after", r.found.Lead.Took.String()},
		{"all work done after", r.found.Drained.Took.String()},
	}
}

// spread describes the distribution of sorted numbers.
func spread(all []int64) string {
	if len(all) == 0 {
		return "not counted"
	}
	hundreds := 0
	for _, n := range all {
		if n >= 100 {
			hundreds++
		}
	}
	return fmt.Sprintf("half of the time %d or more, at most %d; 100 or more in %d of %d", all[len(all)/2], all[len(all)-1], hundreds, len(all))
}

func (r report) effects() (n int) {
	for _, events := range r.found.Effects {
		n += len(events)
	}
	return n
}

// faults returns the kinds of faults, and how often each was injected.
func (r report) faults() (rows [][2]string) {
	for _, name := range slices.Sorted(maps.Keys(r.verdict.Coverage.Faults)) {
		rows = append(rows, [2]string{name, fmt.Sprint(r.verdict.Coverage.Faults[name])})
	}
	return rows
}

// verdicts returns the invariants, each with its result.
func (r report) verdicts() (rows [][2]string) {
	for _, name := range checker.Names() {
		found := fine
		if len(r.verdict.Pending) > 0 {
			found = undecided
		}
		if v := r.verdict.Violations[name]; len(v) > 0 {
			found = fmt.Sprintf("%s, %d times: %s", broken, len(v), strings.Join(v[:min(len(v), 5)], "; "))
		}
		rows = append(rows, [2]string{string(name), found})
	}
	return rows
}

// pending returns the part of the last line that is about unfinished work.
func (r report) pending() string {
	if len(r.verdict.Pending) == 0 {
		return ""
	}
	return " pending=" + strconv.Quote(strings.Join(r.verdict.Pending, "; "))
}

// last returns the last line, which summarises the run.
func (r report) last() string {
	of := func(name checker.Name) int { return len(r.verdict.Violations[name]) }
	return fmt.Sprintf("chaos: events=%d faults=%d lost=%d ghosts=%d double_effects=%d misordered=%d verdict=%s%s",
		r.verdict.Coverage.Events, r.verdict.Coverage.AllFaults(), of(checker.NoLoss), of(checker.NoGhost), of(checker.EffectOnce), of(checker.KeyOrder), r.word(), r.pending())
}

func (r report) print(w io.Writer) error {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 3, ' ', 0)
	for _, part := range [][][2]string{r.figures(), r.faults(), r.verdicts()} {
		for _, row := range part {
			fmt.Fprintf(table, "%s\t%s\n", row[0], row[1])
		}
		fmt.Fprintln(table)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if missing := r.verdict.Coverage.Missing(); len(missing) > 0 {
		fmt.Fprintf(&text, "No %s: the run shows nothing about them.\n\n", strings.Join(missing, ", no "))
	}
	if len(r.verdict.Pending) > 0 {
		fmt.Fprintf(&text, "The time ran out before this work was done. More time might have been enough:\n  %s\n"+
			"Run it again on a machine with less to do, or with --patience 3.\n\n", strings.Join(r.verdict.Pending, "\n  "))
	}
	text.WriteString(r.last() + "\n")
	if _, err := io.WriteString(w, text.String()); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

// markdown returns the report as a part of a document.
func (r report) markdown() string {
	var text strings.Builder
	for i, part := range [][][2]string{r.figures(), r.faults(), r.verdicts()} {
		fmt.Fprintf(&text, "| %s | |\n| --- | --- |\n", []string{"figure", "fault", "invariant"}[i])
		for _, row := range part {
			fmt.Fprintf(&text, "| %s | %s |\n", row[0], strings.ReplaceAll(row[1], "|", `\|`))
		}
		text.WriteString("\n")
	}
	fmt.Fprintf(&text, "    %s\n", r.last())
	return text.String()
}
