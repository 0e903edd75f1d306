package demo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/postroom/postroom/internal/verdict"
)

// stallPatience is how long nothing may happen before a run ends. It is longer than a failed
// handler waits for its next attempt.
const stallPatience = 2 * time.Minute

// Progress is how far a run is.
type Progress struct {
	Done    bool
	Mark    any    // changes whenever something has moved; it is comparable
	Missing string // the work that is left
	Hidden  error  // why that cannot be seen at present, if it will be visible again
}

// Watch checks a run at least twenty times a second until it is done. If the run does not end
// within timeout, or if nothing moves in it for two minutes, it is undecided. The timeout has
// to end ctx. If ctx ends in another way, Watch returns the reason.
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
		case err != nil && ctx.Err() != nil: // it ended during the check
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

// Add adds n things to the list, unless n is zero.
func (m *Todo) Add(n int64, what string) {
	if n > 0 {
		*m = append(*m, fmt.Sprintf("%s %s", Grouped(n), what))
	}
}

func (m Todo) String() string { return strings.Join(m, ", ") }

// IsClosed reports whether a channel on which nothing is sent is closed.
func IsClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
