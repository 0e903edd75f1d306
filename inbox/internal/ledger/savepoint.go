package ledger

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/internal/guard"
)

// savepoint is a savepoint that a handler began in its transaction. The inbox examines the
// statements in it too. The savepoint ends with the transaction. If a goroutine of the handler uses
// the savepoint after that, its statements must not reach the connection's next transaction.
type savepoint struct {
	pgx.Tx

	of *Tx
}

// nest wraps a nested transaction that the handler began in t.
func (t *Tx) nest(inner pgx.Tx, err error) (pgx.Tx, error) {
	if err != nil {
		return nil, err
	}
	return &savepoint{inner, t}, nil
}

// sawBatch examines the statements of a batch that the handler sends.
func (t *Tx) sawBatch(b *pgx.Batch) {
	for _, q := range b.QueuedQueries {
		t.loan.See(q.SQL)
	}
}

// inner returns pgx's savepoint, or a closed transaction if the transaction has ended.
func (n *savepoint) inner() pgx.Tx {
	//guard:a-savepoint-ends-with-its-transaction false
	if n.of.over.Load() {
		return closed
	}
	return n.Tx
}

func (n *savepoint) Begin(ctx context.Context) (pgx.Tx, error) {
	return n.of.nest(n.inner().Begin(ctx))
}

func (n *savepoint) Commit(ctx context.Context) error { return n.inner().Commit(ctx) }

func (n *savepoint) Rollback(ctx context.Context) error { return n.inner().Rollback(ctx) }

func (n *savepoint) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	n.of.loan.See(sql)
	return n.inner().Exec(ctx, sql, args...)
}

func (n *savepoint) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	n.of.loan.See(sql)
	return n.inner().Query(ctx, sql, args...)
}

func (n *savepoint) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	n.of.loan.See(sql)
	return n.inner().QueryRow(ctx, sql, args...)
}

func (n *savepoint) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	n.of.sawBatch(b)
	return n.inner().SendBatch(ctx, b)
}

// CopyFrom works like CopyFrom of pgx.Tx. A panic in a method of rows becomes an error.
func (n *savepoint) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource) (int64, error) {
	n.of.loan.Use()
	guarded := guard.Rows(rows)
	copied, err := n.inner().CopyFrom(ctx, table, columns, guarded)
	return copied, guarded.With(err)
}

func (n *savepoint) LargeObjects() pgx.LargeObjects {
	n.of.loan.Use()
	return n.inner().LargeObjects()
}

func (n *savepoint) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	n.of.loan.See(sql)
	return n.inner().Prepare(ctx, name, sql)
}

// Conn does what Conn of the handler's transaction does.
func (n *savepoint) Conn() *pgx.Conn { return n.of.Conn() }

// Save begins the part of the transaction in which one event of a batch runs, so that [Tx.Undo] can
// undo this event without the events before it. It is a round trip of its own, because only then
// the savepoint is certain: a statement of the handler may fail before it reaches the server. Each
// savepoint has a name of its own, so that Undo cannot find the one of an earlier event.
func (t *Tx) Save(ctx context.Context) error {
	sql := ""
	if t.member != "" {
		sql = "RELEASE SAVEPOINT " + t.member + "; "
	}
	t.members++
	t.member = fmt.Sprintf("postroom_member_%d", t.members)
	_, err := t.Tx.Exec(ctx, sql+"SAVEPOINT "+t.member)
	return t.saved("begin one event of a batch", err)
}

// Undo undoes what happened since Save.
func (t *Tx) Undo(ctx context.Context) error {
	_, err := t.Tx.Exec(ctx, "ROLLBACK TO SAVEPOINT "+t.member+"; RELEASE SAVEPOINT "+t.member)
	t.member = ""
	return t.saved("roll back one event of a batch", err)
}

// saved describes the error of a statement about a savepoint. If there is no such savepoint, or no
// transaction, a handler has ended the transaction.
func (t *Tx) saved(doing string, err error) error {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && (pg.Code == "3B001" || pg.Code == "25P01") {
		return &delivery.EndedError{}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return nil
}
