package measure

import (
	"slices"
	"strings"

	"github.com/postroom/postroom/integration/bench/internal/machine"
)

// Report is the result of [Run].
type Report struct {
	Machine machine.Machine `json:"machine"`
	Events  int             `json:"events"`  // the number of events in the backlog that a relay drains
	Runs    int             `json:"runs"`    // how many times each figure was measured; a figure has the median of the runs
	Seconds float64         `json:"seconds"` // the time of a measurement that would not end by itself
	Figures []Figure        `json:"figures"`

	// LeftOut are the requested figures for which there is no broker that syncs every message.
	LeftOut []string `json:"left_out,omitempty"`
}

// Figure is one result. If it has no reference, ReferenceMedian and Ratio are null.
type Figure struct {
	Name   string  `json:"name"`
	Unit   string  `json:"unit"`
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`

	ReferenceMedian *float64 `json:"reference_median"`

	// Ratio is the median of the ratios of all runs. Each ratio compares two measurements of one
	// run. The median can differ a little from the ratio of the medians.
	Ratio *float64 `json:"ratio"`

	// Only latencies have these medians of percentiles. The Median of a latency is equal to P99.
	P50          *float64 `json:"p50_ms,omitempty"`
	P99          *float64 `json:"p99_ms,omitempty"`
	ReferenceP50 *float64 `json:"reference_p50_ms,omitempty"`
	ReferenceP99 *float64 `json:"reference_p99_ms,omitempty"`

	Conditions string `json:"conditions"`
}

// report makes the result of f. The other parameters have a sample of each run.
func (f figure) report(cfg Config, own, reference []sample) Figure {
	values, p50s := f.columns(own)
	out := Figure{
		Name: f.name, Unit: f.unit, Median: median(values), Min: slices.Min(values), Max: slices.Max(values),
		Conditions: f.describe(cfg),
	}
	if notes := notesOf(own); notes != "" {
		out.Conditions += "; " + notes
	}
	latency := p50s[0] > 0
	if latency {
		out.P50, out.P99 = of(median(p50s)), of(out.Median)
	}
	if f.against == "" {
		return out
	}
	others, otherP50s := figure{}.columns(reference)
	out.ReferenceMedian = of(median(others))
	ratios := make([]float64, len(values))
	for run := range values {
		ratios[run] = values[run] / others[run]
	}
	out.Ratio = of(median(ratios))
	if latency {
		out.ReferenceP50, out.ReferenceP99 = of(median(otherP50s)), out.ReferenceMedian
	}
	return out
}

func (f figure) columns(samples []sample) (values, p50s []float64) {
	for _, s := range samples {
		values = append(values, f.value(s))
		p50s = append(p50s, s.p50)
	}
	return values, p50s
}

func notesOf(samples []sample) string {
	var notes []string
	for _, s := range samples {
		if s.note != "" && !slices.Contains(notes, s.note) {
			notes = append(notes, s.note)
		}
	}
	return strings.Join(notes, "; ")
}

// median returns the middle value, or the mean of the two middle values.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	if n%2 == 1 {
		return sorted[n/2]
	}
	return (sorted[n/2-1] + sorted[n/2]) / 2
}

// percentile returns the lowest value for which at least p % of the values are equal or lower.
func percentile(sorted []float64, p int) float64 {
	n := (len(sorted)*p + 99) / 100
	return sorted[max(n, 1)-1]
}

func of(v float64) *float64 { return &v }
