package terminal_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/postroom/postroom/internal/terminal"
)

var handlers = [][]string{
	{"HANDLER", "KIND", "STREAM", "FLOOR", "LAST", "PENDING", "UNANSWERED", "LAG", "HELD", "DEAD", "PROCESSES", "READER"},
	{"billing.charge", "ordered", "SHOP", "1204332", "1204400", "68", "-", "1m3s", "12", "3", "2", "web-1.example.com/4711/1f2e3d4c"},
	{"analytics.count", "unordered", "SHOP", "1204399", "1204400", "1", "1", "0s", "0", "0", "none", "-"},
}

var groups = [][]string{
	{"EVENTS", "HANDLER", "CLASS", "LAST", "FIRST", "CAUSE", "EXAMPLE", "ERROR"},
	{"1,204", "billing.charge", "error", "5s ago", "2h3m ago", "0123456789abcdef0123456789abcdef", "17", "insert charge: ERROR: relation \"charge\" does not exist (SQLSTATE 42P01)"},
	{"7", "a", "timeout", "1s ago", "1s ago", "ffffffffffffffffffffffffffffffff", "18", "Müller wartet"},
}

func TestTableFitsTheTerminal(t *testing.T) {
	for name, rows := range map[string][][]string{"handlers": handlers, "groups": groups} {
		for _, width := range []int{200, 120, 80, 60, 20} {
			var out bytes.Buffer
			if err := terminal.Table(&out, width, rows); err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
			if len(lines) != len(rows) {
				t.Errorf("%s at %d: %d lines, want %d", name, width, len(lines), len(rows))
			}
			for _, line := range lines {
				if n := utf8.RuneCountInString(line); n > width {
					t.Errorf("%s at %d: %d characters: %s", name, width, n, line)
				}
			}
		}
	}
}

// Numbers are not cut if there is room for them, and no text is cut that fits.
func TestTableCutsTheWidestColumns(t *testing.T) {
	var out bytes.Buffer
	if err := terminal.Table(&out, 120, groups); err != nil {
		t.Fatal(err)
	}
	for _, whole := range []string{"1,204", "billing.charge", "2h3m ago", "0123456789abcdef0123456789abcdef", "17", "insert charge", "…"} {
		if !strings.Contains(out.String(), whole) {
			t.Errorf("want %q in\n%s", whole, out.String())
		}
	}
	for _, width := range []int{0, 500} {
		out.Reset()
		if err := terminal.Table(&out, width, groups); err != nil || strings.Contains(out.String(), "…") {
			t.Errorf("cut at %d (%v):\n%s", width, err, out.String())
		}
	}
}

// Output that does not go to a terminal is never cut.
func TestNoTerminal(t *testing.T) {
	long := strings.Repeat("x", 300)
	if got := terminal.Progress(0, long); !strings.HasSuffix(got, long) {
		t.Errorf("Progress cuts for a file: %q", got)
	}
	if got := terminal.Clip("Müller", 4); got != "Mül…" {
		t.Errorf("Clip = %q", got)
	}
}

// A text that begins like a number, with or without a sign, is never cut. A word may be cut to
// eight characters.
func TestWhatIsCut(t *testing.T) {
	rows := [][]string{
		{"N", "SIGNED", "DELTA", "WORD", ""},
		{"1234567890", "-1234567890", "+1234567890", "abcdefghijkl", ""},
		{"", "", "", "", ""},
	}
	want := []string{"1234567890", "-1234567890", "+1234567890", "abcdefg…", ""}
	for width, between := range map[int]int{48: 2, 44: 1, 5: 1} {
		if fitted, blanks := terminal.Fit(rows, width); !slices.Equal(fitted[1], want) || blanks != between {
			t.Errorf("fitted into %d as %q with %d blanks, want %q with %d", width, fitted[1], blanks, want, between)
		}
	}
	if fitted, blanks := terminal.Fit(rows, 62); !slices.Equal(fitted[1], rows[1]) || blanks != 3 {
		t.Errorf("with room for it fitted to %q with %d blanks", fitted[1], blanks)
	}
	if fitted, _ := terminal.Fit(nil, 10); len(fitted) != 0 {
		t.Errorf("nothing is fitted to %q", fitted)
	}
}
