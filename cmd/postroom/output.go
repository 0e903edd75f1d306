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

// orDash returns the text, or a dash if it is empty.
func orDash(text string) string { return output.OrDash(text) }

// block is output.Block for the output of a command.
func block(cmd *cobra.Command, rows [][]string) error { return output.Block(cmd.OutOrStdout(), rows) }

// grouped writes a number with commas between thousands: 20,000.
func grouped(n int64) string { return terminal.Grouped(n) }

// list returns a list that is not nil, so that JSON has [] and not null.
func list[T any](all []T) []T {
	if all == nil {
		return []T{}
	}
	return all
}

// widthOf returns how many characters fit on a line of w, and 0 if w is no terminal.
func widthOf(w io.Writer) int { return output.Width(w) }

// newBar returns a bar that shows the progress of a command on w, if w is a terminal.
func newBar(w io.Writer) *terminal.Bar {
	return terminal.NewBar(w, func() int { return output.Width(w) })
}
