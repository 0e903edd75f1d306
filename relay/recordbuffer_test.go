package relay

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/relay/broker"
)

// What a recording left to the next ones still waits: the dispatcher takes no page, and a key whose
// events are among them is not free. When few are left, the dispatcher is woken.
func TestWhatARecordingLeftStillWaits(t *testing.T) {
	t.Parallel()
	room := make(chan struct{}, 1)
	u := newRecordBuffer(room)
	hold := func(n int) {
		u.addHeld(func(int64) ([]eventlog.Deferral, []int64) { return make([]eventlog.Deferral, n), nil })
	}
	hold(maxHeldEvents + 1000)
	for _, step := range []struct {
		meanwhile, left int
		woken           bool
		stored          int64 // the last recording all of whose events are stored
	}{{0, maxHeldEvents, false, 0}, {500, maxHeldEvents - 100, false, 0}, {0, maxHeldEvents - 600, true, 0}, {0, 600, false, 0}, {0, 500, false, 2}, {0, 0, false, 6}} {
		taken := u.take()
		hold(step.meanwhile)
		u.done(taken, step.left, 7)
		if got := u.heldEvents.Load(); got != int64(step.left+step.meanwhile) {
			t.Errorf("%d events wait, want %d and %d", got, step.left, step.meanwhile)
		}
		if woken := len(room) == 1; woken != step.woken {
			t.Errorf("with %d left the dispatcher is woken: %t", step.left, woken)
		} else if woken {
			<-room
		}
		if got := u.lastRecording.Load(); got != step.stored {
			t.Errorf("recording %d left %d events, and all events up to recording %d count as stored, want %d", taken.number, step.left, got, step.stored)
		}
		if len(u.due) != 1 {
			t.Error("the recorder is not told to go on")
		}
	}
}

// If the network is fast, the relay does not blame it for a lease that was not renewed.
func TestANearDatabaseIsNotBlamed(t *testing.T) {
	t.Parallel()
	for roundTrip, near := range map[time.Duration]bool{200 * time.Microsecond: true, 250 * time.Millisecond: true, 600 * time.Millisecond: false} {
		e := &leaseTooShortError{lease: 5 * time.Second, what: "a recording", took: 3750 * time.Millisecond, roundTrip: roundTrip}
		if text := e.Error(); strings.Contains(text, "run the relay nearer") == near || strings.Contains(text, "the network is not the cause") != near || !strings.Contains(text, "--lease") {
			t.Errorf("round trip %s: %s", roundTrip, text)
		}
	}
}

// The headers of the last events count for the size of the next page.
func TestHeadersCountForTheNextPage(t *testing.T) {
	t.Parallel()
	ev := broker.Event{Event: postroom.Event{Headers: map[string]string{"h": strings.Repeat("x", postroom.MaxHeaderBytes-1)}}}
	if got, most := nextLimit(slices.Repeat([]broker.Event{ev}, 10)), eventlog.PageBytes/postroom.MaxHeaderBytes; got > most || got < most-1 {
		t.Errorf("the next page has at most %d events, want %d", got, most)
	}
}
