package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrLate says that something did not come about in time.
var ErrLate = errors.New("waited for in vain")

// Eventually asks until the answer is yes. It returns [ErrLate] if that takes longer
// than within, and what ask returns.
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

// Sleep waits for d and reports whether ctx still lives.
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
