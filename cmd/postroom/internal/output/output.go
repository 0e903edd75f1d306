// Package output prints tables, facts, JSON and texts for commands.
package output

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/postroom/postroom/internal/terminal"
	"github.com/postroom/postroom/internal/text"
)

// JSON prints v as JSON, for scripts.
func JSON(w io.Writer, v any) error {
	var document bytes.Buffer
	enc := json.NewEncoder(&document)
	enc.SetIndent("", "  ")
	err := enc.Encode(v)
	if err == nil {
		_, err = w.Write(text.EscapeControls(document.Bytes()))
	}
	if err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

// Table prints rows in aligned columns. On a terminal it cuts them to the terminal's width. The
// first row has the names of the columns.
func Table(w io.Writer, rows [][]string) error {
	//guard:a-cell-does-not-command-the-terminal 0.3 = @1
	if err := terminal.Table(w, Width(w), flat(rows)); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

// Facts prints names and values in two columns. It does not cut them.
func Facts(w io.Writer, rows [][]string) error {
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	for _, row := range flat(rows) {
		if _, err := fmt.Fprintln(table, strings.Join(row, "\t")); err != nil {
			return fmt.Errorf("write output: %w", err)
		}
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

// Line prints one line of plain text, or several lines if the format or an argument has ends of
// lines. Pass to Flat an argument that another system or person wrote.
func Line(w io.Writer, format string, args ...any) error {
	if _, err := io.WriteString(w, Printable(fmt.Sprintf(format, args...))+"\n"); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

// Conditions are the conditions of a filter, in words.
type Conditions []string

// Add adds a condition, unless the value is empty.
func (c *Conditions) Add(name, value string) {
	if value != "" {
		*c = append(*c, name+" "+Cell(value, 60))
	}
}

// AddTime adds a condition on a time, unless the time is zero.
func (c *Conditions) AddTime(name string, t time.Time) {
	if !t.IsZero() {
		c.Add(name, Stamp(t))
	}
}

// AddIDs adds how many ids the filter has, if it has any.
func (c *Conditions) AddIDs(ids []int64) {
	if len(ids) > 0 {
		*c = append(*c, Plural(len(ids), "id"))
	}
}

// Or returns the conditions in one line. If there are none, it returns the text all.
func (c *Conditions) Or(all string) string {
	if len(*c) == 0 {
		return all
	}
	return strings.Join(*c, ", ")
}

// Stamp formats a time to the second, in UTC.
func Stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// Plural returns "1 migration", "2 migrations".
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Report writes to w, which is standard error. It ignores an error of this write, because there is
// no other place for a report.
func Report(w io.Writer, format string, args ...any) {
	_, _ = io.WriteString(w, Printable(fmt.Sprintf(format, args...)))
}

// Text prints text that may have several lines.
func Text(w io.Writer, text string) error {
	if _, err := io.WriteString(w, Printable(text)); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

// OrDash returns text, or a dash if text is empty.
func OrDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// Page prints a page of a list: rows as [Table] does, and how to get the next page, unless next is
// empty.
func Page(w io.Writer, rows [][]string, next string) error {
	if err := Table(w, rows); err != nil || next == "" {
		return err
	}
	return Line(w, "\nnext page: --after %s", next)
}

// List returns a list that is not nil, so that JSON has [] and not null.
func List[T any](all []T) []T {
	if all == nil {
		return []T{}
	}
	return all
}

// Block prints an empty line and a table. If the table has no rows below its head, Block prints
// nothing.
func Block(w io.Writer, rows [][]string) error {
	if len(rows) < 2 {
		return nil
	}
	if err := Line(w, ""); err != nil {
		return err
	}
	return Table(w, rows)
}

// Ago says how long ago t was, or how long it is until t.
func Ago(t time.Time) string {
	if d := time.Until(t); d >= time.Second {
		return "in " + Span(d)
	}
	return Span(time.Since(t)) + " ago"
}

// Span formats a duration in its two largest units.
func Span(d time.Duration) string {
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

// Seconds formats a number of seconds like Span.
func Seconds(n float64) string { return Span(time.Duration(n * float64(time.Second))) }

// Cell returns text for one cell of a table: its first line, cut if it has more characters than the
// limit most. It replaces each character that is not printable, because a terminal would obey
// control characters.
func Cell(text string, most int) string {
	text, _, more := strings.Cut(text, "\n")
	clean := []rune(Flat(text))
	if len(clean) > most {
		clean, more = clean[:most-1], true
	}
	if more {
		return string(clean) + "…"
	}
	return string(clean)
}

// Printable returns s with a dot in place of each character that is not printable, except ends of
// lines and tabs.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && !unicode.IsPrint(r) {
			return '·'
		}
		return r
	}, s)
}

// Flat returns s as one line, with a dot in place of each character that is not printable. With an
// end of a line in it, a text of another system could look like a line of the command.
func Flat(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '·'
		}
		return r
	}, s)
}

// flat returns rows with flat cells.
func flat(rows [][]string) [][]string {
	all := make([][]string, len(rows))
	for i, row := range rows {
		for _, cell := range row {
			all[i] = append(all[i], Flat(cell))
		}
	}
	return all
}

// Width returns how many characters fit on a line of w, and 0 if w is not a terminal.
func Width(w io.Writer) int {
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

// Bar returns a bar that shows the progress of a command on w, if w is a terminal.
func Bar(w io.Writer) *terminal.Bar {
	return terminal.NewBar(w, func() int { return Width(w) })
}

// Document formats the data of an event, or a state, for a person: as indented JSON, as text, or as
// a dump of bytes.
func Document(data []byte) string {
	var pretty bytes.Buffer
	switch {
	case len(data) == 0:
		return "  (empty)"
	case json.Indent(&pretty, data, "  ", "  ") == nil:
		return "  " + Printable(pretty.String())
	case utf8.Valid(data):
		return "  " + Lines(string(data))
	default:
		const most = 1024
		return strings.TrimRight(hex.Dump(data[:min(len(data), most)]), "\n")
	}
}

// Lines returns s as printable text, with all lines after the first one indented.
func Lines(s string) string {
	return strings.ReplaceAll(Printable(strings.TrimRight(s, "\n")), "\n", "\n  ")
}

// Quoted returns text so that a shell reads it as one word: in quotes, if the text needs them.
func Quoted(s string) string { return text.Word(Cell(s, 255)) }
