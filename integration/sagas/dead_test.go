package sagas

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/deadletter"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/saga"
)

var by = postroom.Audit{Actor: "ann", Reason: "it is mended"}

const (
	deadOf   = "SELECT count(*) FROM postroom.held WHERE dead_at IS NOT NULL AND key = $1"
	waits    = "SELECT count(*) FROM postroom.held WHERE dead_at IS NULL AND handler <> 'outbox' AND key = $1"
	statesOf = "SELECT count(*) FROM postroom.saga WHERE key = $1 AND state = $2"
)

// replay runs the dead event of a key again.
func (w *rig) replay(key string) {
	w.Helper()
	dead := deadletter.New(w.pool, deadletter.Config{})
	r, err := dead.CreateReplay(w.Context(), deadletter.Filter{Key: key}, deadletter.ReplayOptions{}, by)
	if err == nil {
		_, err = dead.RunReplay(w.Context(), r.ID, deadletter.RunOptions{})
	}
	if err != nil {
		w.Fatal(err)
	}
}

// A command is dead at its participant when the time of its step is over. The Undo waits
// behind it, because the participant is ordered. An operator discards or replays the command.
// Either way the Undo comes after it, and the instance ends.
func TestUndoBehindADeadCommand(t *testing.T) {
	t.Parallel()
	w := open(t)
	var mended atomic.Bool
	g := w.saga(saga.Definition[trip]{Version: 1, Steps: []saga.Step[trip]{w.step("seat", time.Hour), w.step("payment", time.Second)}})
	w.process(w.runs(g), w.participates("seat", nil), w.participates("payment", func(postroom.Event) error {
		if mended.Load() {
			return nil
		}
		return postroom.Permanent(errors.New("broken"))
	}))
	w.begin(g, "discarded", "replayed")
	for _, key := range []string{"discarded", "replayed"} {
		w.until(1, statesOf, key, "compensating")
		w.until(1, deadOf, key)
		w.until(1, waits, key) // the Undo
		if did := w.did(key); did != "seat do" {
			t.Errorf("%s: %s", key, did)
		}
	}
	mended.Store(true)
	if n, err := deadletter.New(w.pool, deadletter.Config{}).Discard(t.Context(), deadletter.Filter{Key: "discarded"}, deadletter.ChangeOptions{Limit: 1}, by); err != nil || n != 1 {
		t.Fatalf("discarded %d, %v", n, err)
	}
	w.replay("replayed")
	for key, want := range map[string]string{
		"discarded": "seat do, payment undo, seat undo",
		"replayed":  "seat do, payment do, payment undo, seat undo",
	} {
		w.until(1, statesOf, key, "undone")
		if did := w.did(key); did != want {
			t.Errorf("%s: %s, want %s", key, did, want)
		}
	}
}

// An Undo dies at its participant, and is replayed later. The saga waits, and then goes on by
// itself.
func TestSagaGoesOnAfterItsUndoIsReplayed(t *testing.T) {
	t.Parallel()
	w := open(t)
	var mended atomic.Bool
	g := w.saga(saga.Definition[trip]{Version: 1, Steps: []saga.Step[trip]{w.step("seat", time.Hour), w.step("payment", time.Hour)}})
	w.process(w.runs(g), w.participates("payment", func(cmd postroom.Event) error {
		return reply(cmd.Follow(w.of("payment", "failed"), saga.Death{Class: "declined"}))
	}), w.participates("seat", func(cmd postroom.Event) error {
		if cmd.Type == w.of("seat", "undo") && !mended.Load() {
			return postroom.Permanent(errors.New("broken"))
		}
		return nil
	}))
	w.begin(g, "t1")
	w.until(1, deadOf, "t1")
	w.until(1, statesOf, "t1", "compensating")
	mended.Store(true)
	w.replay("t1")
	w.until(1, statesOf, "t1", "undone")
	if did := w.did("t1"); did != "seat do, seat undo" {
		t.Error(did)
	}
}

// If a command dies at its participant, that is an answer.
func TestDeathIsAnAnswer(t *testing.T) {
	t.Parallel()
	w := open(t)
	g := w.saga(saga.Definition[trip]{Version: 1, Steps: []saga.Step[trip]{w.step("seat", time.Hour), w.step("payment", time.Hour)}})
	w.process(w.runs(g), w.participates("seat", nil))
	in := inbox.New(w.pool, w.nc, inbox.Config{Logger: quiet, OnDead: func(ctx context.Context, tx pgx.Tx, l inbox.Letter) error {
		types := map[string]string{w.of("payment", "do"): w.of("payment", "failed")}
		return saga.ReportDeath(ctx, tx, w.out, types, l.Event, saga.Death{Class: l.Class, Error: l.Error})
	}})
	w.participates("payment", func(postroom.Event) error { return errors.New("broken") })(in)
	w.run(in)
	w.begin(g, "t1")
	w.until(1, statesOf, "t1", "undone")
	if did := w.did("t1"); did != "seat do, seat undo" {
		t.Error(did)
	}
	story, err := saga.NewStore(w.pool, saga.StoreConfig{}).Show(t.Context(), w.name, "t1")
	if err != nil || story.History[4].What != "failed" {
		t.Errorf("history %v, %v", story.History, err)
	}
}

// A vendor answers with a webhook, which a handler translates into the reply to the command.
func TestAnswerOfAVendor(t *testing.T) {
	t.Parallel()
	w := open(t)
	g := w.saga(saga.Definition[trip]{Version: 1, Steps: []saga.Step[trip]{w.step("payment", time.Hour)}})
	asked := make(chan postroom.Event, 1)
	in := inbox.New(w.pool, w.nc, inbox.Config{Logger: quiet})
	w.runs(g)(in)
	w.participates("payment", func(cmd postroom.Event) error {
		asked <- cmd // the vendor keeps the id and the key, and answers later
		return reply(saga.NoReply)
	})(in)
	type hook struct{ Command, Key string }
	in.Handle(inbox.Subscription{Name: "hooks"}, postroom.JSON(func(ctx context.Context, tx pgx.Tx, _ postroom.Event, h hook) error {
		return w.out.Write(ctx, tx, saga.Answer(h.Command, h.Key, w.of("payment", "done"), nil))
	}))
	w.run(in)
	w.begin(g, "t1")
	cmd := <-asked
	ev := postroom.NewEvent("vendor.paid", hook{cmd.ID, cmd.Key})
	ev.Source = "/hooks"
	for range 2 { // webhooks come twice
		if _, err := in.Accept(t.Context(), "hooks", ev); err != nil {
			t.Fatal(err)
		}
	}
	w.until(1, statesOf, "t1", "done")
}
