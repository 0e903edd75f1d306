package childproc

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrLate says that a condition did not become true in time.
var ErrLate = errors.New("waited for in vain")

// Eventually calls ask until ask returns true. If that takes longer than within, it returns
// [ErrLate]. If ask fails, it returns the error of ask. If ctx ends, it returns the cause of ctx.
func Eventually(ctx context.Context, within time.Duration, what string, ask func(ctx context.Context) (bool, error)) error {
	deadline := time.Now().Add(within)
	for {
		yes, err := ask(ctx)
		if err != nil {
			return fmt.Errorf("wait for %s: %w", what, err)
		}
		if yes {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%w: %s", ErrLate, what)
		}
		if !Sleep(ctx, 50*time.Millisecond) {
			return context.Cause(ctx)
		}
	}
}

// Sleep waits for d and returns true. If ctx ends, it returns false at once.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
