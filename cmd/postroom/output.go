package main

import (
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/postroom/postroom/cmd/postroom/internal/output"
	"github.com/postroom/postroom/internal/terminal"
)

// addJSON adds the flag for output that a script reads.
func addJSON(cmd *cobra.Command, to *bool) {
	cmd.Flags().BoolVar(to, "json", false, "print JSON, for scripts")
}

func printJSON(w io.Writer, v any) error { return output.JSON(w, v) }

func printTable(w io.Writer, rows [][]string) error { return output.Table(w, rows) }

func printFacts(w io.Writer, rows [][]string) error { return output.Facts(w, rows) }

func printLine(w io.Writer, format string, args ...any) error { return output.Line(w, format, args...) }

func printText(w io.Writer, text string) error { return output.Text(w, text) }

func stamp(t time.Time) string { return output.Stamp(t) }

func plural(n int, noun string) string { return output.Plural(n, noun) }

func plain(n int) string { return strconv.Itoa(n) }

func ago(t time.Time) string { return output.Ago(t) }

func span(d time.Duration) string { return output.Span(d) }

func cell(text string, most int) string { return output.Cell(text, most) }

// orDash is a text, or a dash where there is none.
func orDash(text string) string { return output.OrDash(text) }

// block prints a table with a line before it, unless it has a head alone.
func block(cmd *cobra.Command, rows [][]string) error { return output.Block(cmd.OutOrStdout(), rows) }

// grouped writes a number with its thousands apart: 20,000.
func grouped(n int64) string { return terminal.Grouped(n) }

// list returns a list that JSON has as an empty one, not as null.
func list[T any](all []T) []T {
	if all == nil {
		return []T{}
	}
	return all
}

// widthOf returns how many characters fit on a line of w, and 0 if w is no terminal.
func widthOf(w io.Writer) int { return output.Width(w) }

// newBar returns a bar that shows on w how far a command is, if w is a terminal.
func newBar(w io.Writer) *terminal.Bar {
	return terminal.NewBar(w, func() int { return output.Width(w) })
}
