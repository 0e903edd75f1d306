// Package terminal fits the output of programs to the width of the terminal. The program finds out
// the width and passes it to this package. A width of 0 means that there is no terminal. In that
// case the package cuts nothing.
package terminal

import (
	"io"
	"strings"
	"text/tabwriter"
	"unicode/utf8"
)

// Clip cuts a line that is longer than width characters, and ends it with an ellipsis. It
// cuts nothing if width is 0.
func Clip(line string, width int) string {
	if width <= 0 || utf8.RuneCountInString(line) <= width {
		return line
	}
	return string([]rune(line)[:width-1]) + "…"
}

// Progress returns the text that replaces the current line of a terminal with the given
// line. It cuts a line that is too long, because the terminal would wrap it.
func Progress(width int, line string) string {
	if width > 0 {
		line = Clip(line, width-1) // some terminals wrap if the last column is used
	}
	return "\r\x1b[K" + line
}

// gap is the number of blanks between two columns.
const gap = 3

// The constant least is the smallest width to which Fit cuts a cell; for a column's name it is 4.
// Fit cuts no cell that begins with a digit or a sign: part of a number or a time would be wrong.
const least = 8

// Fit cuts the widest cells of a table until its rows fit into width characters. The first
// row has the names of the columns. Fit also returns the number of blanks to put between
// columns. If width is 0, Fit cuts nothing.
func Fit(rows [][]string, width int) (_ [][]string, blanks int) {
	if width <= 0 || len(rows) == 0 {
		return rows, gap
	}
	wide, floor := measure(rows)
	for blanks = gap; blanks > 1 && total(wide, blanks) > width && (blanks > 2 || total(floor, blanks) > width); {
		blanks-- // first make the gaps narrower, then cut cells
	}
	for total(wide, blanks) > width {
		widest := -1
		for c := range wide {
			if wide[c] > floor[c] && (widest < 0 || wide[c] > wide[widest]) {
				widest = c
			}
		}
		if widest < 0 {
			break
		}
		wide[widest]--
	}
	fitted := make([][]string, len(rows))
	for r, row := range rows {
		fitted[r] = make([]string, len(row))
		for c, cell := range row {
			fitted[r][c] = Clip(cell, wide[c])
		}
	}
	return fitted, blanks
}

// measure returns each column's width, and the least width to which Fit may cut it.
func measure(rows [][]string) (wide, floor []int) {
	for r, row := range rows {
		for c, cell := range row {
			if c == len(wide) {
				wide, floor = append(wide, 0), append(floor, 0)
			}
			n := utf8.RuneCountInString(cell)
			wide[c] = max(wide[c], n)
			switch {
			case r == 0: // the column's name
				floor[c] = max(floor[c], min(n, 4))
			//guard:numbers-are-not-cut false
			case cell != "" && (cell[0] >= '0' && cell[0] <= '9' || cell[0] == '-' || cell[0] == '+'):
				floor[c] = max(floor[c], n)
			default:
				floor[c] = max(floor[c], min(n, least))
			}
		}
	}
	return wide, floor
}

func total(widths []int, blanks int) int {
	sum := blanks * (len(widths) - 1)
	for _, n := range widths {
		sum += n
	}
	return sum
}

// Table writes rows as aligned columns. The first row has the names of the columns. On a
// terminal no line is wider than the terminal: Table cuts the widest columns and, if that is
// not enough, the lines.
func Table(w io.Writer, width int, rows [][]string) error {
	fitted, blanks := Fit(rows, width)
	var text strings.Builder
	columns := tabwriter.NewWriter(&text, 0, 0, blanks, ' ', 0)
	for _, row := range fitted {
		_, _ = columns.Write([]byte(strings.Join(row, "\t") + "\n")) // writing to a strings.Builder cannot fail
	}
	_ = columns.Flush() // Flush cannot fail either
	for line := range strings.Lines(text.String()) {
		line, _ = strings.CutSuffix(line, "\n")
		if width > 0 {
			//guard:a-line-fits-the-terminal = @1
			line = Clip(strings.TrimRight(line, " "), width)
		}
		if _, err := io.WriteString(w, line+"\n"); err != nil {
			return err
		}
	}
	return nil
}
