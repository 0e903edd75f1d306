// Package lent lends a transaction to a user's code for the time of one call. The code may keep the
// transaction longer, in another goroutine, but pgx allows only one user of a connection at a time:
// two of them can make pgx panic, in a goroutine of pgx or of the user, and that ends the process.
// So each use of a lent transaction first takes the connection, and fails if another goroutine has
// it. The lender takes the transaction back with [Tx.Back]. After that, each use of it returns
// pgx.ErrTxClosed.
package lent

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// ErrStillUsed says that a goroutine still used the transaction when the lender wanted it back.
var ErrStillUsed = errors.New("a goroutine of the handler still uses the transaction: wait for it before you return")

// errTwoUsers is the error of a call that begins while another goroutine uses the transaction.
var errTwoUsers = errors.New("another goroutine uses the transaction: use it in one goroutine at a time")

// Watcher sees what a user's code does with its transaction. Its methods are called by one
// goroutine at a time, except Unseen.
type Watcher interface {
	// See is called before a statement is sent. The parameter args has the arguments of the
	// statement.
	See(sql string, args []any)

	// Unseen is called before the code gets the connection itself. The Watcher does not see what
	// the code does with it.
	Unseen()

	// Failed is called with each error of the database.
	Failed(err error)
}

// Tx is a transaction that a user's code has, or a nested transaction of it. Only the lender ends
// the transaction.
type Tx struct {
	tx   pgx.Tx
	loan *loan
}

// loan is what a lent transaction and the transactions nested in it have in common.
type loan struct {
	of      Tx
	watch   Watcher
	notYour error // the error of Commit and Rollback

	// state is 0, or has the bits taken and over. raw is set if the code got the connection itself.
	state atomic.Uint32
	raw   atomic.Bool
	left  chan struct{} // is closed when the goroutine that has the connection at the end leaves it
}

// The bits of the state of a loan.
const (
	taken = 1 << iota // a goroutine uses the connection
	over              // the lender has the transaction back
)

// New lends a transaction of pgx. Commit and Rollback of the result return the error notYours. The
// watcher may be nil.
func New(tx pgx.Tx, notYours error, watch Watcher) *Tx {
	l := &loan{watch: watch, notYour: notYours}
	l.of = Tx{tx, l}
	return &l.of
}

// Grace returns how long a lender waits for code that still uses a transaction. The parameter timeout
// is the time limit of the code; 0 means no limit.
func Grace(timeout time.Duration) time.Duration {
	const most = 5 * time.Second
	if timeout == 0 {
		return most
	}
	return min(max(timeout/2, 100*time.Millisecond), most)
}

// Back ends the loan: from now on each use of the transaction returns pgx.ErrTxClosed. If a
// goroutine is in a call, Back waits for the end of that call, but no longer than the given time.
// Back returns false if the goroutine still uses the connection then. If so, the connection must
// not be touched again: see Cut.
func (t *Tx) Back(within time.Duration) bool {
	l := t.loan
	//guard:a-lent-transaction-ends 2 = 0
	idle := l.state.CompareAndSwap(0, over)
	if !idle && !l.wait(within) {
		return false
	}
	// What the code does with the connection that Conn returned does not take turns: another
	// goroutine may begin a call only now.
	return !l.raw.Load() || !l.of.tx.Conn().PgConn().IsBusy()
}

// wait ends the loan, and waits until no goroutine uses the connection.
func (l *loan) wait(within time.Duration) bool {
	if l.left == nil {
		l.left = make(chan struct{})
	}
	//guard:a-running-call-is-waited-for true
	if l.state.Or(over)&taken == 0 {
		return true
	}
	late := time.NewTimer(max(within, 0))
	defer late.Stop()
	select {
	case <-l.left:
		return true
	case <-late.C:
		return false
	}
}

// Cut takes a connection out of its pool and closes its socket, so that the server rolls back. It
// does not touch what pgx knows about the connection, because a goroutine may be using that.
func Cut(conn *pgxpool.Conn) { cut(conn.Hijack()) }

// Cut closes the socket of a transaction that is still used, for a lender that does not own the
// connection. It waits until the running call has failed, because another function will end the
// transaction. If the transaction was lent to the lender itself, Cut leaves that to the first lender.
func (t *Tx) Cut() {
	if _, isLent := t.loan.of.tx.(*Tx); isLent {
		return
	}
	cut(t.loan.of.tx.Conn())
	t.Back(Grace(0))
}

func cut(conn *pgx.Conn) { _ = conn.PgConn().Conn().Close() }

// take takes the connection for one call.
func (l *loan) take() error {
	if l.state.CompareAndSwap(0, taken) {
		return nil
	}
	if l.isOver() {
		return pgx.ErrTxClosed
	}
	return errTwoUsers
}

func (l *loan) isOver() bool { return l.state.Load()&over != 0 }

// leave ends a call.
func (l *loan) leave() {
	if l.state.And(^uint32(taken))&over != 0 {
		close(l.left)
	}
}

func (l *loan) see(sql string, args []any) {
	if l.watch == nil {
		return
	}
	//guard:a-rewriter-gets-the-connection false
	if rewrites(args) {
		l.raw.Store(true)
		l.watch.Unseen()
	}
	l.watch.See(sql, args)
}

// rewrites reports whether a user's pgx.QueryRewriter replaces the text of a statement. It also gets
// the connection itself.
func rewrites(args []any) bool {
	for _, arg := range args {
		switch arg.(type) {
		case pgx.QueryExecMode, pgx.QueryResultFormats, pgx.QueryResultFormatsByOID: // a rewriter may follow these
		case pgx.NamedArgs, pgx.StrictNamedArgs:
			return false
		default:
			_, is := arg.(pgx.QueryRewriter)
			return is
		}
	}
	return false
}

// failed tells the Watcher an error, and returns it.
func (l *loan) failed(err error) error {
	if err != nil && l.watch != nil {
		l.watch.Failed(err)
	}
	return err
}

// Commit commits a nested transaction. For the lent transaction it returns an error.
func (t *Tx) Commit(ctx context.Context) error { return t.end(ctx, t.tx.Commit) }

// Rollback rolls a nested transaction back. For the lent transaction it returns an error.
func (t *Tx) Rollback(ctx context.Context) error { return t.end(ctx, t.tx.Rollback) }

func (t *Tx) end(ctx context.Context, how func(context.Context) error) error {
	if t == &t.loan.of {
		return t.loan.notYour
	}
	if err := t.loan.take(); err != nil {
		return err
	}
	defer t.loan.leave()
	return t.loan.failed(how(ctx))
}

// Begin nests a transaction.
func (t *Tx) Begin(ctx context.Context) (pgx.Tx, error) {
	if err := t.loan.take(); err != nil {
		return nil, err
	}
	defer t.loan.leave()
	nested, err := t.tx.Begin(ctx)
	if err != nil {
		return nil, t.loan.failed(err)
	}
	return &Tx{nested, t.loan}, nil
}

// Exec works like Exec of pgx.Tx.
func (t *Tx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if err := t.loan.take(); err != nil {
		return pgconn.CommandTag{}, err
	}
	defer t.loan.leave()
	t.loan.see(sql, args)
	tag, err := t.tx.Exec(ctx, sql, args...)
	return tag, t.loan.failed(err)
}

// Query works like Query of pgx.Tx.
func (t *Tx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := t.loan.take(); err != nil {
		return none(err), err
	}
	defer t.loan.leave()
	t.loan.see(sql, args)
	found, err := t.tx.Query(ctx, sql, args...)
	return &rows{Rows: found, loan: t.loan}, t.loan.failed(err)
}

// QueryRow works like QueryRow of pgx.Tx.
func (t *Tx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if err := t.loan.take(); err != nil {
		return row{err: err}
	}
	defer t.loan.leave()
	t.loan.see(sql, args)
	return row{t.tx.QueryRow(ctx, sql, args...), t.loan, nil}
}

// SendBatch works like SendBatch of pgx.Tx.
func (t *Tx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if err := t.loan.take(); err != nil {
		return pgx.FailedBatchResults(b, err)
	}
	defer t.loan.leave()
	for _, q := range b.QueuedQueries {
		//guard:a-batch-may-end-the-transaction remove
		t.loan.see(q.SQL, q.Arguments)
	}
	return &results{t.tx.SendBatch(ctx, b), t.loan}
}

// Prepare works like Prepare of pgx.Tx.
func (t *Tx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	if err := t.loan.take(); err != nil {
		return nil, err
	}
	defer t.loan.leave()
	//guard:a-prepared-statement-is-seen remove
	t.loan.see(sql, nil)
	//guard:a-prepared-statement-stays-until-the-connection-is-closed false
	if name != "" && name != sql { // another statement of this name would be refused
		t.loan.see("PREPARE", nil)
	}
	prepared, err := t.tx.Prepare(ctx, name, sql)
	return prepared, t.loan.failed(err)
}

// Conn returns the connection itself. Use it only until the handler returns. The lender closes it
// after the transaction.
func (t *Tx) Conn() *pgx.Conn {
	conn := t.tx.Conn()
	if t.hand() {
		return conn
	}
	return closed(conn.Config())
}

// LargeObjects returns the large objects of the transaction. They use the connection as the user of
// Conn does.
func (t *Tx) LargeObjects() pgx.LargeObjects {
	if t.hand() {
		return t.tx.LargeObjects()
	}
	return ended.LargeObjects()
}

// ended is a transaction of pgx that has ended.
var ended = func() pgx.Tx {
	batch := &pgx.Batch{}
	batch.BeginTx(pgx.TxOptions{})
	return pgx.FailedBatchResults(batch, pgx.ErrTxClosed).Tx()
}()

// hand notes that the code gets the connection itself. It returns false if the loan is over.
func (t *Tx) hand() bool {
	if t.loan.isOver() {
		return false
	}
	t.loan.raw.Store(true)
	if t.loan.watch != nil {
		//guard:the-connection-may-end-the-transaction remove
		t.loan.watch.Unseen()
	}
	return !t.loan.isOver() // again, because Back may have read the field raw before it was set
}

// Config returns the configuration of the connection. A caller who needs only that does not need
// the connection.
func (t *Tx) Config() *pgx.ConnConfig { return t.tx.Conn().Config() }
