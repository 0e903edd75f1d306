package demo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/postroom/postroom/internal/verdict"
)

// stallPatience is how long Watch waits while nothing moves in a run. It is longer than the waits
// between attempts of a handler, except for the last two waits of postroom.DefaultBackoff.
const stallPatience = 2 * time.Minute

// Progress says how far a run is.
type Progress struct {
	Done    bool
	Mark    any    // comparable; it changes when something has moved in the run
	Missing string // the work that is left
	Hidden  error  // why the work that is left could not be counted now; nil if it was counted
}

// Watch calls the function look until the run is done. The parameter every is the time between two
// calls. The caller must give ctx the same timeout as Watch. If this timeout ends, or if nothing
// moves in the run for two minutes, Watch returns an error that says that the run is undecided. If
// ctx ends for another reason, Watch returns that reason.
func Watch(ctx context.Context, timeout, every time.Duration, look func(context.Context) (Progress, error)) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	var last Progress
	moved := time.Now()
	for {
		select {
		case <-ctx.Done():
			return ended(ctx, timeout, last)
		case <-tick.C:
		}
		now, err := look(ctx)
		switch {
		case err != nil && ctx.Err() != nil: // ctx ended while look ran
			return ended(ctx, timeout, last)
		case err != nil:
			return err
		case now.Done:
			return nil
		}
		if now.Mark != last.Mark {
			moved = time.Now()
		}
		last = now
		if time.Since(moved) > stallPatience {
			return errors.Join(verdict.NewUndecided("nothing has moved for %s: %s", stallPatience, now.Missing), now.Hidden)
		}
	}
}

func ended(ctx context.Context, timeout time.Duration, last Progress) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return verdict.NewUndecided("not complete after %s: %s", timeout, last.Missing)
	}
	return context.Cause(ctx)
}

// Todo is a list of work that is left.
type Todo []string

// Add adds n things to the list if n is more than zero.
func (m *Todo) Add(n int64, what string) {
	if n > 0 {
		*m = append(*m, fmt.Sprintf("%s %s", Grouped(n), what))
	}
}

func (m Todo) String() string { return strings.Join(m, ", ") }

// IsClosed reports whether c is closed. The program must not send anything to c.
func IsClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
