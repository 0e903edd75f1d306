package ledger

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postroom/postroom/inbox/internal/delivery"
)

// Statement is one of ours, with its parameters, and what reads its rows, or nil.
type Statement struct {
	sql  string
	args []any
	read func(pgx.Rows) error
}

// Opened is a transaction that was begun behind the end of another, and what became
// of its first statement.
type Opened struct {
	Tx  *Tx
	Tag pgconn.CommandTag
	Err error
}

var (
	commitStatement   = Statement{sql: "COMMIT"}
	rollbackStatement = Statement{sql: "ROLLBACK"}
)

// commit ends the transaction, if it is still the one that the inbox began: if the
// handler may have ended it, still.sql asks the server, in the same round trip. What next is for endWith, it is here. The
// error is an endedError if a handler ended the transaction, else a commitError.
func (t *Tx) commit(ctx context.Context, still string, level pgx.TxIsoLevel, next *Statement) (*Opened, error) {
	closing := []Statement{commitStatement}
	asks := t.ID != "" && t.unsure.Load() // otherwise it is the same, or has done nothing
	if asks {
		closing = []Statement{{sql: still, args: []any{t.ID}}, commitStatement}
	}
	tags, following, err := t.endWith(ctx, level, closing, next)
	switch {
	case err != nil && asks && len(tags) == 0 && isOther(err):
		return nil, &delivery.EndedError{}
	case err != nil:
		return nil, &delivery.CommitError{Err: err}
	case tags[len(tags)-1].String() == "ROLLBACK":
		if following != nil {
			following.Tx.Abort(ctx)
		}
		return nil, &delivery.CommitError{Err: pgx.ErrTxCommitRollback}
	}
	return following, nil
}

// isStill returns an endedError if the transaction is not the one that the inbox began.
func (t *Tx) isStill(ctx context.Context, still string) error {
	if _, err := t.Tx.Exec(ctx, still, t.ID); isOther(err) {
		return &delivery.EndedError{}
	} else if err != nil {
		return fmt.Errorf("ask whether it is the same transaction: %w", err)
	}
	return nil
}

// asOwn has our statements, behind a handler's that may have set another role, run as the
// inbox's user. It is a round trip of its own: what is prepared asks for rights as well.
func (t *Tx) asOwn(ctx context.Context) error {
	if !t.loan.Used() {
		return nil
	}
	sql, args := t.loan.Own()
	if _, err := t.Tx.Exec(ctx, sql, args...); err != nil {
		return fmt.Errorf("return to the inbox's role: %w", err)
	}
	return nil
}

// isOther reports whether still.sql found another transaction.
func isOther(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "22P02"
}

// WasCommitted reports whether a handler committed a transaction: the inbox did not, and
// forgets the id of one that it may have.
func (db *DB) WasCommitted(ctx context.Context, id string) (bool, error) {
	if id == "" {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, WritePatience)
	defer cancel()
	tag, err := db.pool.Exec(ctx, db.sql.committed, id)
	if err != nil {
		return false, fmt.Errorf("ask what became of a transaction: %w", err)
	}
	return tag.RowsAffected() > 0, nil
}

// endWith sends the statements that end the transaction, and behind them BEGIN and
// another transaction's first statement, if next is not nil, in one round trip. It
// returns the tags of the former. Where one of them failed there is an error, the tags
// are of those before it, and nothing followed. Nothing follows either if the handler left
// something in the session: that is set back in the same round trip, and the connection
// goes back to the pool.
func (t *Tx) endWith(ctx context.Context, level pgx.TxIsoLevel, closing []Statement, next *Statement) ([]pgconn.CommandTag, *Opened, error) {
	t.over.Store(true)
	batch := &pgx.Batch{}
	for _, s := range closing {
		batch.Queue(s.sql, s.args...)
	}
	if t.loan.Leaves() {
		next = nil
	}
	if next == nil {
		t.loan.End(batch)
	} else {
		batch.Queue(beginStatement(level))
		batch.Queue(next.sql, next.args...)
	}
	results := t.owner.SendBatch(ctx, batch)
	tags := make([]pgconn.CommandTag, len(closing))
	for i := range closing {
		var err error
		if tags[i], err = results.Exec(); err != nil {
			_ = results.Close() // returns the same error
			t.fail(ctx)
			return tags[:i], nil, err
		}
	}
	if next == nil {
		// It has ended: of what sets the session back the connection is told, not the caller.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), RollbackPatience)
		defer cancel()
		t.give(ctx, t.loan.Ended(ctx, results.Close()))
		return tags, nil, nil
	}
	return tags, t.open(results), nil
}

// open reads the results of BEGIN and the statement behind it.
func (t *Tx) open(results pgx.BatchResults) *Opened {
	t.loan.Next()
	o := &Opened{Tx: &Tx{Tx: t.Tx, owner: t.owner, loan: t.loan, lost: t.lost, simple: t.simple}}
	if _, o.Err = results.Exec(); o.Err == nil {
		o.Tag, o.Err = readResult(results, o.Tx.readID)
	}
	if closing := results.Close(); o.Err == nil {
		o.Err = closing
	}
	if o.Err != nil {
		o.Err = &delivery.LedgerError{Err: o.Err}
	}
	return o
}

func beginStatement(level pgx.TxIsoLevel) string {
	if level == "" {
		return "BEGIN"
	}
	return "BEGIN ISOLATION LEVEL " + string(level)
}
