package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/internal/lent"
	"github.com/postroom/postroom/internal/session"
)

// Abort rolls back the transaction. It gives the connection back even if ctx has ended.
func (t *Tx) Abort(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), RollbackPatience)
	defer cancel()
	_ = t.Tx.Rollback(ctx) // if this fails, the connection is closed and the server rolls back
	//guard:the-session-is-reset-after-a-rollback 2 = nil
	t.give(ctx, t.loan.Undone(ctx))
}

// fail gives the connection back. Call it if the statement that should end the transaction failed,
// or if a statement before that one failed.
func (t *Tx) fail(ctx context.Context) {
	switch t.owner.Conn().PgConn().TxStatus() {
	case 'E':
		t.Abort(ctx)
	case 'I':
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), RollbackPatience)
		defer cancel()
		t.give(ctx, t.loan.Undone(ctx))
	default:
		t.give(ctx, nil)
	}
}

// give gives the connection back. left is the reason why the connection was closed, or nil.
func (t *Tx) give(ctx context.Context, left error) {
	if left != nil {
		t.lost(ctx, left)
	}
	t.owner.Release() // closes the connection if it is not idle
}

// RollbackPatience is how long a rollback may take before the inbox closes its connection.
const RollbackPatience = 5 * time.Second

// Abandon gives up the transaction of a handler that still uses it. The server rolls back. Do not
// use the transaction after that.
func (t *Tx) Abandon() { lent.Cut(t.owner) }

// Opened is a transaction that began in the same round trip in which the previous transaction
// ended. It also has the result of the transaction's first statement.
type Opened struct {
	Tx  *Tx
	Tag pgconn.CommandTag
	Err error
}

// Take returns the transaction, but only once. For a nil Opened it returns nil.
func (o *Opened) Take() (tx *Tx, err error) {
	if o != nil {
		tx, err, o.Tx = o.Tx, o.Err, nil
	}
	return tx, err
}

// Drop ends the transaction, unless it was taken.
func (o *Opened) Drop(ctx context.Context) {
	if tx, _ := o.Take(); tx != nil {
		tx.Abort(ctx)
	}
}

var (
	commitStatement   = Statement{sql: "COMMIT"}
	rollbackStatement = Statement{sql: "ROLLBACK"}
)

// commit runs the inbox's last statements and commits the transaction that the inbox began. If the
// handler may have ended that transaction, still.sql first checks, in the same round trip, whether
// that one is still open. If next is not nil, commit begins the next transaction, as endWith does.
// commit returns an EndedError if a handler ended the transaction, delivery.ErrSettled if this
// process no longer had the claim, and a CommitError if the COMMIT failed or was not answered.
func (t *Tx) commit(ctx context.Context, still string, level pgx.TxIsoLevel, next *Statement, last ...Statement) (*Opened, error) {
	closing := slices.Concat(last, []Statement{commitStatement})
	//guard:commit-asks-whether-it-is-the-same-transaction false
	asks := t.ID != "" && t.unsure.Load() // if false, no handler ended the transaction: none ran in it, or none sent a statement that could end it
	if asks {
		closing = slices.Insert(closing, 0, Statement{sql: still, args: []any{t.ID}})
	}
	tags, following, err := t.endWith(ctx, level, closing, next)
	var refused *pgconn.PgError
	switch {
	case err != nil && asks && len(tags) == 0 && isNoNumber(err):
		return nil, &delivery.EndedError{}
	case errors.As(err, &refused) && len(last) > 0 && len(tags) < len(closing)-1:
		if isNoNumber(err) {
			return nil, delivery.ErrSettled
		}
		return nil, fmt.Errorf("settle: %w", err)
	case err != nil:
		//planted:a-failed-commit-counts-as-done 2 = nil
		return nil, &delivery.CommitError{Err: err}
	case tags[len(tags)-1].String() == "ROLLBACK":
		if following != nil {
			following.Tx.Abort(ctx)
		}
		return nil, &delivery.CommitError{Err: pgx.ErrTxCommitRollback}
	}
	return following, nil
}

// isStill returns an EndedError if the transaction is not the one that the inbox began.
func (t *Tx) isStill(ctx context.Context, still string) error {
	if _, err := t.Tx.Exec(ctx, still, t.ID); isNoNumber(err) {
		return &delivery.EndedError{}
	} else if err != nil {
		return fmt.Errorf("ask whether it is the same transaction: %w", err)
	}
	return nil
}

// asOwn makes later statements run as the inbox's user, and with its encoding, because the handler
// may have set others. It needs a separate round trip: pgx may prepare all statements of a batch before it runs
// the first one, and the server checks rights when it prepares a statement.
func (t *Tx) asOwn(ctx context.Context) error {
	if !t.loan.Used() {
		return nil
	}
	//guard:deferred-triggers-of-a-held-event-keep-the-handlers-role false
	if t.loan.ChangesUser() { // deferred triggers of the handler's statements run with the rights of the handler's user
		if _, err := t.Tx.Exec(ctx, "SET CONSTRAINTS ALL IMMEDIATE"); err != nil {
			return err
		}
	}
	//guard:what-a-handler-set-is-not-for-the-inboxs-values false
	if t.Differs() {
		if _, err := t.Tx.Exec(ctx, session.FormatsSQL); err != nil {
			return fmt.Errorf("return to the inbox's encoding: %w", err)
		}
	}
	sql, args := t.loan.Own()
	if _, err := t.Tx.Exec(ctx, sql, args...); err != nil {
		return fmt.Errorf("return to the inbox's role: %w", err)
	}
	return nil
}

// isNoNumber reports whether err has the code 22P02. still.sql fails with this code if the open
// transaction is another one, and settle_last.sql does so if it has settled no event.
func isNoNumber(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "22P02"
}

// endWith sends the statements that end the transaction. If the parameter next is not nil, it also
// sends BEGIN and the first statement of the next transaction, in the same round trip. It returns
// the tags of the statements that end the transaction. If one of these fails, endWith returns an
// error and the tags of the statements before that one, and begins no transaction. If next is nil,
// or if the handler changed the session, no transaction follows: endWith resets the session in the
// same round trip, and gives the connection back to the pool.
func (t *Tx) endWith(ctx context.Context, level pgx.TxIsoLevel, closing []Statement, next *Statement) ([]pgconn.CommandTag, *Opened, error) {
	//guard:a-simple-connection-ends-in-its-own-encoding false
	if conn := t.Tx.Conn().PgConn(); t.simple && conn.TxStatus() == 'T' && conn.ParameterStatus("client_encoding") != "UTF8" { // pgx would refuse parameters
		if _, err := t.Tx.Exec(ctx, session.FormatsSQL); err != nil {
			t.fail(ctx)
			return nil, nil, err
		}
	}
	batch := &pgx.Batch{}
	for _, s := range closing {
		batch.Queue(s.sql, s.args...)
	}
	//guard:what-a-handler-leaves-begins-no-next-transaction false
	if t.loan.Leaves() {
		next = nil
	}
	if next == nil {
		//guard:the-session-is-reset-at-the-end remove
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
		// The transaction has ended. An error of the reset concerns the connection, not the caller.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), RollbackPatience)
		defer cancel()
		t.give(ctx, t.loan.Ended(ctx, results.Close()))
		return tags, nil, nil
	}
	return tags, t.open(results), nil
}

// open reads the results of BEGIN and of the statement after it.
func (t *Tx) open(results pgx.BatchResults) *Opened {
	t.loan.Next()
	o := &Opened{Tx: &Tx{Tx: t.Tx, owner: t.owner, loan: t.loan, lost: t.lost, simple: t.simple, joins: t.joins}}
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
