package inbox_test

import (
	"log/slog"
	"testing"

	"github.com/postroom/postroom/inbox"
)

// A leveler that panics loses log lines, and no event.
func TestALevelerThatPanicsEndsNoProcess(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.anew(func(cfg *inbox.Config) { cfg.LogOutcomes = (*slog.LevelVar)(nil) })
	b.in.Handle(b.subscription("h"), effect("h"))
	b.publish("1")
	b.run()
	b.eventually("the event to be counted", func() bool { return b.counted("h", "done") == 1 })
	b.wantOnce("h", "1")
}
