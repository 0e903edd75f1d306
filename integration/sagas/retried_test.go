package sagas

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/saga"
)

// An answer was committed in time, but its first attempt failed, or a program got it that does not know
// the version of its instance. The deadline comes before the next attempt, and lets the answer come first.
func TestAnAnswerThatIsTriedAgainWinsOverTheDeadline(t *testing.T) {
	t.Parallel()
	t.Run("it failed", func(t *testing.T) {
		t.Parallel()
		w := open(t)
		var failed atomic.Bool
		g := w.saga(saga.Definition[trip]{Version: 1, Steps: []saga.Step[trip]{
			w.step("payment", 2*time.Second),
			{Name: "confirm", Do: saga.Local(func(context.Context, pgx.Tx, *trip) error {
				if failed.CompareAndSwap(false, true) {
					return errors.New("not now")
				}
				return nil
			})},
		}})
		w.process(w.participates("payment", nil))
		w.process(func(in *inbox.Inbox) {
			sub := w.subscription("saga", g.Types()...)
			sub.Schedule, sub.Attempts = postroom.Backoff{5 * time.Second}, 8
			in.Handle(sub, g)
		})
		w.begin(g, "t1")
		w.answerInTimeWins()
	})
	t.Run("an older program got it", func(t *testing.T) {
		t.Parallel()
		w := open(t)
		older := saga.Definition[trip]{Version: 1, Steps: []saga.Step[trip]{w.step("seat", 0)}}
		one := w.saga(older)
		two := w.saga(saga.Definition[trip]{Version: 2, Steps: []saga.Step[trip]{w.step("payment", 3*time.Second)}, Older: []saga.Definition[trip]{older}})
		w.process(w.participates("payment", nil))
		stop := w.process(func(in *inbox.Inbox) { in.Handle(w.subscription("saga", two.Types()...), one) }) // it reads the new type too, as the old program's subscription may
		w.begin(two, "t1")
		w.until(1, "SELECT count(*) FROM postroom.held WHERE handler = 'saga' AND snoozed_at IS NOT NULL AND type = $1", w.of("payment", "done"))
		stop()
		w.process(w.runs(two))
		w.answerInTimeWins()
	})
}

// answerInTimeWins waits for the end of the only instance, whose answer is in held before the deadline.
func (w *rig) answerInTimeWins() {
	w.Helper()
	w.until(1, "SELECT count(*) FROM postroom.held h JOIN postroom.saga s ON s.key = h.key WHERE h.handler = 'saga' AND h.type = $1 AND h.logged_at < s.deadline AND h.next_at > s.deadline", w.of("payment", "done"))
	w.until(1, "SELECT count(*) FROM postroom.saga WHERE state <> 'running'")
	if n := w.number("SELECT count(*) FROM postroom.saga WHERE state = 'done'"); n != 1 {
		w.Error("the instance is undone, although its answer was committed in time")
	}
}
