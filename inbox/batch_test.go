package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
)

// batched returns a subscription of one worker, so that waiting events form one batch.
func (b *bench) batched(n int) inbox.Subscription {
	sub := b.subscription("h")
	sub.Workers, sub.Batch = 1, n
	return sub
}

func ids(prefix string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("%s%03d", prefix, i)
	}
	return all
}

// A batch is one transaction: its events carry one transaction id.
func TestABatchIsOneTransaction(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.exec("ALTER TABLE effect ADD COLUMN xid xid8 DEFAULT pg_current_xact_id()")
	b.in.Handle(b.batched(100), effect("h"))
	want := ids("e", 300)
	b.publish(want...)
	b.run()
	b.eventually("all effects", func() bool { return len(b.effects("h")) == len(want) })
	b.drained()
	b.wantOnce("h", want...)
	var transactions int
	if err := b.pool.QueryRow(t.Context(), "SELECT count(DISTINCT xid) FROM effect").Scan(&transactions); err != nil {
		t.Fatal(err)
	}
	if transactions > 30 { // the first event may come before the others
		t.Errorf("%d transactions for 300 events in batches of 100", transactions)
	}
}

// If an event of a batch fails, the transaction that commits the others also holds it. What
// the handler wrote for it is undone.
func TestFailedEventOfABatchIsHeldWithTheOthersCommit(t *testing.T) {
	t.Parallel()
	wrong := errors.New("wrong")
	for name, fail := range map[string]func(ctx context.Context, tx pgx.Tx) error{
		"an error before any statement": func(context.Context, pgx.Tx) error { return wrong },
		"an error after an effect":      func(ctx context.Context, tx pgx.Tx) error { return errors.Join(insert(ctx, tx, "bad"), wrong) },
		"a statement": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "SELECT 1 / $1::int", 0)
			return err
		},
		"a query": func(ctx context.Context, tx pgx.Tx) error {
			return tx.QueryRow(ctx, "SELECT 1 / $1::int", 0).Scan(new(int))
		},
		"a batch": func(ctx context.Context, tx pgx.Tx) error {
			rows := &pgx.Batch{}
			rows.Queue("INSERT INTO effect (handler, event) VALUES ('h', 'bad')")
			rows.Queue("SELECT 1 / $1::int", 0)
			return tx.SendBatch(ctx, rows).Close()
		},
		"a copy": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.CopyFrom(ctx, pgx.Identifier{"effect"}, []string{"handler", "nothing"}, pgx.CopyFromRows([][]any{{"h", "bad"}}))
			return err
		},
		"a savepoint of its own": func(ctx context.Context, tx pgx.Tx) error {
			return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { return errors.Join(insert(ctx, tx, "bad"), wrong) })
		},
		"several statements in one text": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "INSERT INTO effect (handler, event) VALUES ('h', 'bad'); SELECT 1/0")
			return err
		},
		"a statement of an unknown table": func(ctx context.Context, tx pgx.Tx) error { // the server refuses to prepare it
			_, err := tx.Exec(ctx, "INSERT INTO nowhere VALUES ($1)", 1)
			return err
		},
		"a statement that is no SQL": func(ctx context.Context, tx pgx.Tx) error {
			return tx.QueryRow(ctx, "SELEKT $1", 1).Scan(new(int))
		},
		"a named argument that is missing": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "INSERT INTO effect (handler, event) VALUES (@handler, @event)", pgx.StrictNamedArgs{"handler": "h"})
			return err
		},
		"an argument that cannot be encoded": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "INSERT INTO checked VALUES ($1)", make(chan int))
			return err
		},
		"a context that has ended": func(ctx context.Context, tx pgx.Tx) error {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			_, err := tx.Exec(ctx, "INSERT INTO effect (handler, event) VALUES ('h', 'bad')")
			return fmt.Errorf("with the context of a request: %v", err) //nolint:errorlint // a cancelled context of the handler's own is a failure like others
		},
		"a savepoint with a context that has ended": func(ctx context.Context, tx pgx.Tx) error {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			_, err := tx.Begin(ctx)
			return err
		},
		"a panic": func(context.Context, pgx.Tx) error { panic("no") },
		"rows that are not closed": func(ctx context.Context, tx pgx.Tx) error {
			if _, err := tx.Query(ctx, "SELECT n FROM generate_series(1, $1::int) n", 100000); err != nil {
				return err
			}
			return wrong
		},
		"a savepoint that is left open": func(ctx context.Context, tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "SAVEPOINT mine"); err != nil {
				return err
			}
			return errors.Join(insert(ctx, tx, "bad"), wrong)
		},
		"a constraint at the commit": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "INSERT INTO checked VALUES ($1), ($1)", 1)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.exec("CREATE TABLE checked (id int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
			sub := b.batched(20)
			sub.Attempts = 1
			b.in.Handle(sub, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
				if strings.HasPrefix(ev.ID, "bad") {
					return fail(ctx, tx)
				}
				return insert(ctx, tx, ev.ID)
			}))
			first, second, last := ids("a", 10), ids("b", 10), ids("c", 10)
			b.publish(first...)
			b.publish("bad 1") // one between good ones, and then two in a row
			b.publish(second...)
			b.publish("bad 2", "bad 3")
			b.publish(last...)
			b.run()
			b.eventually("all to be decided", func() bool { return b.ledger("h") == 33 })
			b.drained()
			b.wantOnce("h", slices.Concat(first, second, last)...)
			if got := b.dead("h"); got != 3 {
				t.Errorf("%d are dead, want 3: %+v", got, b.held("h"))
			}
		})
	}
}

func insert(ctx context.Context, tx pgx.Tx, event string) error {
	_, err := tx.Exec(ctx, "INSERT INTO effect (handler, event) VALUES ('h', $1)", event)
	return err
}

// A batch may have repeated events beside new ones.
func TestDuplicatesInABatch(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.in.Handle(b.batched(50), effect("h"))
	want := ids("e", 100)
	b.publish(want...)
	b.publish(want...)
	b.publish(want[:50]...)
	b.run()
	b.eventually("all to be answered", func() bool { return b.counted("h", "done") == 100 && b.counted("h", "duplicate") == 150 })
	b.drained()
	b.wantOnce("h", want...)
}

// The events of a key go to one worker, in their order.
func TestABatchKeepsTheOrderOfAKey(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	sub := b.batched(10)
	sub.Workers = 4
	var mu sync.Mutex
	last := map[string]int{}
	b.in.Handle(sub, postroom.HandlerFunc(func(_ context.Context, _ pgx.Tx, ev postroom.Event) error {
		mu.Lock()
		defer mu.Unlock()
		var n int
		if err := ev.JSON(&n); err != nil {
			return err
		}
		if n <= last[ev.Key] {
			t.Errorf("event %d of key %s took effect after %d", n, ev.Key, last[ev.Key])
		}
		last[ev.Key] = n
		return nil
	}))
	for i := range 300 {
		b.publishEvent(postroom.Event{
			ID: fmt.Sprint(i), Source: "/shop", Type: b.stream + ".placed", Key: fmt.Sprint(i % 7), Data: []byte(fmt.Sprint(i + 1)),
		})
	}
	b.run()
	b.eventually("all to be done", func() bool { return b.counted("h", "done") == 300 })
}

// Two transactions wait for each other's rows. The server ends one of them, and the inbox splits
// its batch.
func TestDeadlocksSplitABatch(t *testing.T) {
	t.Parallel()
	b := newBenchOn(t, devtest.Pool(t), devtest.NATS(t))
	b.exec("CREATE TABLE counter (id int PRIMARY KEY, n int NOT NULL DEFAULT 0)")
	b.exec("INSERT INTO counter SELECT n FROM generate_series(0, 4) n")
	b.exec(fmt.Sprintf("ALTER DATABASE %s SET deadlock_timeout = '10ms'", b.pool.Config().ConnConfig.Database))
	b.pool.Reset() // for new connections
	sub := b.batched(20)
	sub.Workers = 4
	b.in.Handle(sub, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		var n int
		if err := ev.JSON(&n); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "UPDATE counter SET n = n + 1 WHERE id = $1", n*7%5) // in no order, so that transactions lock the rows in different orders
		return err
	}))
	for i := range 400 {
		b.publishEvent(postroom.Event{ID: fmt.Sprint(i), Source: "/shop", Type: b.stream + ".placed", Data: []byte(fmt.Sprint(i))})
	}
	b.run()
	b.eventually("all to be done", func() bool { return b.counted("h", "done") == 400 })
	b.eventually("a deadlock in the statistics", func() bool {
		var n int
		err := b.pool.QueryRow(t.Context(), "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").Scan(&n)
		return err == nil && n > 0
	})
	var sum int
	if err := b.pool.QueryRow(t.Context(), "SELECT sum(n) FROM counter").Scan(&sum); err != nil {
		t.Fatal(err)
	}
	if held := b.held("h"); sum != 400 || len(held) > 0 {
		t.Errorf("the sum is %d, want 400; held: %v", sum, held)
	}
}
