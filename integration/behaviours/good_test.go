package behaviours

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
)

// way is a way in which a handler writes the effect of a good event.
type way struct {
	name  string
	write func(ctx context.Context, tx pgx.Tx, handler, id string) error
}

const insert = "INSERT INTO effect (handler, event) VALUES ($1, $2)"

// ways are the ways of good events.
var ways = []way{
	{"a statement", func(ctx context.Context, tx pgx.Tx, handler, id string) error {
		_, err := tx.Exec(ctx, insert, handler, id)
		return err
	}},
	{"a text without parameters", func(ctx context.Context, tx pgx.Tx, handler, id string) error {
		_, err := tx.Exec(ctx, fmt.Sprintf("INSERT INTO effect (handler, event) VALUES ('%s', '%s')", handler, id))
		return err
	}},
	{"several statements in one text", func(ctx context.Context, tx pgx.Tx, handler, id string) error {
		_, err := tx.Exec(ctx, fmt.Sprintf("SELECT 1; INSERT INTO effect (handler, event) VALUES ('%s', '%s'); SELECT 2", handler, id))
		return err
	}},
	{"the simple protocol", func(ctx context.Context, tx pgx.Tx, handler, id string) error {
		_, err := tx.Exec(ctx, insert, pgx.QueryExecModeSimpleProtocol, handler, id)
		return err
	}},
	{"named arguments", func(ctx context.Context, tx pgx.Tx, handler, id string) error {
		_, err := tx.Exec(ctx, "INSERT INTO effect (handler, event) VALUES (@handler, @event)", pgx.StrictNamedArgs{"handler": handler, "event": id})
		return err
	}},
	{"a prepared statement", func(ctx context.Context, tx pgx.Tx, handler, id string) error {
		if _, err := tx.Prepare(ctx, "put", insert); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "put", handler, id)
		return err
	}},
	{"a query for one row", func(ctx context.Context, tx pgx.Tx, handler, id string) error {
		return tx.QueryRow(ctx, insert+" RETURNING n", handler, id).Scan(new(int))
	}},
	{"a query for rows", func(ctx context.Context, tx pgx.Tx, handler, id string) error {
		rows, err := tx.Query(ctx, insert+" RETURNING n", handler, id)
		if err != nil {
			return err
		}
		_, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[int])
		return err
	}},
	{"a batch", func(ctx context.Context, tx pgx.Tx, handler, id string) error {
		b := &pgx.Batch{}
		b.Queue("SELECT 1")
		b.Queue(insert, handler, id)
		return tx.SendBatch(ctx, b).Close()
	}},
	{"a copy", func(ctx context.Context, tx pgx.Tx, handler, id string) error {
		_, err := tx.CopyFrom(ctx, pgx.Identifier{"effect"}, []string{"handler", "event"}, pgx.CopyFromRows([][]any{{handler, id}}))
		return err
	}},
	{"the connection", func(ctx context.Context, tx pgx.Tx, handler, id string) error {
		_, err := tx.Conn().Exec(ctx, insert, handler, id)
		return err
	}},
	{"a nested transaction", func(ctx context.Context, tx pgx.Tx, handler, id string) error {
		return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
			return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
				_, err := tx.Exec(ctx, insert, handler, id)
				return err
			})
		})
	}},
	{"after a failure that a nested transaction undid", func(ctx context.Context, tx pgx.Tx, handler, id string) error {
		_ = pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, insert, handler, id)
			return errors.Join(err, exec(ctx, tx, "SELECT 1 / $1::int", 0))
		})
		_, err := tx.Exec(ctx, insert, handler, id)
		return err
	}},
	{"a savepoint of its own that stays open", func(ctx context.Context, tx pgx.Tx, handler, id string) error {
		if err := exec(ctx, tx, "SAVEPOINT mine"); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, insert, handler, id)
		return err
	}},
	{"a large object beside it", func(ctx context.Context, tx pgx.Tx, handler, id string) error {
		large := tx.LargeObjects()
		oid, err := large.Create(ctx, 0)
		if err == nil {
			err = large.Unlink(ctx, oid)
		}
		_, put := tx.Exec(ctx, insert, handler, id)
		return errors.Join(err, put)
	}},
	{"a setting of the transaction", func(ctx context.Context, tx pgx.Tx, handler, id string) error {
		return errors.Join(exec(ctx, tx, "SET LOCAL work_mem = '8MB'"), exec(ctx, tx, insert, handler, id))
	}},
	{"a setting of the session", func(ctx context.Context, tx pgx.Tx, handler, id string) error {
		return errors.Join(exec(ctx, tx, insert, handler, id), exec(ctx, tx, "SET search_path = nowhere"))
	}},
	{"a text about it", func(ctx context.Context, tx pgx.Tx, handler, id string) error {
		postroom.SetResult(ctx, "wrote "+id)
		return exec(ctx, tx, insert, handler, id)
	}},
	{"a goroutine that goes on with the transaction", func(ctx context.Context, tx pgx.Tx, handler, id string) error {
		return errors.Join(exec(ctx, tx, insert, handler, id), goOn(tx, handler, id))
	}},
	{"a nested transaction that a goroutine keeps", func(ctx context.Context, tx pgx.Tx, handler, id string) error {
		var nested pgx.Tx
		err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
			nested = tx
			return exec(ctx, tx, insert, handler, id)
		})
		go func() { _, _ = nested.Exec(context.Background(), insert, handler, id) }()
		return err
	}},
	{"a statement with a context that has ended before it", func(ctx context.Context, tx pgx.Tx, handler, id string) error {
		ended, cancel := context.WithCancel(ctx)
		cancel()
		_ = exec(ended, tx, insert, handler, id) // is not sent
		return exec(ctx, tx, insert, handler, id)
	}},
	{"a rewriter of its own", func(ctx context.Context, tx pgx.Tx, handler, id string) error {
		return exec(ctx, tx, "insert", pgx.QueryExecModeExec, rewriter{handler, id})
	}},
	{"a batch whose functions read", func(ctx context.Context, tx pgx.Tx, handler, id string) error {
		b := &pgx.Batch{}
		b.Queue("SELECT $1::int", 1).QueryRow(func(row pgx.Row) error { return row.Scan(new(int)) })
		b.Queue(insert+" RETURNING n", handler, id).Query(func(rows pgx.Rows) error {
			_, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[int])
			return err
		})
		return tx.SendBatch(ctx, b).Close()
	}},
	{"a batch that is read half", func(ctx context.Context, tx pgx.Tx, handler, id string) error {
		b := &pgx.Batch{}
		b.Queue("SELECT n FROM generate_series(1, $1::int) n", 1000)
		b.Queue(insert, handler, id)
		results := tx.SendBatch(ctx, b)
		rows, err := results.Query()
		if err == nil {
			rows.Next()
			rows.Close()
		}
		return errors.Join(err, results.Close())
	}},
	{"rows that are read half", func(ctx context.Context, tx pgx.Tx, handler, id string) error {
		rows, err := tx.Query(ctx, "SELECT n FROM generate_series(1, $1::int) n", 10000)
		if err != nil {
			return err
		}
		rows.Next()
		rows.Close()
		return exec(ctx, tx, insert, handler, id)
	}},
	{"goroutines that take turns", func(ctx context.Context, tx pgx.Tx, handler, id string) error {
		for _, sql := range []string{"SELECT $1::text, $2::text", insert, "SELECT $1::text, $2::text"} {
			done := make(chan error)
			go func() { done <- exec(ctx, tx, sql, handler, id) }()
			if err := <-done; err != nil {
				return err
			}
		}
		return nil
	}},
	{"formats that are its own", func(ctx context.Context, tx pgx.Tx, handler, id string) error {
		return errors.Join(exec(ctx, tx, insert, handler, id),
			exec(ctx, tx, "SET LOCAL client_encoding = 'LATIN1'; SET LOCAL bytea_output = 'escape'; SET LOCAL DateStyle = 'German'; SET LOCAL IntervalStyle = 'sql_standard'; SET LOCAL TimeZone = 'Asia/Kolkata'"))
	}},
	{"a search_path that is empty", func(ctx context.Context, tx pgx.Tx, handler, id string) error {
		return errors.Join(exec(ctx, tx, insert, handler, id), exec(ctx, tx, "SET LOCAL search_path = ''"))
	}},
	{"tables that have the names of the inbox's", func(ctx context.Context, tx pgx.Tx, handler, id string) error {
		return errors.Join(exec(ctx, tx, insert, handler, id), exec(ctx, tx, "CREATE TEMPORARY TABLE inbox (a int); CREATE TEMPORARY TABLE held (a int) ON COMMIT DROP"))
	}},
	{"a channel, a lock and a cursor that stay", func(ctx context.Context, tx pgx.Tx, handler, id string) error {
		return errors.Join(exec(ctx, tx, insert, handler, id), exec(ctx, tx, "LISTEN shop; SELECT pg_advisory_lock_shared(7); DECLARE c CURSOR WITH HOLD FOR SELECT 1"))
	}},
	{"constraints that are checked at once", func(ctx context.Context, tx pgx.Tx, handler, id string) error {
		return errors.Join(exec(ctx, tx, "SET CONSTRAINTS ALL IMMEDIATE"), exec(ctx, tx, insert, handler, id))
	}},
	{"a panic that it caught", func(ctx context.Context, tx pgx.Tx, handler, id string) error {
		func() {
			defer func() { _ = recover() }()
			_ = pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
				_ = exec(ctx, tx, insert, handler, id)
				panic("no")
			})
		}()
		return exec(ctx, tx, insert, handler, id)
	}},
	{"an outcome for the operator", func(ctx context.Context, tx pgx.Tx, handler, id string) error {
		postroom.SetResult(ctx, "took effect")
		return exec(ctx, tx, insert, handler, id)
	}},
}

// rewriter is a rewriter of a handler.
type rewriter struct{ handler, id string }

func (r rewriter) RewriteQuery(context.Context, *pgx.Conn, string, []any) (string, []any, error) {
	return insert, []any{r.handler, r.id}, nil
}

// goOn starts a goroutine that uses the transaction until that fails. It writes only nothing, because
// what it writes before the end would be committed.
func goOn(tx pgx.Tx, handler, id string) error {
	begun := make(chan error, 1)
	go func() {
		ctx := context.Background()
		err := exec(ctx, tx, "SELECT 1")
		for begun <- err; err == nil; {
			_, err = tx.Exec(ctx, "DELETE FROM effect WHERE handler = $1 AND event = $2 AND false", handler, id)
		}
	}()
	return <-begun
}

func exec(ctx context.Context, tx pgx.Tx, sql string, args ...any) error {
	_, err := tx.Exec(ctx, sql, args...)
	return err
}
