package sagas

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/saga"
)

// The relay, or the process with the saga, is away for longer than the time of a step, and comes back
// to a backlog of several pages. An answer that was committed in time always wins.
func TestAnswersInTimeWinOverTheirDeadlines(t *testing.T) {
	t.Parallel()
	for _, away := range []string{"relay", "saga"} {
		t.Run(away, func(t *testing.T) {
			t.Parallel()
			const instances = 30
			w := open(t)
			g := w.saga(saga.Definition[trip]{Version: 1, Steps: []saga.Step[trip]{w.step("payment", 15*time.Second)}})
			asked := make(chan postroom.Event, instances)
			w.process(w.participates("payment", func(cmd postroom.Event) error {
				if cmd.Type == w.of("payment", "undo") {
					return nil
				}
				asked <- cmd
				return reply(saga.NoReply) // the answer is written below
			}))
			stop := w.process(w.runs(g))
			var keys []string
			for i := range instances {
				keys = append(keys, fmt.Sprint("t", i))
			}
			w.begin(g, keys...)
			var commands []postroom.Event
			for range instances {
				commands = append(commands, <-asked)
			}
			if away == "relay" {
				stop = w.stopRelay
			}
			stop()
			err := pgx.BeginFunc(t.Context(), w.pool, func(tx pgx.Tx) error {
				_, err := tx.Exec(t.Context(), `SELECT postroom.write('/town', $1, '{}'::text) FROM generate_series(1, 5000) n`, w.of("other", "happened"))
				for _, cmd := range commands {
					if err == nil {
						err = w.out.Write(t.Context(), tx, saga.Answer(cmd.ID, cmd.Key, w.of("payment", "done"), nil))
					}
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			if late := w.number("SELECT count(*) FROM postroom.saga WHERE deadline < clock_timestamp()"); late > 0 {
				t.Fatalf("the answers to %d instances were not written in time", late)
			}
			w.until(0, "SELECT count(*) FROM postroom.saga WHERE deadline > clock_timestamp() - interval '3 s'")
			if away == "relay" {
				w.startRelay()
			} else {
				w.until(0, "SELECT count(*) FROM postroom.held WHERE handler = 'outbox'") // the deadlines are in the stream
				w.process(w.runs(g))
			}
			w.until(instances, "SELECT count(*) FROM postroom.saga WHERE state <> 'running'")
			if n := w.number("SELECT count(*) FROM postroom.saga WHERE state = 'done'"); n != instances {
				t.Errorf("%d of %d instances are done, although all answers were committed in time", n, instances)
			}
		})
	}
}
