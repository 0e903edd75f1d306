package behaviours

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/devtest"
)

// fault is a way in which a handler fails.
type fault struct {
	name string
	says string // a part of the failure that the event must have been recorded with
	fail func(ctx context.Context, tx pgx.Tx, handler, id string) error
	last bool // there is no further attempt

	commits bool // the handler ends the transaction itself
}

var errOwn = errors.New("the shop is closed")

// angry is an error whose method panics.
type angry struct{}

func (angry) Error() string { panic("no text") }

// faults are the ways of bad events.
var faults = []fault{
	{name: "an error at once", says: "the shop is closed", fail: func(context.Context, pgx.Tx, string, string) error { return errOwn }},
	{name: "an error after the effect", says: "the shop is closed", fail: func(ctx context.Context, tx pgx.Tx, handler, id string) error {
		return errors.Join(exec(ctx, tx, insert, handler, id), errOwn)
	}},
	{name: "an error after the effect of a copy", says: "the shop is closed", fail: func(ctx context.Context, tx pgx.Tx, handler, id string) error {
		_, err := tx.CopyFrom(ctx, pgx.Identifier{"effect"}, []string{"handler", "event"}, pgx.CopyFromRows([][]any{{handler, id}}))
		return errors.Join(err, errOwn)
	}},
	{name: "an error after the effect of the connection", says: "the shop is closed", fail: func(ctx context.Context, tx pgx.Tx, handler, id string) error {
		_, err := tx.Conn().Exec(ctx, insert, handler, id)
		return errors.Join(err, errOwn)
	}},
	{name: "an error in a nested transaction that stays open", says: "the shop is closed", fail: func(ctx context.Context, tx pgx.Tx, handler, id string) error {
		nested, err := tx.Begin(ctx)
		if err != nil {
			return err
		}
		return errors.Join(exec(ctx, nested, insert, handler, id), errOwn)
	}},
	{name: "a permanent error", last: true, says: "the shop is closed", fail: func(ctx context.Context, tx pgx.Tx, handler, id string) error {
		return errors.Join(exec(ctx, tx, insert, handler, id), postroom.Permanent(errOwn))
	}},
	{name: "an error with a wait", says: "the shop is closed", fail: func(context.Context, pgx.Tx, string, string) error {
		return postroom.RetryAfter(15*time.Millisecond, errOwn)
	}},
	{name: "a long error", says: "xxxxxxxx", fail: func(context.Context, pgx.Tx, string, string) error {
		return errors.New(strings.Repeat("x", 1<<20))
	}},
	{name: "an error whose method panics", says: "no text", fail: func(context.Context, pgx.Tx, string, string) error { return angry{} }},
	{name: "an unknown table", says: "nowhere", fail: func(ctx context.Context, tx pgx.Tx, _, _ string) error {
		return exec(ctx, tx, "INSERT INTO nowhere VALUES ($1)", 1)
	}},
	{name: "an unknown table after the effect", says: "nowhere", fail: func(ctx context.Context, tx pgx.Tx, handler, id string) error {
		return errors.Join(exec(ctx, tx, insert, handler, id), exec(ctx, tx, "INSERT INTO nowhere VALUES ($1)", 1))
	}},
	{name: "an unknown column", says: "colour", fail: func(ctx context.Context, tx pgx.Tx, _, _ string) error {
		return tx.QueryRow(ctx, "SELECT colour FROM effect WHERE n = $1", 1).Scan(new(string))
	}},
	{name: "no SQL", says: "SELEKT", fail: func(ctx context.Context, tx pgx.Tx, _, _ string) error {
		return exec(ctx, tx, "SELEKT $1", 1)
	}},
	{name: "no SQL in a batch", says: "SELEKT", fail: func(ctx context.Context, tx pgx.Tx, handler, id string) error {
		b := &pgx.Batch{}
		b.Queue(insert, handler, id)
		b.Queue("SELEKT $1", 1)
		return tx.SendBatch(ctx, b).Close()
	}},
	{name: "a named argument that is missing", says: "StrictNamedArgs", fail: func(ctx context.Context, tx pgx.Tx, handler, _ string) error {
		return exec(ctx, tx, "INSERT INTO effect (handler, event) VALUES (@handler, @event)", pgx.StrictNamedArgs{"handler": handler})
	}},
	{name: "an argument that cannot be encoded", says: "encode", fail: func(ctx context.Context, tx pgx.Tx, _, id string) error {
		return exec(ctx, tx, insert, make(chan int), id)
	}},
	{name: "a context that has ended", says: "the caller went away", fail: func(ctx context.Context, tx pgx.Tx, handler, id string) error {
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		return fmt.Errorf("the caller went away: %v", exec(ctx, tx, insert, handler, id)) //nolint:errorlint // as users do
	}},
	{name: "a context that has ended, wrapped", says: "the caller went away", fail: func(ctx context.Context, tx pgx.Tx, handler, id string) error {
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		return fmt.Errorf("the caller went away: %w", exec(ctx, tx, insert, handler, id))
	}},
	{name: "a context that ends in a statement", says: "too slow", fail: func(ctx context.Context, tx pgx.Tx, _, _ string) error {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
		defer cancel()
		return fmt.Errorf("too slow: %w", exec(ctx, tx, "SELECT pg_sleep(10)"))
	}},
	{name: "a context that ends in a statement, not wrapped", says: "too slow", fail: func(ctx context.Context, tx pgx.Tx, _, _ string) error {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
		defer cancel()
		return fmt.Errorf("too slow: %v", exec(ctx, tx, "SELECT pg_sleep(10)")) //nolint:errorlint // as users do
	}},
	{name: "no time left", says: "deadline", fail: func(ctx context.Context, tx pgx.Tx, handler, id string) error {
		if err := exec(ctx, tx, insert, handler, id); err != nil {
			return err
		}
		<-ctx.Done()
		return ctx.Err()
	}},
	{name: "no time left, not wrapped", says: "no time", fail: func(ctx context.Context, _ pgx.Tx, _, _ string) error {
		<-ctx.Done()
		return fmt.Errorf("no time: %v", ctx.Err()) //nolint:errorlint // as users do
	}},
	{name: "no time left in a statement", says: "sleeping", fail: func(ctx context.Context, tx pgx.Tx, _, _ string) error {
		return fmt.Errorf("sleeping: %w", exec(ctx, tx, "SELECT pg_sleep(60)"))
	}},
	{name: "no time left in a statement, not wrapped", says: "sleeping", fail: func(ctx context.Context, tx pgx.Tx, _, _ string) error {
		return fmt.Errorf("sleeping: %v", exec(ctx, tx, "SELECT pg_sleep(60)")) //nolint:errorlint // as users do
	}},
	{name: "a panic", says: "out of stock", fail: func(ctx context.Context, tx pgx.Tx, handler, id string) error {
		_ = exec(ctx, tx, insert, handler, id)
		panic("out of stock")
	}},
	{name: "a panic with an error whose method panics", says: "", fail: func(context.Context, pgx.Tx, string, string) error { panic(angry{}) }},
	{name: "a nil pointer", says: "nil pointer", fail: func(context.Context, pgx.Tx, string, string) error {
		var ev *postroom.Event
		return errors.New(ev.ID)
	}},
	{name: "runtime.Goexit", says: "Goexit", fail: func(ctx context.Context, tx pgx.Tx, handler, id string) error {
		_ = exec(ctx, tx, insert, handler, id)
		runtime.Goexit()
		return nil
	}},
	{name: "ROLLBACK", says: "its own statement", fail: func(ctx context.Context, tx pgx.Tx, handler, id string) error {
		return errors.Join(exec(ctx, tx, insert, handler, id), exec(ctx, tx, "ROLLBACK"))
	}},
	{name: "ROLLBACK AND CHAIN", says: "its own statement", fail: func(ctx context.Context, tx pgx.Tx, handler, id string) error {
		return errors.Join(exec(ctx, tx, insert, handler, id), exec(ctx, tx, "ROLLBACK AND CHAIN"))
	}},
	{name: "COMMIT", last: true, commits: true, says: "COMMIT itself", fail: func(ctx context.Context, tx pgx.Tx, _, _ string) error { return exec(ctx, tx, "COMMIT") }},
	{name: "COMMIT AND CHAIN", last: true, commits: true, says: "COMMIT itself", fail: func(ctx context.Context, tx pgx.Tx, _, _ string) error {
		return exec(ctx, tx, "COMMIT AND CHAIN")
	}},
	{name: "a lock timeout", says: "lock timeout", fail: func(ctx context.Context, tx pgx.Tx, handler, id string) error {
		return errors.Join(exec(ctx, tx, insert, handler, id), exec(ctx, tx, "SET LOCAL lock_timeout = '1ms'"), exec(ctx, tx, "UPDATE locked SET id = id"))
	}},
	{name: "a serialization failure", says: "40001", fail: func(ctx context.Context, tx pgx.Tx, handler, id string) error {
		return errors.Join(exec(ctx, tx, insert, handler, id), exec(ctx, tx, "DO $$ BEGIN RAISE 'again' USING ERRCODE = '40001'; END $$"))
	}},
	{name: "a constraint", says: "23505", fail: func(ctx context.Context, tx pgx.Tx, handler, id string) error {
		return errors.Join(exec(ctx, tx, insert, handler, id), exec(ctx, tx, "INSERT INTO one VALUES (1), (1)"))
	}},
	{name: "a constraint at the commit", says: "23505", fail: func(ctx context.Context, tx pgx.Tx, handler, id string) error {
		return errors.Join(exec(ctx, tx, insert, handler, id), exec(ctx, tx, "INSERT INTO late VALUES (1), (1)"))
	}},
	{name: "a connection that the server ends", says: "", fail: func(ctx context.Context, tx pgx.Tx, handler, id string) error {
		return errors.Join(exec(ctx, tx, insert, handler, id), exec(ctx, tx, "SELECT pg_terminate_backend(pg_backend_pid())"))
	}},
	{name: "rows that are not closed", says: "", fail: func(ctx context.Context, tx pgx.Tx, handler, id string) error {
		if err := exec(ctx, tx, insert, handler, id); err != nil {
			return err
		}
		_, err := tx.Query(ctx, "SELECT n FROM generate_series(1, $1::int) n", 100000) //nolint:rowserrcheck,sqlclosecheck // as users do
		return err
	}},
	{name: "a goroutine in a statement that does not end", says: "goroutine", fail: func(ctx context.Context, tx pgx.Tx, handler, id string) error {
		if err := exec(ctx, tx, insert, handler, id); err != nil {
			return err
		}
		sleeping := make(chan struct{})
		go func() {
			_, _ = tx.CopyFrom(context.Background(), pgx.Identifier{"effect"}, []string{"handler", "event"}, pgx.CopyFromFunc(func() ([]any, error) {
				close(sleeping)
				devtest.Forever() // the copy is given up with its connection
				return nil, io.EOF
			}))
		}()
		<-sleeping
		return nil
	}},
	{name: "a goroutine that goes on after an error", says: "the shop is closed", fail: func(ctx context.Context, tx pgx.Tx, handler, id string) error {
		return errors.Join(exec(ctx, tx, insert, handler, id), goOn(tx, handler, id), errOwn)
	}},
	{name: "no time left, and no look at the context", says: "not done in time", fail: func(ctx context.Context, tx pgx.Tx, handler, id string) error {
		err := exec(ctx, tx, insert, handler, id)
		for err == nil { // until the inbox takes the transaction away
			err = exec(context.WithoutCancel(ctx), tx, "SELECT pg_sleep(0.01)")
		}
		return nil
	}},
	{name: "an overlooked error", says: "did not return its error", fail: func(ctx context.Context, tx pgx.Tx, handler, id string) error {
		_ = exec(ctx, tx, "SELECT 1 / $1::int", 0)
		_ = exec(ctx, tx, insert, handler, id)
		return nil
	}},
	{name: "a role without rights", says: "42501", fail: func(ctx context.Context, tx pgx.Tx, handler, id string) error {
		return errors.Join(exec(ctx, tx, insert, handler, id), exec(ctx, tx, "SET LOCAL ROLE pg_monitor"), exec(ctx, tx, insert, handler, id))
	}},
	{name: "a setting of the session", says: "the shop is closed", fail: func(ctx context.Context, tx pgx.Tx, handler, id string) error {
		return errors.Join(exec(ctx, tx, insert, handler, id), exec(ctx, tx, "SET search_path = nowhere"), errOwn)
	}},
	{name: "a transaction that it made read-only", says: "read-only transaction", fail: func(ctx context.Context, tx pgx.Tx, handler, id string) error {
		postroom.SetResult(ctx, "took effect")
		return errors.Join(exec(ctx, tx, insert, handler, id), exec(ctx, tx, "SET TRANSACTION READ ONLY"))
	}},
	{name: "a value that panics when it is read", says: "no text", fail: func(ctx context.Context, tx pgx.Tx, handler, id string) error {
		return tx.QueryRow(ctx, insert+" RETURNING event", handler, id).Scan(angryScanner{})
	}},
	{name: "a function of a batch that panics", says: "no text", fail: func(ctx context.Context, tx pgx.Tx, handler, id string) error {
		b := &pgx.Batch{}
		b.Queue(insert, handler, id).Exec(func(pgconn.CommandTag) error { panic("no text") })
		b.Queue("SELECT 1")
		return tx.SendBatch(ctx, b).Close()
	}},
	{name: "a function of a batch that ends its goroutine", says: "Goexit", fail: func(ctx context.Context, tx pgx.Tx, handler, id string) error {
		b := &pgx.Batch{}
		b.Queue(insert, handler, id).Exec(func(pgconn.CommandTag) error { runtime.Goexit(); return nil })
		b.Queue("SELECT 1")
		return tx.SendBatch(ctx, b).Close()
	}},
	{name: "a function of a batch that uses the transaction", says: "goroutine uses the transaction", fail: func(ctx context.Context, tx pgx.Tx, handler, id string) error {
		b := &pgx.Batch{}
		b.Queue(insert, handler, id).Exec(func(pgconn.CommandTag) error { return exec(ctx, tx, "SELECT 1") })
		return tx.SendBatch(ctx, b).Close()
	}},
	{name: "results of a batch that are not closed", says: "open", fail: func(ctx context.Context, tx pgx.Tx, handler, id string) error {
		b := &pgx.Batch{}
		b.Queue(insert, handler, id)
		b.Queue("SELECT n FROM generate_series(1, 10000) n")
		_, err := tx.SendBatch(ctx, b).Exec()
		return err
	}},
	{name: "Goexit in a nested transaction", says: "Goexit", fail: func(ctx context.Context, tx pgx.Tx, handler, id string) error {
		return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
			_ = exec(ctx, tx, insert, handler, id)
			runtime.Goexit()
			return nil
		})
	}},
	{name: "a copy whose rows panic", says: "no text", fail: func(ctx context.Context, tx pgx.Tx, _, _ string) error {
		_, err := tx.CopyFrom(ctx, pgx.Identifier{"effect"}, []string{"handler", "event"}, pgx.CopyFromFunc(func() ([]any, error) { panic("no text") }))
		return err
	}},
	{name: "a copy of a value that panics", says: "no text", fail: func(ctx context.Context, tx pgx.Tx, handler, _ string) error {
		_, err := tx.CopyFrom(ctx, pgx.Identifier{"effect"}, []string{"handler", "event"}, pgx.CopyFromRows([][]any{{handler, angryValuer{}}}))
		return err
	}},
	{name: "a copy whose channel is not closed", says: "deadline", fail: func(ctx context.Context, tx pgx.Tx, handler, id string) error {
		rows := make(chan []any, 1)
		rows <- []any{handler, id}
		ctx, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		defer cancel()
		_, err := tx.CopyFrom(ctx, pgx.Identifier{"effect"}, []string{"handler", "event"}, pgx.CopyFromFunc(func() ([]any, error) {
			select {
			case row := <-rows:
				return row, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}))
		return err
	}},
	{name: "an error of a trigger at the commit", says: "too late", fail: func(ctx context.Context, tx pgx.Tx, handler, id string) error {
		return errors.Join(exec(ctx, tx, insert, handler, id), exec(ctx, tx, "INSERT INTO refused VALUES ($1)", "P0001"))
	}},
	{name: "an error of a trigger at the commit that is like one of the inbox", says: "too late", fail: func(ctx context.Context, tx pgx.Tx, handler, id string) error {
		return errors.Join(exec(ctx, tx, insert, handler, id), exec(ctx, tx, "INSERT INTO refused VALUES ($1)", "22P02"))
	}},
	{name: "a serialization failure at the commit", says: "40001", fail: func(ctx context.Context, tx pgx.Tx, handler, id string) error {
		return errors.Join(exec(ctx, tx, insert, handler, id), exec(ctx, tx, "INSERT INTO refused VALUES ($1)", "40001"))
	}},
	{name: "a read-only server at the commit, as its trigger says", says: "too late", fail: func(ctx context.Context, tx pgx.Tx, handler, id string) error {
		return errors.Join(exec(ctx, tx, insert, handler, id), exec(ctx, tx, "INSERT INTO refused VALUES ($1)", "25006"))
	}},
	{name: "the savepoint of its batch", says: "", fail: func(ctx context.Context, tx pgx.Tx, handler, id string) error {
		return errors.Join(exec(ctx, tx, insert, handler, id), exec(ctx, tx, "RELEASE SAVEPOINT postroom_member_1"), exec(ctx, tx, "SELECT nothing"))
	}},
}

// angryScanner is a value that panics.
type angryScanner struct{}

func (angryScanner) Scan(any) error { panic("no text") }

// angryValuer is a parameter that panics.
type angryValuer struct{}

func (angryValuer) Value() (driver.Value, error) { panic("no text") }
