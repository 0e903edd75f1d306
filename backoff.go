package postroom

import (
	"math/rand/v2"
	"time"
)

// Backoff is a schedule of waits: the n-th failed attempt is followed by the
// n-th wait, and every one past the end by the last. A nil Backoff does not
// wait.
type Backoff []time.Duration

// jitter is the share of a wait that chance adds at the most. It only ever
// adds: a wait that was asked for is never cut short.
const jitter = 0.2

// DefaultBackoff returns the schedule of a handler that does not choose its
// own: 500 ms, 2 s, 5 s, 30 s.
func DefaultBackoff() Backoff {
	return Backoff{500 * time.Millisecond, 2 * time.Second, 5 * time.Second, 30 * time.Second}
}

// Delay returns how long to wait after the given failed attempt, counted from
// 1: the wait of the schedule and 0 to 20 % more, by chance, so that what failed
// together does not come back together. An attempt below 1 counts as 1.
func (b Backoff) Delay(attempt int) time.Duration {
	if len(b) == 0 {
		return 0
	}
	d := b[min(max(attempt, 1), len(b))-1]
	return max(d, d+time.Duration(rand.Float64()*jitter*float64(d))) // the sum may overflow
}
