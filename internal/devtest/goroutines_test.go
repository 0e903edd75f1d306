package devtest

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestGoroutinesThatRunOnAreNamed(t *testing.T) {
	t.Parallel()
	end, ended := make(chan struct{}), make(chan struct{})
	go runsOn(end, ended)
	end <- struct{}{} // it has begun
	if err := awaitGoroutines(time.Millisecond); err == nil || !strings.Contains(err.Error(), "devtest.runsOn") {
		t.Errorf("the goroutine is not named: %v", err)
	}
	close(end)
	<-ended
	Eventually(t, time.Second, "the goroutine to be gone", func() bool {
		return !strings.Contains(errors.Join(awaitGoroutines(0), errors.New("")).Error(), "devtest.runsOn")
	})
}

func runsOn(end <-chan struct{}, ended chan<- struct{}) {
	defer close(ended)
	<-end
	<-end
}
