package figures

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Grouped writes a number with commas between thousands: 20,000.
func Grouped[T int | int64 | uint64](n T) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Megabytes writes a number of bytes in megabytes.
func Megabytes(bytes int64) string { return fmt.Sprintf("%.1f MB", float64(bytes)/1e6) }

// Millis writes a duration in milliseconds.
func Millis(d time.Duration) string { return fmt.Sprintf("%.2f ms", float64(d)/1e6) }

// Percentile returns the smallest of the sorted values for which this holds: at least p percent of
// all values are not larger. It returns zero if there are no values.
func Percentile(sorted []time.Duration, p int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	n := (len(sorted)*p + 99) / 100
	return sorted[max(n, 1)-1]
}

// Median returns the middle one of some values, or the larger one of the two in the middle.
func Median[T int | float64 | time.Duration](values []T) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// List writes rates, in the order in which they were measured.
func List(rates []float64) string {
	var all []string
	for _, rate := range rates {
		all = append(all, Grouped(int(rate)))
	}
	return strings.Join(all, "; ")
}

// Durations has the number, the sum and the maximum of times.
type Durations struct {
	mu  sync.Mutex
	n   int
	sum time.Duration
	max time.Duration
}

// Add adds a time.
func (d *Durations) Add(took time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.n++
	d.sum += took
	d.max = max(d.max, took)
}

// Mean returns the mean of the times, or zero if there are none.
func (d *Durations) Mean() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.sum / time.Duration(max(d.n, 1))
}

// Most returns the longest time.
func (d *Durations) Most() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.max
}

func (d *Durations) String() string {
	mean := d.Mean()
	d.mu.Lock()
	defer d.mu.Unlock()
	return fmt.Sprintf("%s (most %s, of %s)", Millis(mean), Millis(d.max), Grouped(d.n))
}
