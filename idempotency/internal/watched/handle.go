// Package watched wraps a transaction for a user's code. It records what happens in the
// transaction. When the transaction has ended, code that still has the wrapper cannot reach the
// next transaction of the connection.
package watched

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postroom/postroom/idempotency/internal/failure"
	"github.com/postroom/postroom/internal/guard"
	"github.com/postroom/postroom/internal/session"
)

// Handle is the transaction that a handler gets. It wraps a transaction of pgx, or a nested one.
type Handle struct {
	pgx.Tx

	Fate *Fate
}

// Fate says what happened in a transaction and in the transactions nested in it.
type Fate struct {
	// The flag over is set when the transaction ends. A goroutine of the handler that still has the
	// transaction must not reach the next transaction of the connection.
	over atomic.Bool

	// The flag lost is set when a statement failed with a serialization failure or a deadlock.
	lost atomic.Bool

	// The field failed is the last error that the server returned for a statement. It is never
	// 25P02, which only says that an earlier statement failed.
	failed atomic.Pointer[error]

	// The flag keeps is set when the handler sends a statement whose changes to the session may
	// survive a reset of the session. Then the connection must be closed.
	keeps    atomic.Bool
	sessions *session.Pool

	// The flag user is set when the handler sends a statement that may change the role or the user,
	// or when it may send statements that the method see does not examine.
	user atomic.Bool
}

// Of returns the Fate of a transaction that begins on a connection of the pool.
func Of(sessions *session.Pool) *Fate { return &Fate{sessions: sessions} }

// End marks the transaction as ended. After End, a handler cannot use the transaction.
func (f *Fate) End() { f.over.Store(true) }

// Lost reports whether a statement failed with a serialization failure or a deadlock.
func (f *Fate) Lost() bool { return f.lost.Load() }

// Keeps reports whether the handler sent a statement after which the connection must be closed.
func (f *Fate) Keeps() bool { return f.keeps.Load() }

// Failed returns the last error that the server returned for a statement, or nil.
func (f *Fate) Failed() error {
	if err := f.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// see examines a statement before it is sent.
func (f *Fate) see(sql string) {
	seen := session.See(sql)
	if f.sessions.Keeps(seen) {
		f.keeps.Store(true)
	}
	//guard:the-guard-writes-as-its-own-user false
	if seen&session.User != 0 {
		f.user.Store(true)
	}
}

// ChangesUser reports whether the handler may have changed the role or the user.
func (f *Fate) ChangesUser() bool { return f.user.Load() }

// AsOwn makes the later statements of the transaction run as the guard's user, if the handler may
// have changed the user. It marks the transaction as ended for the handler. Deferred triggers of the
// handler's statements run before the change, with the rights of the handler's user. AsOwn needs a
// separate round trip: pgx may prepare all statements of a batch before it runs the first one, and
// the server checks rights when it prepares a statement.
func (f *Fate) AsOwn(ctx context.Context, conn *pgx.Conn) error {
	if f.End(); !f.ChangesUser() {
		return nil
	}
	batch := &pgx.Batch{}
	//guard:deferred-triggers-keep-the-users-role 1 = "SELECT 1"
	batch.Queue("SET CONSTRAINTS ALL IMMEDIATE")
	sql, args := f.sessions.Own(conn)
	batch.Queue(sql, args...)
	return conn.SendBatch(ctx, batch).Close()
}

// closed is a transaction that has ended.
var closed = func() pgx.Tx {
	batch := &pgx.Batch{}
	batch.BeginTx(pgx.TxOptions{})
	return pgx.FailedBatchResults(batch, pgx.ErrTxClosed).Tx()
}()

// inner returns the transaction of pgx, or the variable closed if it has ended.
func (h Handle) inner() pgx.Tx {
	//guard:a-transaction-that-is-over-is-closed false
	if h.Fate.over.Load() {
		return closed
	}
	return h.Tx
}

// note records the error of a statement, and returns the error.
func (f *Fate) note(err error) error {
	if err != nil && failure.IsContention(err) {
		f.lost.Store(true)
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code != "25P02" {
		f.failed.Store(&err)
	}
	return err
}

// Begin nests a transaction.
func (h Handle) Begin(ctx context.Context) (pgx.Tx, error) {
	nested, err := h.inner().Begin(ctx)
	if err != nil {
		return nil, h.Fate.note(err)
	}
	return Handle{nested, h.Fate}, nil
}

// Conn returns the connection. The guard does not see what the handler does with it.
func (h Handle) Conn() *pgx.Conn {
	h.Fate.user.Store(true)
	return h.Tx.Conn()
}

// Commit commits a nested transaction.
func (h Handle) Commit(ctx context.Context) error { return h.Fate.note(h.inner().Commit(ctx)) }

// Rollback rolls a nested transaction back.
func (h Handle) Rollback(ctx context.Context) error { return h.Fate.note(h.inner().Rollback(ctx)) }

// Exec runs a statement.
func (h Handle) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	h.Fate.see(sql)
	tag, err := h.inner().Exec(ctx, sql, args...)
	return tag, h.Fate.note(err)
}

// Query runs a query.
func (h Handle) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	h.Fate.see(sql)
	rows, err := h.inner().Query(ctx, sql, args...)
	return &notedRows{rows, h.Fate}, h.Fate.note(err)
}

// QueryRow runs a query of one row.
func (h Handle) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	h.Fate.see(sql)
	return notedRow{h.inner().QueryRow(ctx, sql, args...), h.Fate}
}

// SendBatch sends statements in one round trip.
func (h Handle) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	for _, q := range b.QueuedQueries {
		h.Fate.see(q.SQL)
	}
	return notedResults{h.inner().SendBatch(ctx, b), h.Fate}
}

// CopyFrom copies rows into a table.
func (h Handle) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource) (int64, error) {
	guarded := guard.Rows(rows)
	n, err := h.inner().CopyFrom(ctx, table, columns, guarded)
	return n, h.Fate.note(guarded.With(err))
}

// LargeObjects returns the large objects of the transaction.
func (h Handle) LargeObjects() pgx.LargeObjects { return h.inner().LargeObjects() }

// Prepare prepares a statement.
func (h Handle) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	//guard:a-prepared-statement-is-seen remove
	h.Fate.see(sql)
	prepared, err := h.inner().Prepare(ctx, name, sql)
	return prepared, h.Fate.note(err)
}

// notedRows, notedRow and notedResults record errors that appear only when the handler reads the
// results of a statement.
type notedRows struct {
	pgx.Rows
	f *Fate
}

// Err returns the error of the query.
func (r *notedRows) Err() error { return r.f.note(r.Rows.Err()) }

type notedRow struct {
	row pgx.Row
	f   *Fate
}

// Scan reads the row.
func (r notedRow) Scan(dest ...any) error { return r.f.note(r.row.Scan(dest...)) }

type notedResults struct {
	pgx.BatchResults
	f *Fate
}

// Exec reads the result of the next statement.
func (r notedResults) Exec() (pgconn.CommandTag, error) {
	tag, err := r.BatchResults.Exec()
	return tag, r.f.note(err)
}

// Close reads the results that are left.
func (r notedResults) Close() error { return r.f.note(r.BatchResults.Close()) }
