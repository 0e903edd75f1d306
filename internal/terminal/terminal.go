// Package terminal fits what programs print to the terminal that they print it on. Its
// width is for programs to find out: it is 0 where there is no terminal, and then nothing
// is cut.
package terminal

import (
	"io"
	"strings"
	"text/tabwriter"
	"unicode/utf8"
)

// Clip cuts a line after width characters, the last of which is an ellipsis then. It cuts
// nothing if width is 0.
func Clip(line string, width int) string {
	if width <= 0 || utf8.RuneCountInString(line) <= width {
		return line
	}
	return string([]rune(line)[:width-1]) + "…"
}

// Progress returns what shows a line in place of the one that was shown before on a
// terminal. A line that is too long would leave its first part behind.
func Progress(width int, line string) string {
	if width > 0 {
		line = Clip(line, width-1) // with the last column free: some terminals wrap there
	}
	return "\r\x1b[K" + line
}

// gap is how many blanks stand between two columns.
const gap = 3

// least is how many characters of a cell are left at the least, unless it begins with a
// digit: a number or a time without its end would be another one.
const least = 8

// Fit returns rows of a table, the names of the columns first, with their widest cells cut
// until they fit into width characters, and the number of blanks between columns for it.
// With a width of 0 nothing is cut.
func Fit(rows [][]string, width int) (_ [][]string, blanks int) {
	if width <= 0 || len(rows) == 0 {
		return rows, gap
	}
	wide, floor := measure(rows)
	for blanks = gap; blanks > 1 && total(wide, blanks) > width && (blanks > 2 || total(floor, blanks) > width); {
		blanks-- // before words are cut
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

// measure returns how wide each column is, and has to be at the least.
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

// Table writes rows as aligned columns, the names of the columns first. On a terminal no
// line is wider than that: the widest columns are cut, and in the end the lines.
func Table(w io.Writer, width int, rows [][]string) error {
	fitted, blanks := Fit(rows, width)
	var text strings.Builder
	columns := tabwriter.NewWriter(&text, 0, 0, blanks, ' ', 0)
	for _, row := range fitted {
		_, _ = columns.Write([]byte(strings.Join(row, "\t") + "\n")) // a strings.Builder takes everything
	}
	_ = columns.Flush() // likewise
	for line := range strings.Lines(text.String()) {
		line, _ = strings.CutSuffix(line, "\n")
		if width > 0 {
			line = Clip(strings.TrimRight(line, " "), width)
		}
		if _, err := io.WriteString(w, line+"\n"); err != nil {
			return err
		}
	}
	return nil
}
