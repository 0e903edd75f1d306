package measure

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// An event may be acknowledged before its commit is answered, and the measurement begin in
// between.
func TestAcknowledgementBeforeTheCommitIsKept(t *testing.T) {
	now := time.Now()
	times := newTimes()
	times.ack("a", now)
	times.begin()
	times.commit("a", now.Add(time.Millisecond))
	times.commit("b", now)
	latencies, missing := times.complete()
	if !slices.Equal(latencies, []float64{0}) || !slices.Equal(missing, []string{"b"}) {
		t.Errorf("latencies %v, missing %v", latencies, missing)
	}
	times.ack("b", now.Add(2*time.Millisecond))
	if latencies, missing = times.complete(); !slices.Equal(latencies, []float64{0, 2}) || len(missing) != 0 {
		t.Errorf("latencies %v, missing %v", latencies, missing)
	}
}

// What was committed before the measurement begins does not count.
func TestWhatWasBeforeTheBeginIsForgotten(t *testing.T) {
	times := newTimes()
	times.commit("a", time.Now())
	times.begin()
	if latencies, missing := times.complete(); len(latencies)+len(missing) != 0 {
		t.Errorf("latencies %v, missing %v", latencies, missing)
	}
}

// A measurement whose events are not acknowledged ends, and says what it waited for.
func TestWaitForAcknowledgementsEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		times := newTimes()
		times.commit("a", time.Now())
		times.ack("a", time.Now())
		times.commit("late", time.Now())
		_, err := times.sample(t.Context(), time.Second)
		if err == nil || !strings.Contains(err.Error(), "acknowledgement of 1 of 2 events that were committed, among them late") {
			t.Errorf("error is %v", err)
		}
	})
}
