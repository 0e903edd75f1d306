package main

import (
	"context"
	"io"

	"github.com/postroom/postroom/integration/bench/internal/measure"
)

// childCommand is the first argument of a child. The benchmark starts this program once more, as a
// child, to run a part of a measurement in another process.
const childCommand = "bench-child"

// serveChild runs the part that args names, and fails if its input ends before the part is done.
func serveChild(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	if len(args) != 1 || args[0] != "relay" {
		return usagef("say what to run: relay")
	}
	// Ctrl-C reaches this process too, but does not end it. The parent ends this process, and then
	// the parent removes its objects from the servers.
	return measure.ServeRelay(context.WithoutCancel(ctx), in, out)
}
