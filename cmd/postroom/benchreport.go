package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/postroom/postroom/internal/bench"
	"github.com/postroom/postroom/internal/terminal"
)

// printReport prints a report for people.
func printReport(w io.Writer, r *bench.Report) error {
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
	if err := printTable(w, rows); err != nil {
		return err
	}
	return printText(w, notes(r))
}

// notes says on what was measured, and what.
func notes(r *bench.Report) string {
	var text strings.Builder
	m := r.Machine
	fmt.Fprintf(&text, "\nMedians of %s, %s. A ratio is the median of the runs' ratios.\n", plural(r.Runs, "run"), stamp(m.Date))
	fmt.Fprintf(&text, "%s, %s", m.Platform, plural(m.CPUs, "processor"))
	if m.CPU != "" {
		fmt.Fprintf(&text, " (%s)", m.CPU)
	}
	fmt.Fprintf(&text, ", %s. PostgreSQL %s: fsync %s, synchronous_commit %s, shared_buffers %s. NATS %s: storage %s.\n",
		m.Go, m.Postgres.Version, m.Postgres.Fsync, m.Postgres.SynchronousCommit, m.Postgres.SharedBuffers, m.NATS.Version, m.NATS.Storage)
	if m.Postgres.Fsync != "on" || m.Postgres.SynchronousCommit == "off" {
		text.WriteString("A COMMIT DOES NOT WAIT FOR THE DISK HERE: the figures say nothing about production.\n")
	}
	if !m.Postgres.Checkpoints {
		text.WriteString("The role may not make checkpoints: those of the server fell into the measurements.\n")
	}
	text.WriteString("\n")
	for _, f := range r.Figures {
		fmt.Fprintf(&text, "%s: %s.\n", f.Name, f.Conditions)
	}
	for _, name := range r.LeftOut {
		fmt.Fprintf(&text, "%s: left out; it needs a broker that syncs every message (sync_interval: always): name one with --nats-fsync-url.\n", name)
	}
	return text.String()
}

// number writes a number with three digits or more.
func number(v float64) string {
	switch {
	case v >= 100:
		return grouped(int64(v + 0.5))
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}

// grouped writes a number with its thousands apart: 20,000.
func grouped(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// bar shows on a terminal how far a benchmark is; elsewhere nothing. What is
// written to it goes above the bar.
type bar struct {
	out      io.Writer
	terminal bool
	began    time.Time

	mu   sync.Mutex // guards out and line: relays log from goroutines of their own
	line string
}

func newBar(out io.Writer) *bar {
	b := &bar{out: out, began: time.Now()}
	if file, ok := out.(*os.File); ok {
		b.terminal = term.IsTerminal(int(file.Fd()))
	}
	return b
}

func (b *bar) show(done, total int, next string) {
	const width = 24
	filled := width * done / total
	b.draw(fmt.Sprintf("[%s%s] %d/%d  %s  %s", strings.Repeat("=", filled), strings.Repeat(" ", width-filled),
		done, total, time.Since(b.began).Round(time.Second), next))
}

func (b *bar) clear() { b.draw("") }

func (b *bar) draw(line string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.terminal {
		fmt.Fprint(b.out, terminal.Progress(b.out, line))
	}
	b.line = line
}

// Write writes a line of the log.
func (b *bar) Write(text []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.terminal {
		return b.out.Write(text)
	}
	_, err := fmt.Fprintf(b.out, "\r\x1b[K%s%s", text, terminal.Clip(b.line, max(terminal.Width(b.out)-1, 0)))
	return len(text), err
}
