package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/postroom/postroom/internal/terminal"
)

// addJSON adds the flag for output that a script reads.
func addJSON(cmd *cobra.Command, to *bool) {
	cmd.Flags().BoolVar(to, "json", false, "print JSON, for scripts")
}

func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

// printTable prints aligned columns, the names of the columns first, cut to the width of
// a terminal.
func printTable(w io.Writer, rows [][]string) error {
	if err := terminal.Table(w, widthOf(w), rows); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

// printFacts prints names and values in two columns, in full.
func printFacts(w io.Writer, rows [][]string) error {
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	for _, row := range rows {
		if _, err := fmt.Fprintln(table, strings.Join(row, "\t")); err != nil {
			return fmt.Errorf("write output: %w", err)
		}
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

// printLine prints one line of plain text.
func printLine(w io.Writer, format string, args ...any) error {
	if _, err := fmt.Fprintf(w, format+"\n", args...); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// plural returns "1 migration", "2 migrations".
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func plain(n int) string { return strconv.Itoa(n) }

// printText prints text as it is.
func printText(w io.Writer, text string) error {
	if _, err := io.WriteString(w, text); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

// list returns a list that JSON has as an empty one, not as null.
func list[T any](all []T) []T {
	if all == nil {
		return []T{}
	}
	return all
}

// ago is how long ago a time was, as one says it.
func ago(t time.Time) string { return span(time.Since(t)) + " ago" }

// span is a duration in its two largest units.
func span(d time.Duration) string {
	switch d = d.Abs(); {
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm%ds", d/time.Minute, d%time.Minute/time.Second)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	default:
		return fmt.Sprintf("%dd%dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
	}
}

// cell is a text of an event, or of a failure, in one cell of a table: its first line,
// of most characters at the most, and nothing that a terminal would obey.
func cell(text string, most int) string {
	text, _, more := strings.Cut(text, "\n")
	clean := []rune(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '·'
		}
		return r
	}, text))
	if len(clean) > most {
		clean, more = clean[:most-1], true
	}
	if more {
		return string(clean) + "…"
	}
	return string(clean)
}

// printable is a text without control characters, but for the ends of lines and tabs.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && !unicode.IsPrint(r) {
			return '·'
		}
		return r
	}, s)
}

// grouped writes a number with its thousands apart: 20,000.
func grouped(n int64) string { return terminal.Grouped(n) }

// widthOf returns how many characters fit on a line of w, and 0 if w is no terminal.
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

// newBar returns a bar that shows on w how far a command is, if w is a terminal.
func newBar(w io.Writer) *terminal.Bar { return terminal.NewBar(w, func() int { return widthOf(w) }) }
