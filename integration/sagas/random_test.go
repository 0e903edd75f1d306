package sagas

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/sleep"
	"github.com/postroom/postroom/operator"
	"github.com/postroom/postroom/saga"
)

// within is the time of the step of the next test.
const within = 4 * time.Second

// Instances begin, and their answers come at any time before the deadline, up to the last moment.
// Meanwhile the relay and the process with the saga stop and start, operators pause both, for longer
// than the time of a step, other events fill ten pages of the log, and the first attempt at some answers
// fails, with the next one after the deadline. An answer that was committed before the deadline always
// wins. With POSTROOM_SOAK=1 this goes on for five minutes.
func TestRandomPausesLoseNoAnswer(t *testing.T) {
	t.Parallel()
	random := devtest.Random(t, 1)
	length := 15 * time.Second
	if os.Getenv("POSTROOM_SOAK") != "" {
		length = 5 * time.Minute
	}
	w := open(t)
	var failed sync.Map // keys
	g := w.saga(saga.Definition[trip]{Version: 1, Steps: []saga.Step[trip]{w.step("payment", within), {Name: "confirm", Do: saga.Local(func(_ context.Context, _ pgx.Tx, s *trip) error {
		if _, again := failed.LoadOrStore(s.ID, true); !again && random.IntN(4) == 0 {
			return errors.New("not now")
		}
		return nil
	})}}})
	runs := func(in *inbox.Inbox) {
		sub := w.subscription("saga", g.Types()...)
		sub.Schedule, sub.Attempts = postroom.Backoff{within}, 8
		in.Handle(sub, g)
	}
	var answers sync.WaitGroup
	var mu sync.Mutex
	inTime := make(map[string]bool) // keys
	w.process(w.participates("payment", func(cmd postroom.Event) error {
		if cmd.Type == w.of("payment", "undo") {
			return nil
		}
		answers.Go(func() {
			if w.answersInTime(random, cmd) {
				mu.Lock()
				defer mu.Unlock()
				inTime[cmd.Key] = true
			}
		})
		return reply(saga.NoReply) // the answer is written by itself
	}))
	operators := operator.New(w.pool, operator.Config{})
	by := postroom.Audit{Actor: "ann", Reason: "random"}
	stopSaga := w.process(runs)
	chance := func(of int) bool { return random.IntN(of) == 0 }
	begun := 0
	for end := time.Now().Add(length); time.Now().Before(end); {
		var keys []string
		for range 1 + random.IntN(30) {
			begun++
			keys = append(keys, fmt.Sprint("t", begun))
		}
		w.begin(g, keys...)
		away := time.Duration(random.Int64N(int64(within + within/2)))
		var err error
		switch {
		case chance(4):
			w.stopRelay()
			sleep.For(t.Context(), away)
			w.startRelay()
		case chance(4):
			stopSaga()
			sleep.For(t.Context(), away)
			stopSaga = w.process(runs)
		case chance(4):
			err = operators.PauseRelay(t.Context(), away+time.Second, by)
		case chance(4):
			err = operators.Pause(t.Context(), "saga", away+time.Second, by)
		case chance(3):
			w.exec(`SELECT postroom.write('/town', $1, '{}'::text) FROM generate_series(1, 10000) n`, w.of("other", "happened"))
		default:
			sleep.For(t.Context(), away/8)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	answers.Wait()
	w.until(0, "SELECT count(*) FROM postroom.saga WHERE state IN ('running', 'compensating')")
	rows, _ := w.pool.Query(t.Context(), "SELECT key FROM postroom.saga WHERE state = 'undone' ORDER BY key") // CollectRows reports the error
	undone, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d instances, %d answered in time, %d undone", begun, len(inTime), len(undone))
	for _, key := range undone {
		if inTime[key] {
			t.Errorf("%s is undone, although its answer was committed in time", key)
		}
	}
	if len(inTime) == 0 {
		t.Error("inconclusive: no answer was in time")
	}
}

// answersInTime writes the answer to a command at a random time before the deadline of its step, and
// reports whether the answer was committed before the deadline.
func (w *rig) answersInTime(random *rand.Rand, cmd postroom.Event) bool {
	wait := time.Duration(random.Int64N(int64(within)))
	if random.IntN(2) == 0 {
		wait = within - wait/20 // at the last moment
	}
	if !sleep.For(w.Context(), wait) {
		return false // its instance has ended without an answer, and so has the test
	}
	err := pgx.BeginFunc(w.Context(), w.pool, func(tx pgx.Tx) error {
		return w.out.Write(w.Context(), tx, saga.Answer(cmd.ID, cmd.Key, w.of("payment", "done"), nil))
	})
	if err != nil {
		w.Error(err)
		return false
	}
	return w.number("SELECT count(*) FROM postroom.saga WHERE name = $1 AND key = $2 AND state = 'running' AND deadline > clock_timestamp()", w.name, cmd.Key) == 1
}
