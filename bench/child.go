package main

import (
	"context"
	"io"

	"github.com/postroom/postroom/bench/internal/measure"
)

// childCommand is the argument by which a benchmark starts a part of itself in a process
// of its own.
const childCommand = "bench-child"

// serveChild is such a part, until in ends.
func serveChild(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	if len(args) != 1 || args[0] != "relay" {
		return usagef("say what to run: relay")
	}
	// A Ctrl-C reaches this process as well. The parent, which still has to clean up,
	// ends it.
	return measure.ServeRelay(context.WithoutCancel(ctx), in, out)
}
