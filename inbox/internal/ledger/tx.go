package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/internal/guard"
	"github.com/postroom/postroom/internal/session"
)

// ErrTxOwned is returned by Commit and Rollback of a handler's transaction, because the
// inbox ends it after the handler returned.
var ErrTxOwned = errors.New("inbox: the transaction is ended by the inbox; return nil to commit, an error to roll back")

// Tx is the transaction of a handler. It wraps a transaction of pgx. Only the inbox ends
// it, and it sends savepoints together with the next statement.
//
// Wide because pgx.Tx has half of its methods.
type Tx struct {
	pgx.Tx

	owner *pgxpool.Conn
	loan  *session.Loan                        // of owner's connection
	lost  func(ctx context.Context, why error) // is told that the connection was closed

	// ID is the id of the transaction that the inbox began; empty if it has none. If a
	// handler ends that with a statement, it goes on in another transaction.
	ID string

	// unsure is set if the handler sent a statement that may have ended the transaction.
	// Then the inbox asks the server before the commit. See saw.
	unsure atomic.Bool
	simple bool // the connection puts parameters into the text of statements
	joins  bool // see Handler.joins

	// first has statements to send with the next Exec, or before any other call: the
	// savepoint before a member of a batch.
	first []string

	// over is set when the transaction ended without pgx. A goroutine of the handler that
	// still has it must not reach the connection's next transaction.
	over atomic.Bool
}

// closed is a transaction that has ended.
var closed = func() pgx.Tx {
	batch := &pgx.Batch{}
	batch.BeginTx(pgx.TxOptions{})
	return pgx.FailedBatchResults(batch, pgx.ErrTxClosed).Tx()
}()

// inner returns the transaction of pgx.
func (t *Tx) inner() pgx.Tx {
	if t.over.Load() {
		return closed
	}
	return t.Tx
}

// begin begins a transaction of the given isolation level and runs statements in it, in
// one round trip. It returns the tag of the first statement. That one returns the
// transaction's id, unless it has its own function to read its rows. If no transaction
// could begin, the error is a delivery.BeginError.
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

// beginOn is begin on a connection, which it gives back if no transaction could begin.
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

// WasCommitted reports whether a handler committed a transaction. The inbox did not: it
// clears the id of a transaction that it may have committed.
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

// readID reads the transaction's id from the result of its first statement. There is no
// row if the statement decided nothing.
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

// Abort rolls the transaction back. It gives the connection back even if ctx has ended.
func (t *Tx) Abort(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), RollbackPatience)
	defer cancel()
	_ = t.Tx.Rollback(ctx) // if it fails, the connection is closed and the server rolls back
	t.give(ctx, t.loan.Undone(ctx))
}

// fail gives the connection back after the statement failed that was to end the
// transaction, or one before it.
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

// give gives the connection back. left says why it was closed.
func (t *Tx) give(ctx context.Context, left error) {
	if left != nil {
		t.lost(ctx, left)
	}
	t.owner.Release() // closes the connection if it is not idle
}

// RollbackPatience is how long a rollback may take before its connection is closed
// instead.
const RollbackPatience = 5 * time.Second

// Abandon takes the transaction from a handler that does not return. It removes the
// connection from the pool and closes it, so that the server rolls back. If the handler
// uses the transaction after that, it gets an error.
func (t *Tx) Abandon() {
	conn := t.owner.Hijack()
	_ = conn.PgConn().Conn().Close() // the only call that is safe while the handler uses the connection
}

// Healthy returns an error if the client knows that the transaction cannot commit: none
// is open, or a statement in it has failed. Only the server knows whether the open
// transaction is the one that the inbox began: see commit.
func (t *Tx) Healthy() error {
	switch {
	case t.Tx.Conn().IsClosed():
		return errors.New("the connection is closed")
	case t.Tx.Conn().PgConn().TxStatus() == 'E':
		return errOverlooked
	case t.Tx.Conn().PgConn().TxStatus() != 'T':
		return &delivery.EndedError{}
	}
	return nil
}

var errOverlooked = errors.New("a statement failed and the handler did not return its error")

// flush sends the statements that wait for the next one. If that fails, the next
// statement fails too.
func (t *Tx) flush(ctx context.Context) {
	if len(t.first) > 0 {
		sql := strings.Join(t.first, "; ")
		t.first = nil
		_, _ = t.inner().Exec(ctx, sql)
	}
}

// saw notes a statement of the handler, which may have ended the transaction. A statement
// with parameters cannot: the server runs it alone, statements that end a transaction
// take no parameters, and functions cannot end a transaction block. Any other text may
// contain several statements, and the result shows only the last of them, so the inbox
// cannot tell.
func (t *Tx) saw(sql string, args []any) {
	t.loan.See(sql)
	if t.simple || len(args) == 0 || isOption(args[0]) || isRewriter(args[0]) {
		t.unsure.Store(true)
	}
}

// isRewriter reports whether an argument may change the statement and its number of
// parameters.
func isRewriter(arg any) bool {
	_, is := arg.(pgx.QueryRewriter)
	return is
}

// modeOf returns how a connection sends statements by default. Reading the configuration
// copies it, so the inbox does that once.
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

// Conn returns the connection of the transaction. It first sends the statements that wait
// for the handler's first one, because the inbox does not see what the handler does with
// the connection.
func (t *Tx) Conn() *pgx.Conn {
	t.unsure.Store(true)
	t.loan.Unseen()
	t.flush(context.Background())
	return t.Tx.Conn()
}

// Commit returns ErrTxOwned.
func (t *Tx) Commit(context.Context) error { return ErrTxOwned }

// Rollback returns ErrTxOwned.
func (t *Tx) Rollback(context.Context) error { return ErrTxOwned }

// Exec works like that of pgx.Tx.
func (t *Tx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	t.saw(sql, args)
	if len(t.first) == 0 || len(args) == 0 || isOption(args[0]) {
		t.flush(ctx)
		return t.inner().Exec(ctx, sql, args...)
	}
	batch := &pgx.Batch{}
	for _, statement := range t.first {
		batch.Queue(statement)
	}
	t.first = nil
	batch.Queue(sql, args...)
	results := t.inner().SendBatch(ctx, batch)
	var tag pgconn.CommandTag
	var err error
	for range batch.Len() {
		if tag, err = results.Exec(); err != nil {
			break
		}
	}
	if closing := results.Close(); err == nil {
		err = closing
	}
	return tag, err
}

// isOption reports whether an argument is an option of pgx. A batch does not take
// options, nor a text without arguments, which may contain several statements.
func isOption(arg any) bool {
	switch arg.(type) {
	case pgx.QueryExecMode, pgx.QueryResultFormats, pgx.QueryResultFormatsByOID:
		return true
	}
	return false
}

// Begin begins a savepoint.
func (t *Tx) Begin(ctx context.Context) (pgx.Tx, error) {
	t.unsure.Store(true)
	t.flush(ctx)
	return t.nest(t.inner().Begin(ctx))
}

// Query works like that of pgx.Tx.
func (t *Tx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	t.saw(sql, args)
	t.flush(ctx)
	return t.inner().Query(ctx, sql, args...)
}

// QueryRow works like that of pgx.Tx.
func (t *Tx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	t.saw(sql, args)
	t.flush(ctx)
	return t.inner().QueryRow(ctx, sql, args...)
}

// SendBatch works like that of pgx.Tx.
func (t *Tx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	t.unsure.Store(true)
	t.sawBatch(b)
	t.flush(ctx)
	return t.inner().SendBatch(ctx, b)
}

// CopyFrom works like that of pgx.Tx. rows may panic.
func (t *Tx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource) (int64, error) {
	t.loan.Use()
	t.flush(ctx)
	guarded := guard.Rows(rows)
	n, err := t.inner().CopyFrom(ctx, table, columns, guarded)
	return n, guarded.With(err)
}

// LargeObjects works like that of pgx.Tx.
func (t *Tx) LargeObjects() pgx.LargeObjects {
	t.loan.Use()
	t.flush(context.Background())
	return t.inner().LargeObjects()
}

// Prepare works like that of pgx.Tx.
func (t *Tx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	t.loan.See(sql)
	t.flush(ctx)
	return t.inner().Prepare(ctx, name, sql)
}

// Lost marks err if t's connection broke. If a context ends during a statement, the
// client itself closes the connection: then the failure is the handler's.
func Lost(t *Tx, err error) error {
	if !t.Tx.Conn().IsClosed() || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return &delivery.LostError{Err: err}
}

// IsAttempt reports whether err is a failure of the handler, and not contention, an
// outage or a shutdown, and the connection still works, so that the failure can be
// recorded.
func IsAttempt(ctx context.Context, tx *Tx, err error) bool {
	return err != nil && !delivery.IsAbandoned(err) && !tx.Tx.Conn().IsClosed() && !delivery.IsContention(err) && !delivery.IsOutage(err) && ctx.Err() == nil
}

// EnterMember begins the part of one event of a batch. If savepoint is set, a savepoint
// is sent with the handler's first statement, so that a failure of this event does not
// undo the effects of others. It returns the statements that still waited.
func (t *Tx) EnterMember(savepoint bool) (pending []string) {
	pending = t.first
	if savepoint {
		t.first = append(pending, "SAVEPOINT postroom_member")
	}
	return pending
}

// LeaveMember ends the part of one event, and releases its savepoint if it has one. It
// reports whether the handler sent nothing.
func (t *Tx) LeaveMember(pending []string, release bool) (silent bool) {
	silent = len(t.first) > 0
	switch {
	case silent:
		t.first = pending
	case release:
		t.first = []string{"RELEASE SAVEPOINT postroom_member"}
	}
	return silent
}

// UndoMember undoes the effects of one event of a batch.
func (t *Tx) UndoMember(ctx context.Context) error {
	if _, err := t.Tx.Exec(ctx, "ROLLBACK TO SAVEPOINT postroom_member; RELEASE SAVEPOINT postroom_member"); err != nil {
		return fmt.Errorf("roll back one event of a batch: %w", err)
	}
	return nil
}

// Differs reports whether a handler has changed the session for the events after it.
func (t *Tx) Differs() bool { return t.loan.Differs() }

// Statement is a statement of the inbox, with its parameters and a function that reads
// its rows, or nil.
type Statement struct {
	sql  string
	args []any
	read func(pgx.Rows) error
}

// Opened is a transaction that was begun in the round trip that ended another, with the
// result of its first statement.
type Opened struct {
	Tx  *Tx
	Tag pgconn.CommandTag
	Err error
}

// Take returns the transaction, once. A nil Opened has none.
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

// commit runs the inbox's last statements and commits the transaction, if it is still the one
// that the inbox began. If the handler may have ended it, still.sql asks the server in the same
// round trip. If next is not nil, commit begins the next transaction, as endWith does. The error
// is an EndedError if a handler ended the transaction, delivery.ErrSettled if the event was not
// this process's any more, and a CommitError if the transaction may have committed.
func (t *Tx) commit(ctx context.Context, still string, level pgx.TxIsoLevel, next *Statement, last ...Statement) (*Opened, error) {
	closing := slices.Concat(last, []Statement{commitStatement})
	asks := t.ID != "" && t.unsure.Load() // otherwise it is the same transaction, or has done nothing
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

// asOwn makes the following statements run as the inbox's user, because the handler may
// have set another role. It needs a round trip of its own, because preparing a statement
// checks rights too.
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

// isNoNumber reports whether still.sql found another transaction, or settle_last.sql no event.
func isNoNumber(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "22P02"
}

// endWith sends the statements that end the transaction. If next is not nil, it also
// sends BEGIN and the first statement of the next transaction, in the same round trip. It
// returns the tags of the ending statements. If one of them fails, endWith returns an
// error and the tags of those before it, and does not begin the next transaction. It does
// not begin it either if the handler changed the session: then it resets the session in
// the same round trip, and gives the connection back to the pool.
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
		// The transaction has ended. An error of the reset concerns the connection, not
		// the caller.
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
