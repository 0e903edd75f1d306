// Package figures has what scenarios find: figures with bounds, and the verdicts on them.
package figures

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

// Result is what a scenario found.
type Result struct {
	Name, About string
	Short       bool          // bounds on time and size are not judged
	Err         error         // the error that ended the scenario early
	Duration    time.Duration // of the scenario

	rows []row
}

// Note adds a figure without a bound.
func (r *Result) Note(figure, format string, args ...any) {
	r.rows = append(r.rows, row{figure: figure, value: fmt.Sprintf(format, args...)})
}

// Check adds a figure whose bound has to hold, even in a short run.
func (r *Result) Check(figure, value, bound string, ok bool) {
	verdict := holds
	if !ok {
		verdict = broken
	}
	r.rows = append(r.rows, row{figure, value, bound, verdict})
}

// Measure adds a figure of time or size. In a short run, Measure does not judge the figure: all
// scenarios run at once, and on a busy machine the figure says nothing.
func (r *Result) Measure(figure, value, bound string, ok bool) {
	if r.Short {
		r.rows = append(r.rows, row{figure, value, bound, notJudged})
		return
	}
	r.Check(figure, value, bound, ok)
}

// Count checks that something did not happen. n is the number of times that it happened.
func (r *Result) Count(figure string, n int, example string) {
	value := Grouped(n)
	if n > 0 && example != "" {
		value += ": " + example
	}
	r.Check(figure, value, "0", n == 0)
}

// Faults returns an error for each bound that does not hold, and for an early end of the scenario.
func (r *Result) Faults() []error {
	var all []error
	for _, row := range r.rows {
		if row.verdict == broken {
			all = append(all, fmt.Errorf("%s: %s: %s, want %s", r.Name, row.figure, row.value, row.bound))
		}
	}
	switch {
	case errors.Is(r.Err, childproc.ErrLate): // the thing that was late may have happened later
		all = append(all, verdict.NewUndecided("%s: %v", r.Name, r.Err))
	case r.Err != nil:
		all = append(all, fmt.Errorf("%s: %w", r.Name, r.Err))
	}
	return all
}

// IsBroken reports whether a bound does not hold, or the scenario ended early.
func (r *Result) IsBroken() bool { return len(r.Faults()) > 0 }

// Verdict returns the result of the scenario, in a word or a line.
func (r *Result) Verdict() string {
	switch {
	case verdict.IsUndecided(errors.Join(r.Faults()...)):
		return verdict.WordUndecided + ": " + r.Err.Error()
	case r.Err != nil:
		return broken + ": " + r.Err.Error()
	case r.IsBroken():
		return broken
	}
	return holds
}

// Print prints the result for people.
func (r *Result) Print(w io.Writer) error {
	var text strings.Builder
	fmt.Fprintf(&text, "\n%s (%s): %s\n\n", r.Name, r.Duration.Round(time.Second), r.Verdict())
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

// cell makes a text fit into a cell of a table in Markdown.
func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ").Replace(text)
}

// Line returns the row of the result in the table of all scenarios, in Markdown. The parameter run
// names the run.
func (r *Result) Line(run string) string {
	return fmt.Sprintf("| [%s](#%s) | %s | %s | %s |\n", r.Name, r.Name, cell(run), r.Duration.Round(time.Second), cell(r.Verdict()))
}

// Section returns the part of the report that is about this scenario, in Markdown.
func (r *Result) Section() string {
	var text strings.Builder
	fmt.Fprintf(&text, "\n## %s\n\n%s\n\n| figure | value | bound | verdict |\n| --- | --- | --- | --- |\n", r.Name, r.About)
	for _, row := range r.rows {
		fmt.Fprintf(&text, "| %s | %s | %s | %s |\n", cell(row.figure), cell(row.value), cell(row.bound), row.verdict)
	}
	if r.Err != nil {
		fmt.Fprintf(&text, "\nIt ended early: %s\n", cell(r.Err.Error()))
	}
	return text.String()
}
