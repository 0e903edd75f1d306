package inbox_test

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"strings"
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

// poolWith returns a pool with a changed config, on a database for this test alone.
func poolWith(t *testing.T, change func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(lentPool(t).Config().ConnString())
	if err != nil {
		t.Fatal(err)
	}
	change(cfg)
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func TestTheHandlersTransaction(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	sub := b.subscription("h")
	sub.Isolation, sub.Attempts = pgx.Serializable, 1
	b.in.Handle(sub, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		if err := tx.Commit(ctx); !errors.Is(err, inbox.ErrTxOwned) {
			t.Errorf("Commit = %v", err)
		}
		if err := tx.Rollback(ctx); !errors.Is(err, inbox.ErrTxOwned) {
			t.Errorf("Rollback = %v", err)
		}
		var level, locks, idle string
		err := tx.QueryRow(ctx, `SELECT current_setting('transaction_isolation'), current_setting('lock_timeout'),
			current_setting('idle_in_transaction_session_timeout')`).Scan(&level, &locks, &idle)
		if level != "serializable" || locks != "5s" || idle != "35s" || err != nil {
			t.Errorf("isolation %s, lock timeout %s, idle timeout %s, %v", level, locks, idle, err)
		}
		large := tx.LargeObjects()
		oid, err := large.Create(ctx, 0)
		if err != nil {
			return err
		}
		if err := large.Unlink(ctx, oid); err != nil {
			return err
		}
		_ = pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { // the savepoint undoes this
			return errors.Join(effect("h").Handle(ctx, tx, postroom.Event{ID: "undone"}), errors.New("no"))
		})
		return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { return effect("h").Handle(ctx, tx, ev) })
	}))
	b.publish("a")
	b.run()
	b.eventually("its decision", func() bool { return b.ledger("h") == 1 })
	b.wantOnce("h", "a")
	if held := b.held("h"); len(held) > 0 {
		t.Errorf("held: %v", held)
	}
}

// A goroutine of a handler may keep the transaction. After the handler has returned, the
// transaction does nothing, because another event may have the connection.
func TestATransactionIsOverWhenItsHandlerReturned(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	kept := make(chan pgx.Tx, 1)
	b.in.Handle(b.subscription("h"), postroom.HandlerFunc(func(_ context.Context, tx pgx.Tx, _ postroom.Event) error {
		kept <- tx
		return nil
	}))
	b.publish("a")
	b.run()
	tx := <-kept
	b.eventually("its end", func() bool { return b.counted("h", "done") == 1 })
	if _, err := tx.Exec(t.Context(), "INSERT INTO effect (handler, event) VALUES ('h', 'a')"); !errors.Is(err, pgx.ErrTxClosed) {
		t.Errorf("Exec = %v, want ErrTxClosed", err)
	}
	b.wantOnce("h")
}

// The same holds for a savepoint of the transaction. The next event's transaction may be on the
// same connection at once.
func TestASavepointIsOverWhenItsHandlerReturned(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	sub := b.subscription("h")
	sub.Workers = 1 // its transactions follow each other on one connection
	var kept pgx.Tx
	b.in.Handle(sub, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		if kept != nil {
			_, err := kept.Exec(ctx, "INSERT INTO effect (handler, event) VALUES ('leak', $1)", ev.ID)
			if !errors.Is(err, pgx.ErrTxClosed) {
				t.Errorf("Exec of an earlier event's savepoint = %v, want ErrTxClosed", err)
			}
		}
		var err error
		if kept, err = tx.Begin(ctx); err != nil {
			return err
		}
		return effect("h").Handle(ctx, tx, ev)
	}))
	b.publish(ids("e", 20)...)
	b.run()
	b.eventually("all effects", func() bool { return len(b.effects("h")) == 20 })
	b.wantOnce("leak")
}

// roundTrips counts what a pool sends: a batch is one round trip.
type roundTrips struct{ queries, batches atomic.Int64 }

func (r *roundTrips) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if strings.Contains(data.SQL, "effect") || data.SQL == "commit" {
		r.queries.Add(1)
	}
	return ctx
}
func (r *roundTrips) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
func (r *roundTrips) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	for _, q := range data.Batch.QueuedQueries {
		if strings.Contains(q.SQL, "INSERT INTO postroom.inbox") {
			r.batches.Add(1)
		}
	}
	return ctx
}
func (r *roundTrips) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (r *roundTrips) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// BEGIN and the inbox row are one round trip, and the handler's statement is another. If a
// delivery waits behind this one, its BEGIN travels with the COMMIT.
func TestADeliveryIsTwoRoundTrips(t *testing.T) {
	t.Parallel()
	trips := &roundTrips{}
	b := newBenchOn(t, poolWith(t, func(cfg *pgxpool.Config) { cfg.ConnConfig.Tracer, cfg.MaxConns = trips, 10 }), devtest.NATS(t))
	sub := b.subscription("h")
	sub.Workers = 1
	b.in.Handle(sub, effect("h"))
	b.publish(ids("e", 100)...)
	trips.queries.Store(0)
	b.run()
	b.eventually("all to be done", func() bool { return b.counted("h", "done") == 100 })
	b.wantOnce("h", ids("e", 100)...)
	// A few commits have no delivery behind them, or belong to housekeeping.
	if q, n := trips.queries.Load(), trips.batches.Load(); q < 100 || q > 140 || n != 100 {
		t.Errorf("%d statements and %d batches for 100 events, want 100 and few more, and 100", q, n)
	}
}

// cutter is a connection that sends its first COMMIT, or another statement, and loses the answer.
type cutter struct {
	net.Conn

	of   string // the statement; empty: COMMIT
	off  atomic.Bool
	once *sync.Once
	cut  atomic.Bool
	name string // of the prepared statement
}

func (c *cutter) Write(p []byte) (int, error) {
	text := string(p)
	of := cmp.Or(c.of, "COMMIT")
	before, _, prepares := strings.Cut(text, "\x00"+of+"\x00")
	switch {
	case prepares:
		c.name = before[strings.LastIndexByte(before, 0)+1:]
		c.name = c.name[max(strings.Index(c.name, "stmtcache"), 0):]
	case c.off.Load():
	case strings.Contains(text, strings.ToLower(of)+"\x00"), c.name != "" && strings.Contains(text, c.name+"\x00"):
		c.once.Do(func() { c.cut.Store(true) })
	}
	return c.Conn.Write(p)
}

func (c *cutter) Read(p []byte) (int, error) {
	if !c.cut.Load() {
		return c.Conn.Read(p)
	}
	if _, err := c.Conn.Read(p); err != nil { // the answer: the transaction is committed
		return 0, err
	}
	return 0, errors.Join(io.ErrUnexpectedEOF, c.Close())
}

// A commit took effect, and its answer was lost. The next attempt finds the inbox row, or no
// held event.
func TestCommitWithALostAnswerCountsOnce(t *testing.T) {
	t.Parallel()
	for _, from := range []string{"stream", "batch", "held"} {
		t.Run(from, func(t *testing.T) {
			t.Parallel()
			once := &sync.Once{}
			var armed atomic.Bool
			pool := poolWith(t, func(cfg *pgxpool.Config) {
				cfg.MaxConns = 10
				cfg.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
					conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
					if err != nil || !armed.Load() {
						return conn, err
					}
					return &cutter{Conn: conn, once: once}, nil
				}
			})
			b := newBenchOn(t, pool, devtest.NATS(t))
			if from == "held" {
				b.holdOne("h")
				b.exec("UPDATE postroom.held SET next_at = now()")
			}
			sub := b.subscription("h")
			if from == "batch" {
				sub.Workers, sub.Batch = 1, 10
			}
			b.in.Handle(sub, effect("h"))
			if from != "held" {
				b.publish("bad", "a", "b", "c")
			}
			armed.Store(true)
			pool.Reset()
			b.run()
			b.eventually("no event to be held", func() bool { return len(b.effects("h")) > 0 && len(b.held("h")) == 0 })
			b.drained()
			for id, n := range b.effects("h") {
				if n != 1 {
					t.Errorf("%s took effect %d times", id, n)
				}
			}
			if got := b.counted("h", "held"); got != 0 {
				t.Errorf("%d attempts were spent", got)
			}
			fired := true
			once.Do(func() { fired = false })
			if !fired {
				t.Error("no answer was lost: the test shows nothing")
			}
		})
	}
}

// If a handler ignores its context, the inbox abandons it with its transaction. Its worker and
// its place in the pool are free again.
func TestHandlersThatDoNotReturnAreLeftBehind(t *testing.T) {
	t.Parallel()
	b := newBenchOn(t, poolWith(t, func(cfg *pgxpool.Config) { cfg.MaxConns = 4 }), devtest.NATS(t))
	sub := b.subscription("h")
	sub.Workers, sub.Timeout, sub.Attempts = 1, 500*time.Millisecond, 3 // a good one may be slow once on a busy machine
	stuck := make(chan struct{})
	t.Cleanup(func() { close(stuck) })
	b.in.Handle(sub, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		if err := effect("h").Handle(ctx, tx, ev); err != nil || !strings.HasPrefix(ev.ID, "bad") {
			return err
		}
		<-stuck
		return nil
	}))
	bad, good := ids("bad", 5), ids("good", 8) // more than there are connections
	b.publish(bad...)
	b.publish(good...)
	b.run()
	b.eventually("all to be decided, and the bad ones dead", func() bool { return b.ledger("h") == 13 && b.dead("h") == 5 })
	b.drained()
	b.wantOnce("h", good...)
}

// While an event runs alone, for however long, no worker keeps a transaction open.
func TestNoTransactionWaitsForAnEventThatRunsAlone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.holdOne("alone")
	b.exec("UPDATE postroom.held SET solitary = true, next_at = now()")
	entered, resume := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(resume) })
	b.in.Handle(b.subscription("alone"), postroom.HandlerFunc(func(_ context.Context, _ pgx.Tx, ev postroom.Event) error {
		if ev.ID == "bad" {
			close(entered)
			<-resume
		}
		return nil
	}))
	sub := b.subscription("h")
	sub.Workers = 2
	b.in.Handle(sub, effect("h"))
	many := append(ids("e", 500), "bad") // which is in the stream already
	b.publish(many[:500]...)
	b.run()
	t.Cleanup(release)
	<-entered
	b.eventually("the event's own transaction to be the only one", func() bool {
		var n int
		err := b.pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND state LIKE 'idle in transaction%'`).Scan(&n)
		return err == nil && n == 1
	})
	release()
	b.eventually("all effects", func() bool { return len(b.effects("h")) == len(many) })
	b.wantOnce("h", many...)
}
