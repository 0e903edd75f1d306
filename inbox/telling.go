package inbox

import (
	"context"
	"fmt"
	"strings"
)

// tellStart logs what each handler reads, when an inbox begins.
func (in *Inbox) tellStart(ctx context.Context) {
	for _, c := range in.loops {
		what := []any{"stream", c.sub.Stream, "workers", c.workers}
		if c.sub.Stream == "" {
			what = []any{"stream", "none: its events are accepted", "workers", c.workers}
		}
		if len(c.sub.Types) > 0 {
			what = append(what, "types", strings.Join(c.sub.Types, ", "))
		} else {
			what = append(what, "subjects", strings.Join(c.sub.Subjects, ", "))
		}
		c.log.InfoContext(ctx, "handler begins", append(what, "ordered", c.isOrdered(), "external", c.external != nil)...)
	}
}

// tellStop logs what an inbox waits for when its context has ended, and returns what logs
// that it has stopped.
func (in *Inbox) tellStop(ctx context.Context) (stopped func()) {
	cancel := context.AfterFunc(ctx, func() {
		var running []string
		for _, c := range in.loops {
			if n := c.invoker.AtWork(); n > 0 {
				running = append(running, fmt.Sprintf("%s: %d", c.sub.Name, n))
			}
		}
		if len(running) == 0 {
			in.cfg.Logger.InfoContext(ctx, "inbox stops; no handler runs")
			return
		}
		in.cfg.Logger.InfoContext(ctx, "inbox stops; it waits for the handlers that run",
			"running", strings.Join(running, ", "), "at_most", in.cfg.DrainTimeout)
	})
	return func() {
		if !cancel() {
			in.cfg.Logger.InfoContext(ctx, "inbox stopped")
		}
	}
}
