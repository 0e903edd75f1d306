package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
)

// uses are the ways in which a goroutine of a handler can use the transaction.
var uses = map[string]func(ctx context.Context, tx pgx.Tx) error{
	"statements": func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "SELECT 1")
		return err
	},
	"one row": func(ctx context.Context, tx pgx.Tx) error {
		return tx.QueryRow(ctx, "SELECT $1::int", 1).Scan(new(int))
	},
	"rows": func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, "SELECT n FROM generate_series(1, $1::int) n", 1000)
		if err != nil {
			return err
		}
		_, err = pgx.CollectRows(rows, pgx.RowTo[int])
		return err
	},
	"values": func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, "SELECT n FROM generate_series(1, $1::int) n", 1000)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			if _, err := rows.Values(); err != nil {
				return err
			}
		}
		return rows.Err()
	},
	"batches": func(ctx context.Context, tx pgx.Tx) error {
		batch := &pgx.Batch{}
		batch.Queue("SELECT 1")
		batch.Queue("SELECT 2").QueryRow(func(row pgx.Row) error { return row.Scan(new(int)) })
		return tx.SendBatch(ctx, batch).Close()
	},
	"results": func(ctx context.Context, tx pgx.Tx) error {
		batch := &pgx.Batch{}
		batch.Queue("SELECT 1")
		batch.Queue("SELECT 2")
		results := tx.SendBatch(ctx, batch)
		_, err := results.Exec()
		return errors.Join(err, results.QueryRow().Scan(new(int)), results.Close())
	},
	"copies": func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.CopyFrom(ctx, pgx.Identifier{"copied"}, []string{"n"}, pgx.CopyFromRows([][]any{{1}, {2}}))
		return err
	},
	"savepoints": func(ctx context.Context, tx pgx.Tx) error {
		return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "SELECT 1")
			return err
		})
	},
	"prepared statements": func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Prepare(ctx, "", "SELECT 1")
		return err
	},
	"the connection": func(_ context.Context, tx pgx.Tx) error { // which the goroutine does not use
		if first := tx.Conn(); first != tx.Conn() { // each of them is a closed connection
			return pgx.ErrTxClosed
		}
		return nil
	},
}

// busy counts the goroutines that handlers left.
type busy struct{ sync.WaitGroup }

// leave starts a goroutine that uses a transaction until that fails. It returns when the goroutine
// has used the transaction once.
func (g *busy) leave(tx pgx.Tx, use func(ctx context.Context, tx pgx.Tx) error) {
	begun := make(chan struct{})
	g.Go(func() {
		err := use(context.Background(), tx)
		close(begun)
		for err == nil {
			err = use(context.Background(), tx)
		}
	})
	<-begun
}

// A handler's goroutine goes on with the transaction after the handler returned. It gets an error.
// It disturbs neither the event's end nor the next event on the connection, and nothing panics. If it
// is in the middle of a result when the handler returns, the event has failed.
func TestAGoroutineThatKeepsTheTransactionDoesNoHarm(t *testing.T) {
	t.Parallel()
	for name, use := range uses {
		for _, batch := range []int{1, 5} {
			t.Run(fmt.Sprintf("%s, batch %d", name, batch), func(t *testing.T) {
				t.Parallel()
				b := newBench(t)
				b.exec("CREATE TABLE copied (n int)")
				sub := b.subscription("h")
				sub.Workers, sub.Batch, sub.Attempts, sub.Pause = 2, batch, 2, inbox.Pause{Off: true}
				sub.Schedule, sub.Attempts = postroom.Backoff{time.Millisecond}, 8
				var left busy
				b.in.Handle(sub, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
					if err := effect("h").Handle(ctx, tx, ev); err != nil {
						return err
					}
					left.leave(tx, use)
					return nil
				}))
				b.publish(ids("e", 10)...)
				b.run()
				b.eventually("each event to be done or dead", func() bool { return len(b.effects("h"))+b.dead("h") == 10 })
				left.Wait() // each goroutine got an error
				for id, n := range b.effects("h") {
					if n != 1 || b.held("h")["/shop "+id].State != "" {
						t.Errorf("%s took effect %d times, and is held: %+v", id, n, b.held("h")["/shop "+id])
					}
				}
				var other int
				err := b.pool.QueryRow(t.Context(), "SELECT count(*) FROM postroom.held WHERE failures::text !~ 'the results of a batch, open'").Scan(&other)
				if err != nil || other > 0 {
					t.Errorf("%d events failed for another reason, %v", other, err)
				}
			})
		}
	}
}

// The same goroutine of a handler that fails, that takes too long, or whose event was held.
func TestAGoroutineThatKeepsTheTransactionOfAFailedEventDoesNoHarm(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(ctx context.Context, left *busy, tx pgx.Tx) error{
		"fails": func(_ context.Context, left *busy, tx pgx.Tx) error {
			left.leave(tx, uses["statements"])
			return errors.New("no")
		},
		"panics": func(_ context.Context, left *busy, tx pgx.Tx) error {
			left.leave(tx, uses["rows"])
			panic("no")
		},
		"takes too long": func(_ context.Context, left *busy, tx pgx.Tx) error {
			left.Add(1)
			defer left.Done()
			for {
				if err := uses["statements"](context.Background(), tx); err != nil {
					return err
				}
			}
		},
		"returns late": func(ctx context.Context, left *busy, tx pgx.Tx) error {
			<-ctx.Done()
			left.leave(tx, uses["batches"])
			return ctx.Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			sub := b.subscription("h")
			sub.Workers, sub.Timeout, sub.Attempts, sub.Pause = 4, 500*time.Millisecond, 2, inbox.Pause{Off: true}
			sub.Schedule, sub.Attempts = postroom.Backoff{time.Millisecond}, 8
			var left busy
			b.in.Handle(sub, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
				if err := effect("h").Handle(ctx, tx, ev); err != nil || !strings.HasPrefix(ev.ID, "bad") {
					return err
				}
				return end(ctx, &left, tx)
			}))
			b.publish(append(ids("bad", 8), ids("good", 20)...)...)
			b.run()
			b.eventually("the bad events to be dead, and all others to take effect", func() bool { return b.dead("h") == 8 && len(b.effects("h")) == 20 })
			left.Wait()
			b.wantOnce("h", ids("good", 20)...)
		})
	}
}

// A goroutine of the handler waits in a statement that does not end. The inbox waits for it for a
// time, and then takes the connection away.
func TestAGoroutineInAStatementLosesTheConnection(t *testing.T) {
	t.Parallel()
	t.Run("a statement", func(t *testing.T) { t.Parallel(); goroutineInAStatement(t, asleep) })
	t.Run("the connection", func(t *testing.T) { t.Parallel(); goroutineInAStatement(t, copying) })
}

// asleep starts a goroutine that uses the transaction in a statement that does not end.
func asleep(ctx context.Context, b *bench, left *sync.WaitGroup, tx pgx.Tx) error {
	var pid int
	if err := tx.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&pid); err != nil {
		return err
	}
	left.Go(func() {
		if _, err := tx.Exec(context.Background(), "SELECT pg_sleep(600)"); err == nil {
			b.Error("the statement ended")
		}
		_, _ = b.pool.Exec(context.Background(), "SELECT pg_terminate_backend($1)", pid) // it does not notice that its client has gone
	})
	for asleep := false; !asleep; {
		if err := b.pool.QueryRow(ctx, "SELECT count(*) > 0 FROM pg_stat_activity WHERE pid = $1 AND wait_event = 'PgSleep'", pid).Scan(&asleep); err != nil {
			return err
		}
	}
	return nil
}

// copying starts a goroutine that uses the connection in a copy that does not end before the test.
func copying(_ context.Context, b *bench, left *sync.WaitGroup, tx pgx.Tx) error {
	conn, begun, row := tx.Conn(), make(chan struct{}), 0
	left.Go(func() {
		_, err := conn.CopyFrom(context.Background(), pgx.Identifier{"effect"}, []string{"event"}, pgx.CopyFromFunc(func() ([]any, error) {
			if row++; row == 1 {
				return []any{strings.Repeat("x", 1<<17)}, nil // more than pgx collects before it sends
			}
			close(begun)
			<-b.Context().Done()
			return nil, errors.New("the end")
		}))
		if err == nil {
			b.Error("the copy ended")
		}
	})
	<-begun
	return nil
}

func goroutineInAStatement(t *testing.T, leave func(ctx context.Context, b *bench, left *sync.WaitGroup, tx pgx.Tx) error) {
	t.Helper()
	b := newBenchOn(t, poolWith(t, func(cfg *pgxpool.Config) { cfg.MaxConns = 4 }), devtest.NATS(t))
	sub := b.subscription("h")
	sub.Workers, sub.Timeout, sub.Attempts, sub.Pause = 1, 2*time.Second, 1, inbox.Pause{Off: true}
	var left sync.WaitGroup
	b.in.Handle(sub, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		if err := effect("h").Handle(ctx, tx, ev); err != nil || !strings.HasPrefix(ev.ID, "bad") {
			return err
		}
		return leave(ctx, b, &left, tx)
	}))
	bad, good := ids("bad", 6), ids("good", 8) // more than there are connections
	b.publish(bad...)
	b.publish(good...)
	b.run()
	b.eventually("all to be decided, and the bad ones dead", func() bool { return b.ledger("h") == 14 && b.dead("h") == 6 })
	t.Cleanup(left.Wait)
	b.wantOnce("h", good...)
	var text string
	if err := b.pool.QueryRow(t.Context(), "SELECT failures::text FROM postroom.held WHERE event_id = 'bad000'").Scan(&text); err != nil || !strings.Contains(text, "goroutine") {
		t.Errorf("the failure is %s, %v", text, err)
	}
}

// Nobody sees what a handler does with the connection itself, or when it stops. So the connection
// serves no other transaction.
func TestAConnectionThatAHandlerGotIsClosed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var pid int
	b.in.Handle(b.subscription("h"), postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		if err := tx.Conn().QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&pid); err != nil {
			return err
		}
		return effect("h").Handle(ctx, tx, ev)
	}))
	b.publish("a")
	b.run()
	b.eventually("its end", func() bool { return b.counted("h", "done") == 1 })
	b.wantOnce("h", "a")
	b.eventually("the end of the connection", func() (gone bool) {
		err := b.pool.QueryRow(t.Context(), "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $1", pid).Scan(&gone)
		return err == nil && gone
	})
}

// Two goroutines of a handler use the transaction at once. One of them may get an error, and nothing
// panics.
func TestTwoGoroutinesUseTheTransactionAtOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.exec("CREATE TABLE copied (n int)")
	b.in.Handle(b.subscription("h"), postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		var both sync.WaitGroup
		for _, use := range []string{"statements", "savepoints", "rows", "batches", "copies"} {
			both.Go(func() {
				for range 20 {
					_ = uses[use](ctx, tx)
				}
			})
		}
		both.Wait()
		return effect("h").Handle(ctx, tx, ev)
	}))
	b.publish(ids("e", 10)...)
	b.run()
	b.eventually("each event to be done or held", func() bool { return len(b.effects("h"))+len(b.held("h")) == 10 })
}
