package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
)

// acceptMany accepts events 0 to n-1 for a handler.
func (b *bench) acceptMany(handler string, n int) {
	b.Helper()
	all := make([]inbox.Acceptance, n)
	for i := range all {
		all[i] = accepted(handler, fmt.Sprint(i), "1")
	}
	if _, err := b.in.AcceptAll(b.Context(), all...); err != nil {
		b.Fatal(err)
	}
}

// All workers of a handler that reads no stream run its events at the same time.
func TestAllWorkersRunAcceptedEvents(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const workers = 5
	running, all := make(chan struct{}, workers), make(chan struct{})
	b.in.Handle(inbox.Subscription{Name: "h", Workers: workers}, postroom.HandlerFunc(func(ctx context.Context, _ pgx.Tx, _ postroom.Event) error {
		running <- struct{}{}
		select {
		case <-all:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}))
	b.acceptMany("h", workers)
	b.run()
	for range workers {
		devtest.Receive(t, 20*time.Second, "another worker to run", running)
	}
	close(all)
	b.eventually("the end", func() bool { return len(b.held("h")) == 0 })
}

// Accepted events share transactions. If one fails, only that one is held, and the others of
// its batch take effect.
func TestBatchOfAcceptedEvents(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.exec("CREATE TABLE xid (event text, xid text)")
	var calls atomic.Int64
	b.in.Handle(inbox.Subscription{Name: "h", Workers: 2, Batch: 10, Attempts: 2, Schedule: postroom.Backoff{time.Millisecond}, Pause: inbox.Pause{Off: true}},
		postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
			calls.Add(1)
			if _, err := tx.Exec(ctx, "INSERT INTO xid VALUES ($1, pg_current_xact_id()::text)", ev.ID); err != nil {
				return err
			}
			if ev.ID == "77" {
				return errors.New("it fails")
			}
			return effect("h").Handle(ctx, tx, ev)
		}))
	b.acceptMany("h", 100)
	b.run()
	b.eventually("the effects", func() bool { return len(b.effects("h")) == 99 && b.dead("h") == 1 && len(b.held("h")) == 1 })
	for id, n := range b.effects("h") {
		if n != 1 {
			t.Errorf("%d effects of %s", n, id)
		}
	}
	if got, want := b.held("h")["/stripe 77"], (heldEntry{Key: "/stripe 77", State: "dead", Attempts: 2, Class: "error", Failures: 2}); got != want {
		t.Errorf("held: %+v, want %+v", got, want)
	}
	var transactions int
	if err := b.pool.QueryRow(t.Context(), "SELECT count(DISTINCT xid) FROM xid").Scan(&transactions); err != nil {
		t.Fatal(err)
	}
	if transactions > 60 { // one batch ran again one by one
		t.Errorf("%d transactions for 99 events in batches of 10", transactions)
	}
	b.eventually("all to be counted", func() bool { return b.counted("h", "done") >= 99 })
	if n := b.counted("h", "done"); n != 99 {
		t.Errorf("%d events are counted as done, want 99", n)
	}
}

// If a handler commits the transaction of a batch, no event of the batch runs again.
func TestBatchWhoseHandlerCommittedDoesNotRunAgain(t *testing.T) {
	t.Parallel()
	for _, ending := range endings {
		t.Run(ending.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.exec("CREATE PROCEDURE commits() LANGUAGE plpgsql AS 'BEGIN COMMIT; END'")
			b.in.Handle(inbox.Subscription{Name: "h", Workers: 1, Batch: 10, Attempts: 1, Schedule: postroom.Backoff{time.Hour}},
				postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
					if ev.ID != "7" {
						return effect("h").Handle(ctx, tx, ev)
					}
					return errors.Join(effect("before").Handle(ctx, tx, ev), ending.end(ctx, tx))
				}))
			b.acceptMany("h", 10)
			b.run()
			b.eventually("all to be decided", func() bool { return len(b.held("h")) == b.dead("h") && len(b.effects("h"))+len(b.held("h")) >= 10 })
			for id, n := range b.effects("h") {
				if n != 1 {
					t.Errorf("%d effects of %s", n, id)
				}
			}
			if n := b.effects("before")["7"]; (n == 1) != ending.committed || n > 1 {
				t.Errorf("the earlier effect took place %d times", n)
			}
			if got := b.held("h")["/stripe 7"]; got.State != "dead" {
				t.Errorf("held: %+v, want the event of the handler that ended its transaction dead", got)
			}
		})
	}
}

// A batch commits only if all its claims are still this process's.
func TestBatchWithoutAllClaimsDoesNotCommit(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var lost atomic.Bool
	b.in.Handle(inbox.Subscription{Name: "h", Workers: 1, Batch: 10, Timeout: time.Second}, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		if ev.ID == "7" && lost.CompareAndSwap(false, true) { // as if another process claimed it
			if _, err := b.pool.Exec(ctx, "UPDATE postroom.held SET epoch = epoch + 1 WHERE event_id = '7'"); err != nil {
				return err
			}
		}
		return effect("h").Handle(ctx, tx, ev)
	}))
	b.acceptMany("h", 10)
	b.run()
	b.eventually("all events to be decided", func() bool { return len(b.held("h")) == 0 })
	for i := range 10 {
		if n := b.effects("h")[fmt.Sprint(i)]; n != 1 {
			t.Errorf("%d effects of %d", n, i)
		}
	}
}

// An event commits the transaction of its batch, and a later event of the batch takes all the time
// that the batch has. What ran before does not run again, although the batch can no longer run its
// events one by one.
func TestBatchWhoseTimeIsOverDoesNotForgetACommit(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.in.Handle(inbox.Subscription{Name: "h", Workers: 1, Batch: 10, Attempts: 1, Timeout: time.Second, Pause: inbox.Pause{Off: true}},
		postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
			err := effect("h").Handle(ctx, tx, ev)
			switch ev.ID {
			case "1":
				_, err = tx.Exec(ctx, "COMMIT AND CHAIN")
			case "2":
				<-ctx.Done()
				err = ctx.Err()
			}
			return err
		}))
	b.acceptMany("h", 5)
	b.run()
	b.eventually("all to be settled", func() bool { return len(b.held("h")) == b.dead("h") && len(b.effects("h")) == 4 })
	for id, n := range b.effects("h") {
		if n != 1 {
			t.Errorf("%d effects of %s", n, id)
		}
	}
	if o := b.held("h")["/stripe 1"]; o.Class != "transaction" {
		t.Errorf("1 is held: %+v, want it dead because its transaction was committed", o)
	}
}

// An event that takes all the time of its batch at each run uses up its attempts, and stops no other
// event.
func TestAnEventThatHangsInABatchIsDead(t *testing.T) {
	t.Parallel()
	for _, hangs := range []string{"0", "2", "4"} {
		t.Run(hangs, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			var runs atomic.Int64
			b.in.Handle(inbox.Subscription{Name: "h", Workers: 1, Batch: 10, Attempts: 2, Timeout: time.Second, Schedule: postroom.Backoff{time.Millisecond}, Pause: inbox.Pause{Off: true}},
				postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
					if ev.ID == hangs {
						runs.Add(1)
						<-ctx.Done()
						return ctx.Err()
					}
					return effect("h").Handle(ctx, tx, ev)
				}))
			b.acceptMany("h", 5)
			b.run()
			b.eventually("one to be dead, and the others to be done", func() bool { return len(b.held("h")) == 1 && b.dead("h") == 1 && len(b.effects("h")) == 4 })
			for id, n := range b.effects("h") {
				if n != 1 {
					t.Errorf("%d effects of %s", n, id)
				}
			}
			if n := runs.Load(); n > 4 { // each attempt, and before each a run in a batch
				t.Errorf("the event that hangs ran %d times for two attempts", n)
			}
		})
	}
}
