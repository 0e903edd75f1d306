package ledger

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/internal/lent"
	"github.com/postroom/postroom/internal/session"
)

// ErrTxOwned is the error of Commit and Rollback of a handler's transaction. Only the inbox ends
// the transaction, after the handler returned.
var ErrTxOwned = errors.New("inbox: the transaction is ended by the inbox; return nil to commit, an error to roll back")

// Tx is a transaction of the inbox. A handler gets it from the method Lend.
type Tx struct {
	Tx pgx.Tx

	owner *pgxpool.Conn
	loan  *session.Loan                        // the loan of the connection owner
	lost  func(ctx context.Context, why error) // called if the session could not be restored

	// ID is the id of the transaction that the inbox began, or "" if the transaction has no id. If
	// a handler ends that transaction with a statement, the later statements of the handler run in
	// another transaction.
	ID string

	// unsure is set if the handler sent a statement that may have ended the transaction. If so, the
	// inbox asks the server before the commit whether that transaction is still open. See Tx.See.
	unsure atomic.Bool
	// timeless is set if a context ended during a statement of the handler: pgx closed the connection.
	timeless atomic.Bool

	simple bool // the connection puts parameters into the text of statements
	joins  bool // see Handler.joins

	member  string // the savepoint before the event of a batch that runs; see Save
	members int    // how many savepoints there were
}

// Lend lends the transaction to a handler for one call.
func (t *Tx) Lend() *lent.Tx { return lent.New(t.Tx, ErrTxOwned, t) }

// begin begins a transaction of the given isolation level and runs statements in it, in one round
// trip. It returns the tag of the first statement. If the first statement has no function that
// reads its rows, it must return the transaction's id. If no transaction could begin, the error is
// a delivery.BeginError.
func (db *DB) begin(ctx context.Context, level pgx.TxIsoLevel, first Statement, more ...Statement) (*Tx, pgconn.CommandTag, error) {
	owner, err := db.acquire(ctx)
	if err != nil {
		return nil, pgconn.CommandTag{}, err
	}
	return db.beginOn(ctx, owner, level, first, more...)
}

func (db *DB) acquire(ctx context.Context) (*pgxpool.Conn, error) {
	owner, err := db.pool.Acquire(ctx)
	if err != nil {
		return nil, &delivery.BeginError{Err: err}
	}
	return owner, nil
}

// beginOn is the method begin on a given connection. If no transaction could begin, it gives the
// connection back.
func (db *DB) beginOn(ctx context.Context, owner *pgxpool.Conn, level pgx.TxIsoLevel, first Statement, more ...Statement) (*Tx, pgconn.CommandTag, error) {
	batch := &pgx.Batch{}
	batch.BeginTx(pgx.TxOptions{IsoLevel: level})
	loan, look := db.sessions.Lend(owner.Conn(), batch)
	batch.Queue(first.sql, first.args...)
	for _, s := range more {
		if queued := batch.Queue(s.sql, s.args...); s.read != nil {
			queued.Query(s.read)
		}
	}
	results := owner.SendBatch(ctx, batch)
	t := &Tx{Tx: results.Tx(), owner: owner, loan: loan, lost: db.lost, simple: modeOf(owner.Conn()) == pgx.QueryExecModeSimpleProtocol}
	_, err := results.Exec()
	if err == nil && look != nil {
		err = look(results)
	}
	if err != nil {
		_ = results.Close() // returns the same error
		t.Abort(ctx)
		return nil, pgconn.CommandTag{}, &delivery.BeginError{Err: err}
	}
	read := first.read
	if read == nil {
		read = t.readID
	}
	tag, err := readResult(results, read)
	if closing := results.Close(); err == nil { // reads the other results
		err = closing
	}
	if err != nil {
		return t, tag, &delivery.LedgerError{Err: err}
	}
	return t, tag, nil
}

// exec runs statements in one transaction and one round trip.
func (db *DB) exec(ctx context.Context, statements []Statement) ([]pgconn.CommandTag, error) {
	batch := &pgx.Batch{}
	for _, s := range statements {
		batch.Queue(s.sql, s.args...)
	}
	results := db.pool.SendBatch(ctx, batch)
	tags := make([]pgconn.CommandTag, len(statements))
	var err error
	for i := range statements {
		if tags[i], err = results.Exec(); err != nil {
			break
		}
	}
	return tags, errors.Join(err, results.Close())
}

// WasCommitted reports whether a handler committed the transaction with the given id. It asks only
// whether the transaction committed, because the inbox keeps no id of a transaction that it may
// have committed itself.
func (db *DB) WasCommitted(ctx context.Context, id string) (bool, error) {
	if id == "" {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, WritePatience)
	defer cancel()
	tag, err := db.pool.Exec(ctx, db.sql.Committed, id)
	if err != nil {
		return false, fmt.Errorf("ask what became of a transaction: %w", err)
	}
	return tag.RowsAffected() > 0, nil
}

// Writer returns which of some transactions decided, held or settled an event. It returns "" if none
// of them did, or if something happened to the event since then.
func (db *DB) Writer(ctx context.Context, handler, key string, ids []string) (id string, err error) {
	ctx, cancel := context.WithTimeout(ctx, WritePatience)
	defer cancel()
	err = db.pool.QueryRow(ctx, db.sql.Writer, handler, key, ids).Scan(&id)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return "", fmt.Errorf("ask which transaction wrote an inbox row: %w", err)
	}
	return id, nil
}

// known runs statements in one transaction. It returns the transaction's id if the server may have
// committed the transaction. So if the answer is lost, the caller can find out what happened.
func (db *DB) known(ctx context.Context, batch *pgx.Batch) (id string, err error) {
	conn, err := db.pool.Acquire(ctx)
	if err != nil {
		return "", err
	}
	defer conn.Release() // closes the connection if it is in a transaction
	begin := &pgx.Batch{}
	begin.Queue("BEGIN")
	begin.Queue(db.sql.Current).QueryRow(func(row pgx.Row) error { return row.Scan(&id) })
	if err := conn.SendBatch(ctx, begin).Close(); err != nil {
		return "", err
	}
	batch.Queue(commitStatement.sql)
	err = conn.SendBatch(ctx, batch).Close()
	if conn.Conn().PgConn().TxStatus() == 'E' {
		_, _ = conn.Exec(ctx, rollbackStatement.sql) // if it fails, Release closes the connection
	}
	return id, err
}

// readID reads the transaction's id from the result of its first statement. If the statement
// decided nothing, there is no row.
func (t *Tx) readID(rows pgx.Rows) error {
	for rows.Next() {
		if err := rows.Scan(&t.ID); err != nil {
			return err
		}
	}
	return rows.Err()
}

func readResult(results pgx.BatchResults, read func(pgx.Rows) error) (pgconn.CommandTag, error) {
	rows, err := results.Query()
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	err = read(rows)
	rows.Close()
	return rows.CommandTag(), errors.Join(err, rows.Err())
}

// Healthy returns an error if the client knows that the transaction cannot commit: the connection
// is closed or still reads rows, no transaction is open, or a statement has failed. Only the server knows whether the
// open transaction is the one that the inbox began: see commit.
func (t *Tx) Healthy() error {
	switch {
	case t.Tx.Conn().IsClosed():
		return errors.New("the connection is closed")
	case t.Tx.Conn().PgConn().TxStatus() == 'E':
		return errOverlooked
	//guard:open-rows-are-a-failure-of-their-event false
	case t.Tx.Conn().PgConn().IsBusy():
		return errOpenRows
	case t.Tx.Conn().PgConn().TxStatus() != 'T':
		return &delivery.EndedError{}
	}
	return nil
}

var errOpenRows = errors.New("the handler left the rows of a query, or the results of a batch, open: close them")

var errOverlooked = errors.New("a statement failed and the handler did not return its error")

// See notes a handler's statement and sets unsure if the statement may have ended the transaction.
// A statement with parameters cannot have ended it: a text with parameters is a single statement,
// COMMIT and ROLLBACK have no parameters, and no function can end a transaction block. A text
// without parameters may contain several statements. pgx returns only the result of the last
// statement, so the inbox cannot know whether an earlier one ended the transaction, but
// session.MayEnd sees in most texts that no statement can. For a text that a user's code rewrites,
// Unseen is called too.
func (t *Tx) See(sql string, args []any) {
	t.loan.See(sql)
	//guard:a-text-may-end-the-transaction = @1.1 || @1.2.1 > 0 && (@1.3 || @1.4)
	//guard:an-option-may-end-the-transaction 1.3 false
	//guard:named-arguments-may-end-the-transaction 1.4 false
	//guard:a-simple-connection-may-end-the-transaction 1.1 false
	//guard:a-text-that-cannot-end-the-transaction-does-not 2 true
	if (t.simple || len(args) == 0 || isOption(args[0]) || isRewriter(args[0])) && session.MayEnd(sql) {
		t.unsure.Store(true)
	}
}

// MayBeEnded reports whether a statement of the handler may have ended the transaction.
func (t *Tx) MayBeEnded() bool { return t.unsure.Load() }

// isRewriter reports whether an argument may change the text of the statement and its
// number of parameters.
func isRewriter(arg any) bool {
	_, is := arg.(pgx.QueryRewriter)
	return is
}

// modeOf returns how a connection sends statements by default. Each read of the configuration
// copies it, so the inbox reads the configuration only once for each connection.
func modeOf(conn *pgx.Conn) pgx.QueryExecMode {
	data := conn.PgConn().CustomData()
	mode, known := data[modeKey].(pgx.QueryExecMode)
	if !known {
		mode = conn.Config().DefaultQueryExecMode
		data[modeKey] = mode
	}
	return mode
}

const modeKey = "postroom.inbox.mode"

// Unseen notes that the handler gets the connection. The inbox does not see what the handler does
// with it.
func (t *Tx) Unseen() {
	t.unsure.Store(true)
	t.loan.Unseen()
}

// Failed notes that a context ended during a statement of the handler. A handler may have contexts of
// its own, and may hide their errors. If the context had ended before, pgx sent nothing, and the
// connection still works. The inbox sees other failures in the state of the connection.
func (t *Tx) Failed(err error) {
	//guard:a-statement-that-was-not-sent-broke-nothing 2 true
	if isOfContext(err) && t.Tx.Conn().IsClosed() {
		t.timeless.Store(true)
	}
}

func isOfContext(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// isOption reports whether an argument is an option of pgx.
func isOption(arg any) bool {
	switch arg.(type) {
	case pgx.QueryExecMode, pgx.QueryResultFormats, pgx.QueryResultFormatsByOID:
		return true
	}
	return false
}

// Lost marks err with a delivery.LostError if t's connection broke. If a context ends during a
// statement, the client itself closes the connection. Lost does not mark such an error, because it
// is a failure of the handler.
func Lost(t *Tx, err error) error {
	//guard:a-timeout-is-a-failure-however-it-is-wrapped 3 false
	if !t.Tx.Conn().IsClosed() || isOfContext(err) || t.timeless.Load() {
		return err
	}
	return &delivery.LostError{Err: err}
}

// IsAttempt reports whether err is a failure of the handler, and not contention, an outage or a
// shutdown. If the connection is closed, IsAttempt returns false, because the failure cannot be
// recorded on it.
func IsAttempt(ctx context.Context, tx *Tx, err error) bool {
	return err != nil && !delivery.IsAbandoned(err) && !tx.Tx.Conn().IsClosed() && !delivery.IsContention(err) && !delivery.IsOutage(err) && ctx.Err() == nil
}

// Differs reports whether a handler may have changed the session for later events of this Tx.
func (t *Tx) Differs() bool { return t.loan.Differs() }

// Statement is a statement of the inbox, with its parameters and a function that reads its rows.
// The function may be nil.
type Statement struct {
	sql  string
	args []any
	read func(pgx.Rows) error
}
