package stopwatch_test

import (
	"slices"
	"testing"
	"time"

	"github.com/postroom/postroom/integration/bench/internal/stopwatch"
)

// An event may be acknowledged before its commit is answered, and the measurement may begin in
// between.
func TestAcknowledgementBeforeTheCommitIsKept(t *testing.T) {
	now := time.Now()
	times := stopwatch.New()
	times.Ack("a", now)
	times.Begin()
	times.Commit("a", now.Add(time.Millisecond))
	times.Commit("b", now)
	latencies, missing := times.Complete()
	if !slices.Equal(latencies, []float64{0}) || !slices.Equal(missing, []string{"b"}) {
		t.Errorf("latencies %v, missing %v", latencies, missing)
	}
	times.Ack("b", now.Add(2*time.Millisecond))
	if latencies, missing = times.Complete(); !slices.Equal(latencies, []float64{0, 2}) || len(missing) != 0 {
		t.Errorf("latencies %v, missing %v", latencies, missing)
	}
}

// Commits before the beginning of the measurement do not count.
func TestCommitsBeforeTheBeginDoNotCount(t *testing.T) {
	times := stopwatch.New()
	times.Commit("a", time.Now())
	times.Begin()
	if latencies, missing := times.Complete(); len(latencies)+len(missing) != 0 {
		t.Errorf("latencies %v, missing %v", latencies, missing)
	}
}
