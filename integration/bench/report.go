package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/postroom/postroom/integration/bench/internal/measure"
	"github.com/postroom/postroom/internal/terminal"
)

// printReport prints a report as a table and notes.
func printReport(w io.Writer, r *measure.Report) error {
	rows := [][]string{{"FIGURE", "MEDIAN", "MIN", "MAX", "UNIT", "REFERENCE", "RATIO"}}
	for _, f := range r.Figures {
		row := []string{f.Name, number(f.Median), number(f.Min), number(f.Max), f.Unit, "", ""}
		if f.P50 != nil {
			row[4] += " p99"
		}
		if f.Ratio != nil {
			row[5], row[6] = number(*f.ReferenceMedian), fmt.Sprintf("%.2f", *f.Ratio)
		}
		rows = append(rows, row)
		if f.P50 != nil {
			rows = append(rows, []string{"", number(*f.P50), "", "", f.Unit + " p50", number(*f.ReferenceP50), ""})
		}
	}
	if err := terminal.Table(w, widthOf(w), rows); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	if _, err := io.WriteString(w, notes(r)); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

// notes describes the servers and the measurements.
func notes(r *measure.Report) string {
	var text strings.Builder
	m := r.Machine
	fmt.Fprintf(&text, "\nMedians of %s, %s. A ratio is the median of the runs' ratios.\n", plural(r.Runs, "run"), m.Date.UTC().Format(time.RFC3339))
	fmt.Fprintf(&text, "%s, %s", m.Platform, plural(m.CPUs, "processor"))
	if m.CPU != "" {
		fmt.Fprintf(&text, " (%s)", m.CPU)
	}
	fmt.Fprintf(&text, ", %s. PostgreSQL %s: fsync %s, synchronous_commit %s, shared_buffers %s. NATS %s: storage %s.\n",
		m.Go, m.Postgres.Version, m.Postgres.Fsync, m.Postgres.SynchronousCommit, m.Postgres.SharedBuffers, m.NATS.Version, m.NATS.Storage)
	if m.Postgres.Fsync != "on" || m.Postgres.SynchronousCommit == "off" {
		text.WriteString("A COMMIT DOES NOT WAIT FOR THE DISK HERE: the figures do not apply to production.\n")
	}
	if !m.Postgres.Checkpoints {
		text.WriteString("The role may not make checkpoints, so the server made its own during the measurements.\n")
	}
	text.WriteString("\n")
	for _, f := range r.Figures {
		fmt.Fprintf(&text, "%s: %s.\n", f.Name, f.Conditions)
	}
	for _, name := range r.LeftOut {
		fmt.Fprintf(&text, "%s: left out, because it needs a broker that syncs every message (sync_interval: always): name one with --nats-fsync-url.\n", name)
	}
	return text.String()
}

// number returns a number as a text, with three digits or more.
func number(v float64) string {
	switch {
	case v >= 100:
		return terminal.Grouped(int64(v + 0.5))
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}

// plural returns "1 run", "2 runs".
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// widthOf returns how many characters fit on a line of w, or 0 if w is not a terminal.
func widthOf(w io.Writer) int {
	file, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return 0
	}
	width, _, err := term.GetSize(int(file.Fd()))
	if err != nil {
		return 0
	}
	return width
}
