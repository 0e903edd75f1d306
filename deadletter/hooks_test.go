package deadletter

import (
	"context"
	"time"
)

// SetPause makes RunReplay call a function instead of waiting between two steps.
func (s *Store) SetPause(pause func(ctx context.Context, d time.Duration) bool) { s.pause = pause }
