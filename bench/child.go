package main

import (
	"context"
	"io"

	"github.com/postroom/postroom/bench/internal/measure"
)

// childCommand is the argument with which a benchmark starts a part of itself in another process.
const childCommand = "bench-child"

// serveChild runs such a part until in ends.
func serveChild(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	if len(args) != 1 || args[0] != "relay" {
		return usagef("say what to run: relay")
	}
	// A Ctrl-C reaches this process too. The parent ends this process, because the parent still has
	// to remove its objects.
	return measure.ServeRelay(context.WithoutCancel(ctx), in, out)
}
