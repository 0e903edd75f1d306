package postroom_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/postroom/postroom"
)

func TestBackoffDelay(t *testing.T) {
	b := postroom.Backoff{time.Second, time.Minute, time.Hour}

	tests := []struct {
		name    string
		backoff postroom.Backoff
		attempt int
		want    time.Duration // before jitter
	}{
		{"the first attempt is followed by the first wait", b, 1, time.Second},
		{"the second by the second", b, 2, time.Minute},
		{"the last by the last", b, 3, time.Hour},
		{"one past the end by the last", b, 4, time.Hour},
		{"any past the end by the last", b, math.MaxInt, time.Hour},
		{"attempt zero counts as the first", b, 0, time.Second},
		{"a negative attempt counts as the first", b, -1, time.Second},
		{"the most negative attempt counts as the first", b, math.MinInt, time.Second},
		{"a schedule of one wait repeats it", postroom.Backoff{time.Second}, 9, time.Second},
		{"a schedule need not grow", postroom.Backoff{time.Hour, time.Second}, 2, time.Second},
		{"a wait may be zero", postroom.Backoff{0, time.Second}, 1, 0},
		{"nil does not wait", nil, 1, 0},
		{"nil does not wait past its end either", nil, math.MaxInt, 0},
		{"an empty schedule does not wait", postroom.Backoff{}, 1, 0},
		{"the default begins with half a second", postroom.DefaultBackoff(), 1, 500 * time.Millisecond},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for range 1000 {
				got := tt.backoff.Delay(tt.attempt)
				if most := tt.want + tt.want/5; got < tt.want || got > most {
					t.Fatalf("Delay(%d) = %s, want %s to %s", tt.attempt, got, tt.want, most)
				}
			}
		})
	}
}

// The longest waits must not overflow: a negative wait would be over at once.
func TestBackoffDelayDoesNotOverflow(t *testing.T) {
	for _, wait := range []time.Duration{math.MaxInt64, math.MaxInt64 - 1, math.MaxInt64 / 6 * 5, math.MaxInt64 / 2} {
		for range 1000 {
			if got := (postroom.Backoff{wait}).Delay(1); got < wait {
				t.Fatalf("Delay of a wait of %d = %d, want no less", wait, got)
			}
		}
	}
}

func TestBackoffDelayIsNeverCutShort(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		wait := rapid.Custom(func(t *rapid.T) time.Duration {
			return time.Duration(rapid.Int64Min(0).Draw(t, "wait"))
		})
		b := postroom.Backoff(rapid.SliceOfN(wait, 1, 8).Draw(t, "schedule"))
		attempt := rapid.Int().Draw(t, "attempt")
		want := b[min(max(attempt, 1), len(b))-1]

		got := b.Delay(attempt)
		if got < want {
			t.Fatalf("Delay(%d) = %d, want at least %d", attempt, got, want)
		}
		if extra := got - want; float64(extra) > 0.2*float64(want)+1 {
			t.Fatalf("Delay(%d) = %d, want at most a fifth above %d", attempt, got, want)
		}
	})
}

func TestBackoffDelaySpreads(t *testing.T) {
	b := postroom.Backoff{time.Hour}
	var lower, upper int
	for range 1000 {
		switch extra := b.Delay(1) - time.Hour; {
		case extra < 6*time.Minute:
			lower++
		default:
			upper++
		}
	}
	if lower < 300 || upper < 300 { // 500 each, give or take 16
		t.Errorf("%d waits in the lower half of the jitter and %d in the upper, want about as many", lower, upper)
	}
}

func TestSchedules(t *testing.T) {
	const jitter = 1.2
	tests := []struct {
		name        string
		backoff     func() postroom.Backoff
		first       time.Duration
		least, most time.Duration // from the first attempt to the last
	}{
		{"fast", postroom.FastBackoff, 500 * time.Millisecond, 37 * time.Second, time.Minute},
		{"of a transactional handler", postroom.DefaultBackoff, 500 * time.Millisecond, 10 * time.Minute, 20 * time.Minute},
		// Vendors recognise a key for 24 hours. The last attempt begins within that time, even if
		// each attempt takes 30 seconds.
		{"of an external handler", postroom.ExternalBackoff, time.Second, 19 * time.Hour, 24*time.Hour - 11*30*time.Second},
	}
	for _, tt := range tests {
		b := tt.backoff()
		var sum time.Duration
		for _, wait := range b {
			sum += wait
		}
		if b[0] != tt.first || sum < tt.least || time.Duration(jitter*float64(sum)) > tt.most {
			t.Errorf("%s: %v, %s in all; want %s to %s with the jitter", tt.name, b, sum, tt.least, tt.most)
		}
		if !slices.IsSorted(b) {
			t.Errorf("%s: %v does not grow", tt.name, b)
		}
		b[0] = 0
		if tt.backoff()[0] != tt.first {
			t.Errorf("%s: it has changed with a caller's copy", tt.name)
		}
	}
}
