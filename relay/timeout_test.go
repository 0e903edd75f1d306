package relay_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/postroom/postroom/relay"
)

// If a read runs out of time, the next term gives it more, so that it ends at some point.
func TestSlowReadGetsMoreTimeInTheNextTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFakeSource(events(3)...)
		src.slow = 10 * time.Minute
		run := start(relay.Over(src, &fakePublisher{}, relay.Config{}))
		after(time.Hour)
		if got := len(src.PublishedSeqs()); got != 3 {
			t.Errorf("%d events are published after an hour in which each read took 10 minutes, want 3", got)
		}
		src.Set(func() { src.slow = 0 })
		after(time.Hour) // quick reads bring the time down again
		terms := len(src.terms)
		src.Set(func() { src.slow = 90 * time.Second })
		after(2 * time.Minute)
		src.Set(func() { src.slow = 0 })
		if got := len(src.terms) - terms; got != 1 {
			t.Errorf("%d new terms, want 1: after an hour of quick reads one of 90 s is ended", got)
		}
		run.stop()
		run.wait(t)
	})
}

// While a search for late events is not done, the relay reads the log again at once.
func TestRelayReadsAgainDuringASearch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFakeSource(events(3)...)
		src.searching = 1000
		run := start(relay.Over(src, &fakePublisher{}, relay.Config{IdlePoll: time.Second}))
		after(100 * time.Millisecond)
		if got := len(src.PublishedSeqs()); got != 3 {
			t.Errorf("%d events are published, want 3: the search took 1,000 reads, and no time", got)
		}
		run.stop()
		run.wait(t)
	})
}
