package invoke

import (
	"context"
	"log/slog"
	"strings"
	"time"
)

// TellStop logs, when ctx ends, that the inbox is stopping, which handlers it waits for, and for
// how long at most. It returns a function that logs that the inbox has stopped, if ctx has ended.
// atWork returns the names of the handlers that are running events.
func TellStop(ctx context.Context, log *slog.Logger, atMost time.Duration, atWork func() []string) (stopped func()) {
	cancel := context.AfterFunc(ctx, func() {
		running := atWork()
		if len(running) == 0 {
			log.InfoContext(ctx, "inbox stopping, no handler is running")
			return
		}
		log.InfoContext(ctx, "inbox stopping, waiting for running handlers", "running", strings.Join(running, ", "), "at_most", atMost)
	})
	return func() {
		if !cancel() {
			log.InfoContext(ctx, "inbox stopped")
		}
	}
}
