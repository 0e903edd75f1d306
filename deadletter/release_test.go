package deadletter_test

import (
	"context"
	"testing"
	"time"

	"github.com/postroom/postroom/deadletter"
	"github.com/postroom/postroom/internal/devtest"
)

// A rate that is too large to limit anything counts as no limit.
func TestHugeRateIsNoBound(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	n.seed(4, 1, 1)
	n.handle("h0", nil)
	if done := n.runReplay(n.replay(deadletter.Filter{All: true}, deadletter.ReplayOptions{Rate: 1e22})); done.Succeeded != 4 {
		t.Errorf("result: %+v", done)
	}
}

// When an event is released, the process that had it when it died loses its claim. If that process
// records a failure late or twice, that is not an outcome of the replay.
func TestReleaseEndsFormerClaims(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	n.seed(1, 1, 1)
	n.exec("UPDATE postroom.held SET epoch = 7")
	n.release(n.replay(deadletter.Filter{All: true}, deadletter.ReplayOptions{}))
	n.want("released, and still the former claim's", 0, "SELECT count(*) FROM postroom.held WHERE epoch = 7 AND dead_at IS NULL")
}

// The keys that a replay makes never equal the key of an event, even if an event's key looks like
// one of them.
func TestKeysOfReplaysDifferFromKeysOfEvents(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	n.exec(`INSERT INTO postroom.subscription (handler, stream, stream_created, ordered) VALUES ('h0', 'S', now(), true)`)
	n.seed(4, 1, 1)
	n.exec("UPDATE postroom.held SET pos = id, key = 'k'")
	n.exec("UPDATE postroom.held SET pos = 1, key = 'replay 1 k', chain = 'replay 1 k' WHERE id = 4") // the form of such keys in an earlier version
	n.release(n.replay(deadletter.Filter{Key: "k"}, deadletter.ReplayOptions{}))
	n.want("due", 1, "SELECT count(*) FROM postroom.held WHERE next_at IS NOT NULL")
	n.want("waiting behind it", 2, "SELECT count(*) FROM postroom.held WHERE next_at IS NULL AND dead_at IS NULL")
}

// Ids and keys of other programs' events may be longer than an index entry, or than Postroom
// allows.
func TestLongIDsAndKeys(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	n.exec(`INSERT INTO postroom.subscription (handler, stream, stream_created, ordered) VALUES ('h0', 'S', now(), true)`)
	n.seed(3, 1, 1)
	n.exec(`UPDATE postroom.held SET pos = id, key = long, event_id = id || long
		FROM (SELECT string_agg(md5(i::text), '') AS long FROM generate_series(1, 200) i) l`)
	if _, err := n.store.Edit(t.Context(), 1, deadletter.Edit{Data: []byte("{}")}, n.by); err != nil {
		t.Error(err)
	}
	one := deadletter.Filter{IDs: []int64{1}}
	if _, err := n.store.Discard(t.Context(), one, deadletter.ChangeOptions{}, n.by); err != nil {
		t.Error(err)
	}
	if _, err := n.store.Reopen(t.Context(), one, deadletter.ChangeOptions{}, n.by); err != nil {
		t.Error(err)
	}
	n.release(n.replay(deadletter.Filter{All: true}, deadletter.ReplayOptions{}))
	n.want("due", 1, "SELECT count(*) FROM postroom.held WHERE next_at IS NOT NULL")
	n.want("waiting behind it", 2, "SELECT count(*) FROM postroom.held WHERE next_at IS NULL AND dead_at IS NULL")
}

// release makes one step of a replay.
func (n *rig) release(job deadletter.Replay) {
	n.Helper()
	ctx, stop := context.WithTimeout(n.Context(), devtest.Patience(n, 30*time.Second))
	defer stop()
	released := 0
	_, err := n.store.RunReplay(ctx, job.ID, deadletter.RunOptions{Progress: func(j deadletter.Replay) {
		released = j.Released
		stop()
	}})
	if released == 0 {
		n.Fatalf("nothing was released: %v", err)
	}
}
