package measure

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postroom/postroom/integration/bench/internal/stopwatch"
)

// If events are not acknowledged, the measurement ends, and says for what it waited.
func TestWaitForAcknowledgementsEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		times := stopwatch.New()
		times.Commit("a", time.Now())
		times.Ack("a", time.Now())
		times.Commit("late", time.Now())
		_, err := sampleOf(t.Context(), times, time.Second)
		if err == nil || !strings.Contains(err.Error(), "1 of 2 committed events were not acknowledged, among them late") {
			t.Errorf("error is %v", err)
		}
	})
}
