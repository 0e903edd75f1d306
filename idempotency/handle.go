package idempotency

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postroom/postroom/internal/guard"
	"github.com/postroom/postroom/internal/session"
)

// handle is what a handler has of a transaction of pgx, or of one that is nested in it.
type handle struct {
	pgx.Tx
	*fate
}

// fate is what became of a transaction, and of all that are nested in it.
type fate struct {
	// over is set when the transaction ended: what a handler's goroutine kept of it must
	// not reach the connection's next transaction.
	over atomic.Bool

	// lost is set when a statement lost against another transaction.
	lost atomic.Bool

	// failed is what a statement of the server's failed for last, while it could fail for
	// anything: after it, all others fail because it did.
	failed atomic.Pointer[error]

	// keeps is set when a statement was sent whose traces stay in the session.
	keeps    atomic.Bool
	sessions *session.Pool
}

// see looks at a statement before it is sent.
func (f *fate) see(sql string) {
	if f.sessions.Keeps(sql) {
		f.keeps.Store(true)
	}
}

// inner returns the transaction of pgx.
func (h handle) inner() pgx.Tx {
	if h.over.Load() {
		return closed
	}
	return h.Tx
}

// note looks at the error of a statement.
func (f *fate) note(err error) error {
	if err != nil && isContention(err) {
		f.lost.Store(true)
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code != "25P02" {
		f.failed.Store(&err)
	}
	return err
}

func (h handle) Begin(ctx context.Context) (pgx.Tx, error) {
	nested, err := h.inner().Begin(ctx)
	if err != nil {
		return nil, h.note(err)
	}
	return handle{nested, h.fate}, nil
}

func (h handle) Commit(ctx context.Context) error { return h.note(h.inner().Commit(ctx)) }

func (h handle) Rollback(ctx context.Context) error { return h.note(h.inner().Rollback(ctx)) }

func (h handle) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	h.see(sql)
	tag, err := h.inner().Exec(ctx, sql, args...)
	return tag, h.note(err)
}

func (h handle) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	h.see(sql)
	rows, err := h.inner().Query(ctx, sql, args...)
	return &notedRows{rows, h.fate}, h.note(err)
}

func (h handle) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	h.see(sql)
	return notedRow{h.inner().QueryRow(ctx, sql, args...), h.fate}
}

func (h handle) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	for _, q := range b.QueuedQueries {
		h.see(q.SQL)
	}
	return notedResults{h.inner().SendBatch(ctx, b), h.fate}
}

func (h handle) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource) (int64, error) {
	guarded := guard.Rows(rows)
	n, err := h.inner().CopyFrom(ctx, table, columns, guarded)
	return n, h.note(guarded.With(err))
}

func (h handle) LargeObjects() pgx.LargeObjects { return h.inner().LargeObjects() }

func (h handle) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	return h.inner().Prepare(ctx, name, sql)
}

// notedRows, notedRow and notedResults look at the errors that come late.
type notedRows struct {
	pgx.Rows
	f *fate
}

func (r *notedRows) Err() error { return r.f.note(r.Rows.Err()) }

type notedRow struct {
	row pgx.Row
	f   *fate
}

func (r notedRow) Scan(dest ...any) error { return r.f.note(r.row.Scan(dest...)) }

type notedResults struct {
	pgx.BatchResults
	f *fate
}

func (r notedResults) Exec() (pgconn.CommandTag, error) {
	tag, err := r.BatchResults.Exec()
	return tag, r.f.note(err)
}

func (r notedResults) Close() error { return r.f.note(r.BatchResults.Close()) }
