package ledger

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

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

// Member begins the part of the transaction in which one event of a batch runs. If single is set, a
// savepoint is sent with the handler's first statement, so that a failure of this event does not
// undo the effects of other events.
//
// The result leave ends the part, releases the savepoint if keep is set, and reports whether the
// handler sent nothing. The result undo undoes the effects of the event.
func (t *Tx) Member(single bool) (leave func(keep bool) (silent bool), undo func(ctx context.Context) error) {
	pending := t.first
	if single {
		t.first = append(pending, "SAVEPOINT postroom_member")
	}
	leave = func(keep bool) (silent bool) {
		silent = len(t.first) > 0
		switch {
		case silent:
			t.first = pending
		case keep:
			t.first = []string{"RELEASE SAVEPOINT postroom_member"}
		}
		return silent
	}
	return leave, func(ctx context.Context) error {
		if _, err := t.Tx.Exec(ctx, "ROLLBACK TO SAVEPOINT postroom_member; RELEASE SAVEPOINT postroom_member"); err != nil {
			return fmt.Errorf("roll back one event of a batch: %w", err)
		}
		return nil
	}
}
