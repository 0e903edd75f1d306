package deadletter_test

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/deadletter"
	"github.com/postroom/postroom/internal/devtest"
)

// meanwhile is a writer that calls a function at the first Write.
type meanwhile struct {
	bytes.Buffer
	do func()
}

func (m *meanwhile) Write(p []byte) (int, error) {
	if m.do != nil {
		do := m.do
		m.do = nil
		do()
	}
	return m.Buffer.Write(p)
}

// While Purge writes, another operator reopens the event, edits it and discards it again. Purge does
// not delete what it has not written, and what was discarded after its time.
func TestPurgeKeepsWhatWasDiscardedAgainMeanwhile(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	n.die("h", declined, event("e1"))
	id := n.number("SELECT id FROM postroom.held")
	if _, err := n.store.Discard(t.Context(), deadletter.Filter{All: true}, deadletter.ChangeOptions{}, n.by); err != nil {
		t.Fatal(err)
	}
	var before time.Time
	if err := n.pool.QueryRow(t.Context(), "SELECT clock_timestamp()").Scan(&before); err != nil {
		t.Fatal(err)
	}
	w := &meanwhile{do: func() {
		if _, err := n.store.Reopen(t.Context(), deadletter.Filter{All: true}, deadletter.ChangeOptions{}, n.by); err != nil {
			t.Error(err)
		}
		if _, err := n.store.Edit(t.Context(), id, deadletter.Edit{Data: []byte(`{"edited":true}`)}, n.by); err != nil {
			t.Error(err)
		}
		if _, err := n.store.Discard(t.Context(), deadletter.Filter{All: true}, deadletter.ChangeOptions{}, n.by); err != nil {
			t.Error(err)
		}
	}}
	purged, err := n.store.Purge(t.Context(), w, deadletter.PurgeOptions{Before: before}, n.by)
	if left := n.number("SELECT count(*) FROM postroom.archive"); left == 0 && !strings.Contains(w.String(), "edited") {
		t.Errorf("purged %d (%v) of what was discarded after its time; the edited body is lost, the export has only %s", purged, err, w.String())
	}
}

// The same, but the reopened event is in a running replay, dies there and is discarded: the replay must not
// count it as a success.
func TestPurgeDoesNotLetARunningReplaySucceed(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	n.die("h", declined, event("e1"))
	if _, err := n.store.Discard(t.Context(), deadletter.Filter{All: true}, deadletter.ChangeOptions{}, n.by); err != nil {
		t.Fatal(err)
	}
	var job deadletter.Replay
	w := &meanwhile{do: func() {
		if _, err := n.store.Reopen(t.Context(), deadletter.Filter{All: true}, deadletter.ChangeOptions{}, n.by); err != nil {
			t.Error(err)
		}
		job = n.replay(deadletter.Filter{All: true}, deadletter.ReplayOptions{StopAt: new(1.0)})
		stop := n.handle("h", func(postroom.Event) error { return postroom.Permanent(errDeclined) })
		defer stop()
		released := false
		ctx, cancel := withCancel(t)
		defer cancel()
		_, _ = n.store.RunReplay(ctx, job.ID, deadletter.RunOptions{Progress: func(r deadletter.Replay) {
			if r.Released == 1 && !released { // the process that runs the replay ends here
				released = true
				cancel()
			}
		}})
		eventually(t, func() bool {
			return n.number("SELECT count(*) FROM postroom.held WHERE dead_at IS NOT NULL") == 1
		})
		if _, err := n.store.Discard(t.Context(), deadletter.Filter{All: true}, deadletter.ChangeOptions{}, n.by); err != nil {
			t.Error(err)
		}
	}}
	purged, err := n.store.Purge(t.Context(), w, deadletter.PurgeOptions{Before: time.Now()}, n.by)
	if done := n.runReplay(job); done.Succeeded != 0 {
		t.Errorf("purge %d, %v: the replay says that %d succeeded; no handler ever applied the event", purged, err, done.Succeeded)
	}
}

func withCancel(t *testing.T) (context.Context, context.CancelFunc) {
	return context.WithCancel(t.Context())
}

func eventually(t *testing.T, f func() bool) { devtest.Eventually(t, patience, "dead again", f) }

// A time that was forgotten is no time before which everything is old.
func TestPurgeBeforeNoTime(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	n.die("billing", declined, events(1)...)
	n.discarded(deadletter.Filter{All: true}, 1)
	var out bytes.Buffer
	if got, err := n.store.Purge(t.Context(), &out, deadletter.PurgeOptions{Before: time.Time{}}, n.by); err == nil || got != 0 || out.Len() != 0 {
		t.Errorf("Purge = %d, %v, and wrote %d bytes; want an error", got, err, out.Len())
	}
	if got := n.number("SELECT count(*) FROM postroom.archive"); got != 1 {
		t.Errorf("the archive has %d events, want 1", got)
	}
}
