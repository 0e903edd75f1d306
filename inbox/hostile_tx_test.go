package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
)

// A handler makes its transaction read-only, and so prevents the inbox from writing its own rows in
// it. That is a failure of this event, and no outage: other events go on.
func TestATransactionThatAHandlerMadeReadOnlyIsNoOutage(t *testing.T) {
	t.Parallel()
	for _, batch := range []int{1, 5} {
		t.Run(fmt.Sprintf("batch %d", batch), func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			sub := b.subscription("h")
			sub.Workers, sub.Batch, sub.Attempts, sub.Schedule, sub.Pause = 1, batch, 2, postroom.Backoff{time.Millisecond}, inbox.Pause{Off: true}
			b.in.Handle(sub, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
				switch ev.ID {
				case "a bad":
					return errors.New("no")
				case "b reads":
					_, err := tx.Exec(ctx, "SET TRANSACTION READ ONLY")
					return err
				case "c reads, with a result":
					postroom.SetResult(ctx, "nothing was to be done")
					_, err := tx.Exec(ctx, "SET TRANSACTION READ ONLY")
					return err
				}
				return effect("h").Handle(ctx, tx, ev)
			}))
			b.publish("a bad", "b reads")
			b.run()
			b.eventually("the bad event to be dead", func() bool { return b.dead("h") == 1 })
			b.publish("c reads, with a result")
			b.publish("d good")
			b.eventually("the others to be decided", func() bool { return b.ledger("h") == 4 && b.dead("h") == 2 && len(b.effects("h")) == 1 })
		})
	}
}

// A handler uses a context that has ended, and goes on without the statement. Then the connection
// breaks. That costs no attempt.
func TestAConnectionThatBreaksAfterAnEndedContextCostsNoAttempt(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	sub := b.subscription("h")
	sub.Attempts = 1
	var runs atomic.Int32
	b.in.Handle(sub, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		if runs.Add(1) == 1 {
			ended, cancel := context.WithCancel(ctx)
			cancel()
			_, _ = tx.Exec(ended, "SELECT 1") // is not sent
			_ = tx.Conn().PgConn().Conn().Close()
		}
		return effect("h").Handle(ctx, tx, ev)
	}))
	b.publish("1")
	b.run()
	b.eventually("the event to be decided", func() bool { return b.ledger("h") == 1 })
	b.wantOnce("h", "1")
}

// What a handler prepares, or sends through a rewriter of its own, does not reach the next event on the
// connection.
func TestWhatThePoolKeepsDoesNotReachTheNextEvent(t *testing.T) {
	t.Parallel()
	kept := &keeper{conns: map[*pgx.Conn]bool{}}
	odd := map[string]func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error{
		"one name for different statements": func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
			_, err := tx.Prepare(ctx, "put", "SELECT '"+ev.ID+"'")
			return err
		},
		"a setting of a rewriter": func(ctx context.Context, tx pgx.Tx, _ postroom.Event) error {
			var path string
			if err := tx.QueryRow(ctx, "SHOW search_path").Scan(&path); err != nil {
				return err
			}
			if path == "nowhere, public" {
				return errors.New("the search_path of another event")
			}
			_, err := tx.Exec(ctx, "path", pgx.QueryExecModeExec, rewriter("SET search_path = nowhere, public"))
			return err
		},
		"a connection that a rewriter got": func(ctx context.Context, tx pgx.Tx, _ postroom.Event) error {
			_, err := tx.Exec(ctx, "", kept)
			return err
		},
	}
	for name, do := range odd {
		for _, batch := range []int{1, 5} {
			t.Run(fmt.Sprintf("%s, batch %d", name, batch), func(t *testing.T) {
				t.Parallel()
				b := newBench(t)
				sub := b.subscription("h")
				sub.Workers, sub.Batch, sub.Attempts, sub.Schedule, sub.Pause = 1, batch, 1, postroom.Backoff{time.Millisecond}, inbox.Pause{Off: true}
				b.in.Handle(sub, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
					return errors.Join(do(ctx, tx, ev), effect("h").Handle(ctx, tx, ev))
				}))
				b.publish("1", "2", "3", "4", "5", "6")
				b.run()
				b.eventually("all to be decided", func() bool { return b.ledger("h") == 6 })
				b.wantOnce("h", "1", "2", "3", "4", "5", "6")
			})
		}
	}
}

// rewriter is a rewriter that replaces the text of a statement.
type rewriter string

func (r rewriter) RewriteQuery(context.Context, *pgx.Conn, string, []any) (string, []any, error) {
	return string(r), nil, nil
}

// keeper is a rewriter that keeps the connection.
type keeper struct {
	mu    sync.Mutex
	conns map[*pgx.Conn]bool
}

func (k *keeper) RewriteQuery(_ context.Context, conn *pgx.Conn, _ string, _ []any) (string, []any, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.conns[conn] {
		return "", nil, errors.New("another event has the connection that was kept")
	}
	k.conns[conn] = true
	return "SELECT 1", nil, nil
}

// An event makes the transaction read-only in which it runs together with the event before it. The
// event before it is not blamed.
func TestAReadOnlyTransactionOfAKeyIsBlamedOnItsCause(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	sub := b.subscription("h")
	sub.Order, sub.Attempts, sub.Schedule, sub.Pause = inbox.HoldKey, 3, postroom.Backoff{time.Millisecond}, inbox.Pause{Off: true}
	var open atomic.Bool
	b.in.Handle(sub, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		if !open.Load() {
			return postroom.RetryAfter(200*time.Millisecond, postroom.Snooze(200*time.Millisecond, errors.New("closed")))
		}
		if ev.ID == "2" {
			_, err := tx.Exec(ctx, "SET TRANSACTION READ ONLY")
			return err
		}
		return effect("h").Handle(ctx, tx, ev)
	}))
	for _, id := range []string{"1", "2", "3"} {
		b.publishEvent(postroom.Event{ID: id, Source: "/shop", Type: b.stream + ".placed", Key: "k", ContentType: "application/json"})
	}
	b.run()
	b.eventually("all to be held", func() bool { return len(b.held("h")) == 3 })
	open.Store(true)
	b.eventually("the first to be done, and the second to be dead", func() bool { return b.dead("h") == 1 && len(b.held("h")) == 2 })
	b.wantOnce("h", "1")
}

// A handler sets formats and an encoding of its own for its transaction. The inbox reads the next
// event of the key in the same transaction, and notes the result, as if it had not.
func TestAHandlersFormatsAreItsOwn(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			pool := poolWith(t, func(cfg *pgxpool.Config) { cfg.ConnConfig.DefaultQueryExecMode, cfg.MaxConns = mode, 14 })
			b := newBenchOn(t, pool, devtest.NATS(t))
			sub := b.subscription("h")
			sub.Order, sub.Attempts, sub.Schedule, sub.Pause = inbox.HoldKey, 1, postroom.Backoff{time.Millisecond}, inbox.Pause{Off: true}
			var open atomic.Bool
			b.in.Handle(sub, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
				if ev.ID == "another" { // which has no result
					return errors.Join(effect("h").Handle(ctx, tx, ev), settings(ctx, tx))
				}
				if !open.Load() {
					return postroom.Snooze(200*time.Millisecond, errors.New("closed"))
				}
				if ev.Headers["who"] != "Zoë" {
					return fmt.Errorf("the header is %q", ev.Headers["who"])
				}
				postroom.SetResult(ctx, "greeted Zoë")
				return errors.Join(effect("h").Handle(ctx, tx, ev), settings(ctx, tx))
			}))
			for _, id := range []string{"1", "2", "3"} {
				b.publishEvent(postroom.Event{ID: id, Source: "/shop", Type: b.stream + ".placed", Key: "k", ContentType: "application/json", Headers: map[string]string{"who": "Zoë"}})
			}
			b.publish("another")
			b.run()
			b.eventually("all to be held", func() bool { return len(b.held("h")) == 3 && len(b.effects("h")) == 1 })
			open.Store(true)
			b.eventually("all to be decided", func() bool { return len(b.held("h")) == b.dead("h") })
			b.wantOnce("h", "another", "1", "2", "3")
			var noted int
			if err := b.pool.QueryRow(t.Context(), "SELECT count(*) FROM postroom.inbox WHERE result = 'greeted Zoë'").Scan(&noted); err != nil || noted != 3 {
				t.Errorf("%d results, %v; want 3", noted, err)
			}
		})
	}
}

func settings(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, "SET LOCAL client_encoding = 'LATIN1'; SET LOCAL DateStyle = 'German'; SET LOCAL IntervalStyle = 'sql_standard'; SET LOCAL bytea_output = 'escape'; SET LOCAL TimeZone = 'Asia/Kolkata'")
	return err
}
