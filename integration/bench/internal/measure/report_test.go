package measure

import (
	"math"
	"testing"
)

func TestMedianAndPercentile(t *testing.T) {
	if got := median([]float64{3, 1, 2}); got != 2 {
		t.Errorf("median of three = %v", got)
	}
	if got := median([]float64{4, 1, 3, 2}); got != 2.5 {
		t.Errorf("median of four = %v", got)
	}
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(i + 1)
	}
	for p, want := range map[int]float64{50: 50, 99: 99, 100: 100} {
		if got := percentile(hundred, p); got != want {
			t.Errorf("percentile %d = %v, want %v", p, got, want)
		}
	}
	if got := percentile([]float64{7}, 50); got != 7 {
		t.Errorf("percentile of one = %v", got)
	}
}

// If a disk gets slower during the runs, the figures change, but the ratio does not.
func TestRatioIsOfOneRun(t *testing.T) {
	f := figure{name: "x", against: "y"}
	got := f.report(Config{}, []sample{{value: 90}, {value: 45, note: "slow"}, {value: 9, note: "slow"}}, []sample{{value: 100}, {value: 50}, {value: 10}})
	if got.Median != 45 || got.Min != 9 || got.Max != 90 || *got.ReferenceMedian != 50 || math.Abs(*got.Ratio-0.9) > 1e-9 {
		t.Errorf("report = %+v, ratio %v", got, *got.Ratio)
	}
	if got.Conditions != "; slow" {
		t.Errorf("conditions = %q", got.Conditions)
	}
}

func TestEveryFigureHasItsTrials(t *testing.T) {
	for _, f := range figures {
		for _, name := range []string{f.measure(), f.against} {
			if name != "" && trials[name] == nil {
				t.Errorf("%s: no trial %s", f.name, name)
			}
		}
	}
	if got := len(body()); got != eventBytes {
		t.Errorf("the body has %d bytes", got)
	}
}
