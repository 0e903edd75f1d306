package relay

import (
	"testing"
	"time"
)

// A pass costs as much as the publishing of many events. If events come fast, the relay waits
// between passes. The wait depends on the time that a pass takes, within bounds. If events come
// slowly, nothing waits.
func TestPassesAreApartByTheirCost(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name        string
		events      int // of a pass
		every, took time.Duration
		want        time.Duration
	}{
		{"few events", 5, 10 * ms, ms, 0},
		{"none", 0, ms, ms, 0},
		{"many, an idle machine", 50, 10 * ms, ms / 10, minLinger},
		{"many", 50, 10 * ms, ms * 4 / 10, 10 * ms},
		{"many, a busy machine", 50, 10 * ms, 3 * ms, maxLinger},
	} {
		t.Run(c.name, func(t *testing.T) {
			var p pace
			now := time.Now()
			var gap time.Duration
			for range 200 {
				now = now.Add(c.every)
				gap = p.addPass(c.events, c.took, now)
			}
			if diff := gap - c.want; diff.Abs() > c.want/50 {
				t.Errorf("the next pass waits %s, want %s", gap, c.want)
			}
			if now = now.Add(2 * time.Second); p.addPass(c.events, c.took, now) != 0 {
				t.Error("the first pass after a pause has the next one wait")
			}
		})
	}
}

// Empty passes are short, and come between others. They do not change the measured cost of a
// pass with events.
func TestEmptyPassLeavesTheMeasuredCost(t *testing.T) {
	var p pace
	now := time.Now()
	var gap time.Duration
	for range 200 {
		now = now.Add(5 * time.Millisecond)
		p.addPass(50, time.Millisecond, now)
		now = now.Add(5 * time.Millisecond)
		gap = p.addPass(0, 0, now)
	}
	if want := lingerShare * time.Millisecond; gap < want*98/100 {
		t.Errorf("the next pass waits %s, want about %s", gap, want)
	}
}
