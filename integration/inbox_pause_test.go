package integration

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/operator"
)

// beginSlowly notes that an event began, and takes 20 ms after that.
const beginSlowly = "WITH b AS (INSERT INTO begun (handler, event) VALUES ($1, $2) RETURNING event) SELECT pg_sleep(0.02) FROM b"

// pausedKinds are handlers of each kind, by name.
var pausedKinds = []string{"moves", "batches", "orders", "errands"}

// An operator pauses handlers in one process, while four processes have more work than they
// can do. By the database's clock no handler begins an event more than two seconds after the
// commit of the pause, plus the time for which the machine stalled. After the resume every event
// takes effect once.
func TestAnOperatorPausesHandlersUnderLoad(t *testing.T) {
	t.Parallel()
	d := openDepot(t)
	d.exec("CREATE TABLE begun (handler text NOT NULL, event text NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp())")
	noteHeartbeats(t, d.pool)
	for range 4 {
		d.pausedInstance().start()
	}
	store := operator.New(d.pool, operator.Config{})
	sent := 0
	publish := func(n int) {
		d.publish(d.events("placed", fmt.Sprint("p", sent), n)...)
		sent += n
	}
	for range 2 {
		before := sent
		publish(400)
		devtest.Eventually(t, depotPatience, "all handlers to be at work", func() bool {
			return d.number("SELECT count(*) FROM (SELECT handler FROM begun GROUP BY handler HAVING count(*) > $1) busy", before+20) == len(pausedKinds)
		})
		for _, name := range pausedKinds {
			if err := store.Pause(t.Context(), name, 0, operatorsReason); err != nil {
				t.Fatal(err)
			}
		}
		var committed time.Time // or a moment later
		if err := d.pool.QueryRow(t.Context(), "SELECT clock_timestamp()").Scan(&committed); err != nil {
			t.Fatal(err)
		}
		publish(100) // it goes on meanwhile
		devtest.Eventually(t, depotPatience, "the pause to last", func() bool {
			return d.number("SELECT (clock_timestamp() > $1::timestamptz + $2 + stalled($1, clock_timestamp()))::int", committed, 2*obeyed) == 1
		})
		for _, name := range pausedKinds {
			if late := d.number("SELECT count(*) FROM begun WHERE handler = $1 AND at > $2::timestamptz + $3 + stalled($2, at)", name, committed, obeyed); late > 0 {
				t.Errorf("%s began %d events more than %s after the pause was committed", name, late, obeyed)
			}
			if left := sent - d.number("SELECT count(DISTINCT event) FROM begun WHERE handler = $1", name); left == 0 {
				t.Errorf("%s had no event left when it was paused: the test shows nothing", name)
			}
		}
		for _, name := range pausedKinds {
			if err := store.Resume(t.Context(), name, operatorsReason); err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range pausedKinds {
			devtest.Eventually(t, depotPatience, "everything to be done by "+name, func() bool {
				return d.heldCount(name) == 0 && d.number("SELECT count(*) FROM effect WHERE handler = $1", name) >= sent
			})
		}
	}
	for _, name := range pausedKinds {
		if n := d.number("SELECT count(*) FROM effect WHERE handler = $1", name); n != sent {
			t.Errorf("%s had %d effects, want %d", name, n, sent)
		}
		if n := d.number("SELECT count(DISTINCT event) FROM effect WHERE handler = $1", name); n != sent {
			t.Errorf("%s did %d of %d events", name, n, sent)
		}
	}
}

// pausedInstance is an inbox with a handler of each kind. The handlers note when they begin an
// event. They are slow, so that they have work left when they are paused.
func (d *depot) pausedInstance() *instance {
	d.Helper()
	c := d.instance(inbox.Config{IdlePoll: 100 * time.Millisecond}, nil)
	for _, name := range pausedKinds {
		sub := inbox.Subscription{Name: name, Stream: d.stream, Types: []string{d.typed("placed")}, Workers: 1}
		switch name {
		case "batches":
			sub.Batch = 10
		case "orders":
			sub.Order = inbox.HoldKey
		case "errands":
			c.HandleExternal(sub, func(ctx context.Context, attempt *inbox.Attempt) error {
				ev := attempt.Event
				attempt.OnSuccess(func(ctx context.Context, tx pgx.Tx) error { return note(ctx, tx, name, ev) })
				_, err := c.pool.Exec(ctx, beginSlowly, name, ev.ID)
				return err
			})
			continue
		}
		c.Handle(sub, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
			if _, err := tx.Exec(ctx, beginSlowly, name, ev.ID); err != nil {
				return err
			}
			return note(ctx, tx, name, ev)
		}))
	}
	return c
}
