package session

import (
	"context"
	_ "embed" // the statement
	"fmt"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
)

//go:embed sql/own.sql
var ownSQL string

// FormatsSQL is a statement without parameters that sets, for the rest of the transaction, the
// encoding and the formats that pgx needs. Send it separately, before the statements that need it,
// if the user's code may have changed a setting.
//
//go:embed sql/formats.sql
var FormatsSQL string

// Loan is the time for which a user's code has a connection of the pool, for one transaction or
// several. The method See examines the text of each statement of this code. If no statement changes
// the session, Postroom need not send anything between two transactions. The text of a statement
// does not show the changes that functions and triggers make. The method Ended looks for such
// changes when the connection goes back to the pool.
//
// The methods See, Use and Unseen may be called concurrently; the other methods may not.
type Loan struct {
	pool   *Pool
	conn   *pgx.Conn
	used   atomic.Bool   // the user's code sent a statement, or may have sent one
	traces atomic.Uint32 // what the statements of the user's code left behind since the current transaction began
}

// Lend begins the loan of a connection. If the session must be read before the user's code gets the
// connection, Lend adds a statement to the batch, and the function look reads its result. Otherwise
// look is nil.
func (p *Pool) Lend(conn *pgx.Conn, batch *pgx.Batch) (l *Loan, look func(pgx.BatchResults) error) {
	l = &Loan{pool: p, conn: conn}
	if s := stateOf(conn); p.hooked || !s.before.known {
		s.before.known = false
		batch.Queue(lookSQL)
		look = func(results pgx.BatchResults) error { return s.before.read(results.QueryRow()) }
	}
	return l, look
}

// See examines a statement of the user's code, before the code sends it.
func (l *Loan) See(sql string) {
	l.used.Store(true)
	if seen := See(sql); seen != 0 {
		l.traces.Or(uint32(seen))
	}
}

// Used reports whether the user's code sent a statement, or may have sent one, since the loan
// began.
func (l *Loan) Used() bool { return l.used.Load() }

// Use notes that the user's code sends a statement that does not change the session.
func (l *Loan) Use() { l.used.Store(true) }

// Unseen notes that the user's code gets the connection itself. See does not examine what the code
// sends, and the code may still use the connection after the loan: so Ended closes the connection.
func (l *Loan) Unseen() {
	l.used.Store(true)
	//guard:the-connection-itself-is-closed-after-the-loan 1 = uint32(Locks | Settings | Temporary)
	l.traces.Or(uint32(Locks | Session | User))
}

// Differs reports whether the user's code may have changed something on which later statements of
// the same transaction depend.
func (l *Loan) Differs() bool { return l.traces.Load() != 0 }

// ChangesUser reports whether the user's code may have changed the session user or the current user
// since the current transaction began.
func (l *Loan) ChangesUser() bool { return Traces(l.traces.Load())&User != 0 }

// Leaves reports whether the user's code left behind something that stays after its transaction. If
// so, run no other transaction on the connection: end the loan (End, Ended) to restore the session.
func (l *Loan) Leaves() bool { return Traces(l.traces.Load())&(Session|Locks) != 0 }

// Next begins the next transaction of the loan.
func (l *Loan) Next() { l.traces.Store(0) }

// Own returns a statement that sets, for the rest of the transaction, the session user and the
// current user that the connection had before the loan.
func (l *Loan) Own() (sql string, args []any) { return l.pool.Own(l.conn) }

// Own returns a statement that sets, for the rest of the transaction, the session user and the
// current user that Begin read.
func (p *Pool) Own(conn *pgx.Conn) (sql string, args []any) {
	before := stateOf(conn).before
	return ownSQL, []any{before.session, before.current}
}

// End adds to a batch the statements that restore the session. They must come after the end of the
// last transaction. Call Ended after you closed the batch.
func (l *Loan) End(batch *pgx.Batch) {
	if l.used.Load() && !l.closes() {
		l.pool.end(l.conn, batch, Traces(l.traces.Load()))
	}
}

// Ended checks the session after the batch of End was closed. err is the error that closing the
// batch returned. If the session cannot be restored, Ended closes the connection and returns why.
// If the user's code left behind something that stays until the connection is closed, Ended closes
// the connection and returns nil.
func (l *Loan) Ended(ctx context.Context, err error) error {
	switch {
	case l.closes():
		_ = l.conn.Close(ctx) // the pool opens a new connection
		return nil
	case !l.used.Load():
		return nil
	}
	return l.pool.Ended(ctx, l.conn, err)
}

// Undone does what End and Ended do, in a separate round trip. Call it after a rollback: a rollback
// does not release locks of the session, and does not undo changes of earlier transactions.
func (l *Loan) Undone(ctx context.Context) error {
	if l.conn.IsClosed() {
		return nil
	}
	batch := &pgx.Batch{}
	if l.End(batch); batch.Len() == 0 {
		return l.Ended(ctx, nil)
	}
	if err := l.Ended(ctx, l.conn.SendBatch(ctx, batch).Close()); err != nil {
		return fmt.Errorf("set the session back: %w", err)
	}
	return nil
}

// closes reports whether the user's code left behind something that stays until the connection is
// closed.
func (l *Loan) closes() bool { return l.pool.Keeps(Traces(l.traces.Load())) }
