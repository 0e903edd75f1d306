package doctor

import (
	"testing"
	"time"
)

// If a clock was wrong when one of the events was written, the complete stream is searched. Otherwise
// the search begins with the earliest event.
func TestStoredSince(t *testing.T) {
	t.Parallel()
	now := time.Now()
	same := func(at time.Time) time.Time { return at }
	for name, tt := range map[string]struct {
		ages []time.Duration
		want time.Time
	}{
		"in order":                     {[]time.Duration{time.Second, time.Minute, time.Hour}, now.Add(-time.Hour)},
		"the newest is ahead":          {[]time.Duration{-2 * time.Hour, time.Minute}, time.Time{}},
		"an earlier one is ahead":      {[]time.Duration{time.Second, -2 * time.Hour}, time.Time{}},
		"the clock was set back later": {[]time.Duration{3 * time.Hour, time.Hour}, time.Time{}},
	} {
		var events []publishedEvent
		for _, age := range tt.ages {
			events = append(events, publishedEvent{CreatedAt: now.Add(-age)})
		}
		if got := storedSince(now, events, same); !got.Equal(tt.want) {
			t.Errorf("%s: since %s, want %s", name, got, tt.want)
		}
	}
}
