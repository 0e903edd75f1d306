//go:build linux || darwin

package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/postroom/postroom/internal/childproc"
	"github.com/postroom/postroom/internal/verdict"
)

// The verdicts on a figure with a bound.
const (
	holds     = "ok"
	broken    = "FAILED"
	notJudged = "not judged"
)

// row is a figure of a scenario.
type row struct{ figure, value, bound, verdict string }

// result is what a scenario found.
type result struct {
	name, about string
	short       bool
	rows        []row
	err         error
	took        time.Duration
}

// note adds a figure without a bound.
func (r *result) note(figure, format string, args ...any) {
	r.rows = append(r.rows, row{figure: figure, value: fmt.Sprintf(format, args...)})
}

// check adds a figure that has to hold, even in a short run.
func (r *result) check(figure, value, bound string, ok bool) {
	verdict := holds
	if !ok {
		verdict = broken
	}
	r.rows = append(r.rows, row{figure, value, bound, verdict})
}

// measure adds a figure of time or size. In a short run or on a busy machine it says nothing.
func (r *result) measure(figure, value, bound string, ok bool) {
	if r.short {
		r.rows = append(r.rows, row{figure, value, bound, notJudged})
		return
	}
	r.check(figure, value, bound, ok)
}

// count checks that something did not happen.
func (r *result) count(figure string, n int, example string) {
	value := grouped(n)
	if n > 0 && example != "" {
		value += ": " + example
	}
	r.check(figure, value, "0", n == 0)
}

// faults returns the bounds that do not hold.
func (r *result) faults() []error {
	var all []error
	for _, row := range r.rows {
		if row.verdict == broken {
			all = append(all, fmt.Errorf("%s: %s: %s, want %s", r.name, row.figure, row.value, row.bound))
		}
	}
	switch {
	case errors.Is(r.err, childproc.ErrLate): // it may still have come later
		all = append(all, verdict.NewUndecided("%s: %v", r.name, r.err))
	case r.err != nil:
		all = append(all, fmt.Errorf("%s: %w", r.name, r.err))
	}
	return all
}

func (r *result) broken() bool { return len(r.faults()) > 0 }

func (r *result) verdict() string {
	switch {
	case verdict.IsUndecided(errors.Join(r.faults()...)):
		return verdict.WordUndecided + ": " + r.err.Error()
	case r.err != nil:
		return broken + ": " + r.err.Error()
	case r.broken():
		return broken
	}
	return holds
}

// print prints the result for people.
func (r *result) print(w io.Writer) error {
	var text strings.Builder
	fmt.Fprintf(&text, "\n%s (%s): %s\n\n", r.name, r.took.Round(time.Second), r.verdict())
	table := tabwriter.NewWriter(&text, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "FIGURE\tVALUE\tBOUND\tVERDICT")
	for _, row := range r.rows {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", row.figure, row.value, row.bound, row.verdict)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	text.WriteString("\n")
	if _, err := io.WriteString(w, text.String()); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

// report has the results of all scenarios.
type report struct {
	machine machine
	options options
	results []*result
}

// markdown returns the report as a document.
func (r *report) markdown() string {
	var text strings.Builder
	text.WriteString("# Soak\n\n")
	text.WriteString("What the long proofs found. `make soak ARGS=\"--report integration/results/soak.md\"` writes this file: do not edit it.\n\n")
	if r.options.short {
		text.WriteString("**A short run: bounds on time and size were not judged.**\n\n")
	}
	fmt.Fprintf(&text, "    %s\n\n", r.options.commandLine())
	text.WriteString(r.machine.markdown())
	text.WriteString("\n| scenario | took | verdict |\n| --- | --- | --- |\n")
	for _, s := range r.results {
		fmt.Fprintf(&text, "| [%s](#%s) | %s | %s |\n", s.name, s.name, s.took.Round(time.Second), cell(s.verdict()))
	}
	for _, s := range r.results {
		fmt.Fprintf(&text, "\n## %s\n\n%s\n\n| figure | value | bound | verdict |\n| --- | --- | --- | --- |\n", s.name, s.about)
		for _, row := range s.rows {
			fmt.Fprintf(&text, "| %s | %s | %s | %s |\n", cell(row.figure), cell(row.value), cell(row.bound), row.verdict)
		}
		if s.err != nil {
			fmt.Fprintf(&text, "\nIt ended early: %s\n", cell(s.err.Error()))
		}
	}
	return text.String()
}

// cell makes a text fit for a table.
func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ").Replace(text)
}

// commandLine is the command for the same run.
func (o options) commandLine() string {
	var args []string
	if len(o.only) > 0 {
		args = append(args, "--only "+strings.Join(o.only, ","))
	}
	if o.short {
		args = append(args, "--short")
	}
	if o.openFor != 5*time.Minute {
		args = append(args, "--open-for "+o.openFor.String())
	}
	if o.bytes != 0 {
		args = append(args, fmt.Sprint("--retained-bytes ", o.bytes))
	}
	if o.report != "" {
		args = append(args, "--report "+o.report)
	}
	if len(args) == 0 {
		return "make soak"
	}
	return fmt.Sprintf("make soak ARGS=%q", strings.Join(args, " "))
}

// grouped writes a number with separated thousands: 20,000.
func grouped[T int | int64 | uint64](n T) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func megabytes(bytes int64) string { return fmt.Sprintf("%.1f MB", float64(bytes)/1e6) }

// millis writes a duration in milliseconds.
func millis(d time.Duration) string { return fmt.Sprintf("%.2f ms", float64(d)/1e6) }
