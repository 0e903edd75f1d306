package main

import (
	"bytes"
	"os"
	"testing"

	"github.com/postroom/postroom/cmd/postroom/internal/output"
)

// Output that does not go to a terminal is never cut.
func TestNoTerminal(t *testing.T) {
	file, err := os.CreateTemp(t.TempDir(), "out")
	if err != nil {
		t.Fatal(err)
	}
	if n := output.Width(file); n != 0 {
		t.Errorf("a file is %d wide", n)
	}
	if n := output.Width(&bytes.Buffer{}); n != 0 {
		t.Errorf("a buffer is %d wide", n)
	}
}
