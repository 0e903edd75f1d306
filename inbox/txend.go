package inbox

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// statement is one of ours, with its parameters, and what reads its rows, or nil.
type statement struct {
	sql  string
	args []any
	read func(pgx.Rows) error
}

// opened is a transaction that was begun behind the end of another, and what became
// of its first statement.
type opened struct {
	tx  *tx
	tag pgconn.CommandTag
	err error
}

var (
	commitStatement   = statement{sql: "COMMIT"}
	rollbackStatement = statement{sql: "ROLLBACK"}
)

// endWith sends the statements that end the transaction, and behind them BEGIN and
// another transaction's first statement, if next is not nil, in one round trip. It
// returns the tags of the former. Where one of them failed there is an error and
// nothing followed.
func (t *tx) endWith(ctx context.Context, level pgx.TxIsoLevel, closing []statement, next *statement) ([]pgconn.CommandTag, *opened, error) {
	t.over.Store(true)
	batch := &pgx.Batch{}
	for _, s := range closing {
		batch.Queue(s.sql, s.args...)
	}
	if next != nil {
		batch.Queue(beginStatement(level))
		batch.Queue(next.sql, next.args...)
	}
	results := t.owner.SendBatch(ctx, batch)
	tags := make([]pgconn.CommandTag, len(closing))
	for i := range closing {
		var err error
		if tags[i], err = results.Exec(); err != nil {
			_ = results.Close() // returns the same error
			t.owner.Release()   // which closes a connection that is not idle
			return nil, nil, err
		}
	}
	if next == nil {
		err := results.Close()
		t.owner.Release()
		return tags, nil, err
	}
	return tags, t.open(results), nil
}

// open reads the results of BEGIN and the statement behind it.
func (t *tx) open(results pgx.BatchResults) *opened {
	o := &opened{tx: &tx{Tx: t.Tx, owner: t.owner}}
	if _, o.err = results.Exec(); o.err == nil {
		o.tag, o.err = results.Exec()
	}
	if closing := results.Close(); o.err == nil {
		o.err = closing
	}
	if o.err != nil {
		o.err = &ledgerError{o.err}
	}
	return o
}

func beginStatement(level pgx.TxIsoLevel) string {
	if level == "" {
		return "BEGIN"
	}
	return "BEGIN ISOLATION LEVEL " + string(level)
}
