package clock

import (
	"testing"
	"time"
)

func TestLatestIsAMinuteFromNow(t *testing.T) {
	before := time.Now()
	got := Latest()
	if got.Before(before.Add(time.Minute)) || got.After(time.Now().Add(time.Minute)) {
		t.Errorf("latest is %s from now, want a minute", got.Sub(before))
	}
}

func TestAClockThatJumpsIsNotBelievedForAnHour(t *testing.T) {
	noon := time.Date(2030, 6, 1, 12, 0, 0, 0, time.UTC)
	const day = 24 * time.Hour
	for _, tt := range []struct {
		name string
		// Each look: what the clock is off, after this steady time, and what the watch then is off.
		looks [][3]time.Duration
	}{
		{"a right clock", [][3]time.Duration{{0, 0, 0}, {0, time.Second, 0}, {0, 40 * day, 0}}},
		{"a jump of four seconds", [][3]time.Duration{{0, time.Hour, 0}, {40 * day, time.Hour + time.Second, 0}, {40 * day, time.Hour + 5*time.Second, 0}, {0, time.Hour + 6*time.Second, 0}}},
		{"a jump that stays", [][3]time.Duration{{0, time.Second, 0}, {day, 2 * time.Second, 0}, {day, time.Hour, 0}, {day, time.Hour + 2*time.Second, day}, {day, time.Hour + 3*time.Second, day}}},
		{"two jumps", [][3]time.Duration{{day, time.Minute, 0}, {0, 30 * time.Minute, 0}, {day, 40 * time.Minute, 0}, {day, 90 * time.Minute, 0}, {day, 100 * time.Minute, day}}},
		{"a small step", [][3]time.Duration{{30 * time.Second, time.Second, 30 * time.Second}, {time.Minute, 2 * time.Second, time.Minute}}},
		{"a step back", [][3]time.Duration{{-day, time.Second, -day}, {-day, 2 * time.Second, -day}, {0, 3 * time.Second, -day}, {0, time.Hour + 3*time.Second, 0}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var w Watch
			now := time.Now()
			w.look(noon, now)
			for i, l := range tt.looks {
				if got := w.look(noon.Add(l[1]+l[0]), now.Add(l[1])).Sub(noon.Add(l[1])); got != l[2] {
					t.Errorf("look %d: the watch is %s ahead, want %s", i, got, l[2])
				}
			}
		})
	}
}
