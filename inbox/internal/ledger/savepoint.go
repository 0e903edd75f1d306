package ledger

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// savepoint is a savepoint that a handler began in its transaction. The inbox examines its
// statements too.
type savepoint struct {
	pgx.Tx

	of *Tx
}

// nest wraps a transaction that was begun in this one.
func (t *Tx) nest(inner pgx.Tx, err error) (pgx.Tx, error) {
	if err != nil {
		return nil, err
	}
	return &savepoint{inner, t}, nil
}

// sawBatch notes the statements of a batch that the handler sends.
func (t *Tx) sawBatch(b *pgx.Batch) {
	for _, q := range b.QueuedQueries {
		t.loan.See(q.SQL)
	}
}

func (n *savepoint) Begin(ctx context.Context) (pgx.Tx, error) { return n.of.nest(n.Tx.Begin(ctx)) }

func (n *savepoint) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	n.of.loan.See(sql)
	return n.Tx.Exec(ctx, sql, args...)
}

func (n *savepoint) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	n.of.loan.See(sql)
	return n.Tx.Query(ctx, sql, args...)
}

func (n *savepoint) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	n.of.loan.See(sql)
	return n.Tx.QueryRow(ctx, sql, args...)
}

func (n *savepoint) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	n.of.sawBatch(b)
	return n.Tx.SendBatch(ctx, b)
}

func (n *savepoint) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	n.of.loan.See(sql)
	return n.Tx.Prepare(ctx, name, sql)
}

// Conn returns the connection, as that of the handler's transaction does.
func (n *savepoint) Conn() *pgx.Conn { return n.of.Conn() }

// Member begins the part of one event of a batch. If single is set, a savepoint is sent with the
// handler's first statement, so that a failure of this event does not undo the effects of others.
//
// leave ends the part, and releases the savepoint if keep is set. It reports whether the handler
// sent nothing. undo undoes the effects of the event.
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
