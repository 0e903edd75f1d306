package postroom

import (
	"math/rand/v2"
	"time"
)

// Backoff is a schedule of waits: the n-th wait follows the n-th failed attempt. So a schedule of n waits
// is for n+1 attempts. If there are more, the last wait repeats. A nil Backoff does not wait.
type Backoff []time.Duration

// jitter limits the random addition to a wait: at most this share of the wait is added. A wait is
// never shortened.
const jitter = 0.2

// DefaultBackoff returns the schedule of a transactional handler that does not choose its own: 500
// ms, 2 s, 5 s, 30 s, 1 min, 3 min, 10 min. With these eight attempts an event is tried for about a
// quarter of an hour (14 min 37 s, plus a random 0 to 20 %). So an event does not become dead if
// a table is missing for some minutes, or if another session holds a lock for some minutes.
func DefaultBackoff() Backoff {
	return append(FastBackoff(), time.Minute, 3*time.Minute, 10*time.Minute)
}

// ExternalBackoff returns the schedule of an external handler that does not choose its own: 1 s, 5
// s, 30 s, 2 min, 10 min, 30 min, 2 h, 6 h, 11 h. With these ten attempts an event is tried for
// about a day (19 h 42 min, plus a random 0 to 20 %). So an event does not become dead if a
// vendor is down for hours. The last attempt is made within 24 hours, because many vendors remember
// the key of a call for that long.
func ExternalBackoff() Backoff {
	return Backoff{
		time.Second, 5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute,
		2 * time.Hour, 6 * time.Hour, 11 * time.Hour,
	}
}

// FastBackoff returns a schedule that ends within a minute, so that an operator learns of a failure
// soon: 500 ms, 2 s, 5 s, 30 s. With these five attempts an event is dead after 38 to 45 seconds. If a
// vendor is down or a table is missing for a minute, the first events of that minute become dead.
func FastBackoff() Backoff {
	return Backoff{500 * time.Millisecond, 2 * time.Second, 5 * time.Second, 30 * time.Second}
}

// Delay returns how long to wait after a failed attempt: the wait of the schedule, plus a random 0
// to 20 %. Because of the random part, events that failed together are not tried again together.
// The first attempt has the number 1. A lower number counts as 1.
func (b Backoff) Delay(attempt int) time.Duration {
	if len(b) == 0 {
		return 0
	}
	d := b[min(max(attempt, 1), len(b))-1]
	return max(d, d+time.Duration(rand.Float64()*jitter*float64(d))) // the sum may overflow
}
