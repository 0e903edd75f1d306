// Package sleep waits.
package sleep

import (
	"context"
	"time"
)

// For waits for the duration d and returns true. If ctx ends, For returns false at once.
func For(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
