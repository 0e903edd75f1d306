package output_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/postroom/postroom/cmd/postroom/internal/output"
)

// No function for text prints a character that commands the terminal, and a cell of a table is never
// more than one line.
func TestNoTextCommandsTheTerminal(t *testing.T) {
	t.Parallel()
	const hostile = "a\x1b]0;owned\x07\u009b2J\r\nall is well\tb"
	var out bytes.Buffer
	for _, err := range []error{
		output.Line(&out, "%s", hostile), output.Text(&out, hostile+"\n"),
		output.Table(&out, [][]string{{hostile, "b"}}), output.Facts(&out, [][]string{{hostile, "b"}}), output.Line(&out, "%s", output.Flat(hostile)),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	output.Report(&out, "%s\n", hostile)
	if strings.ContainsAny(out.String(), "\x1b\x07\u009b\r") {
		t.Errorf("printed: %q", out.String())
	}
	const flat = "a·]0;owned··2J··all is well·b"
	if n := strings.Count(out.String(), flat); n != 3 {
		t.Errorf("%d lines are %q, want those of the table, the facts and Flat: %q", n, flat, out.String())
	}
	if s := output.Cell(hostile, 100); s != "a·]0;owned··2J·…" {
		t.Errorf("Cell = %q", s)
	}
}
